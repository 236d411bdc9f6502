// Attention of a tile of queries and keys on the unit: softmax of one block while it multiplies the
// next. Included by amx_kernels.cc where tiles and products are known.

/// Softmax of some rows and the rescaling of their sums, a row a step.
template <bool kHasFactor>
class SoftmaxSteps {
public:
    SoftmaxSteps(const AttentionTile& tile, unsigned& lost)
        : tile_(tile),
          vectors_{tile.softmax, tile.halves, lost},
          rows_(tile.softmax, vectors_),
          next_(0),
          group_end_(0),
          end_(0) {}

    void start(std::int64_t begin, std::int64_t end) {
        next_ = group_end_ = begin;
        end_ = end;
    }
    void step() {
        if (next_ >= end_) return;
        if (next_ == group_end_) {
            group_end_ = smaller(next_ + 16, end_);
            rows_.start(next_, group_end_);
        }
        rows_.weigh(next_);
        if (tile_.sums.accumulate) rescale_row(tile_.sums, next_, tile_.softmax.rescale[next_]);
        ++next_;
    }
    void finish() {
        while (next_ < end_) step();
    }

private:
    const AttentionTile& tile_;
    SoftmaxVectors<kHasFactor> vectors_;
    SoftmaxRows<SoftmaxVectors<kHasFactor>> rows_;
    std::int64_t next_, group_end_, end_;
};

// While the unit multiplies the queries of some rows, and the weights of those two groups before,
// softmax of the group between is done.
template <class Tiles, bool kHasFactor>
bool attend_in_steps(const AttentionTile& tile) {
    Tiles tiles;
    unsigned lost = 0;
    SoftmaxSteps<kHasFactor> softmax(tile, lost);
    BlockWalk<Tiles, SoftmaxSteps<kHasFactor>> walk(tiles, softmax);
    const std::int64_t rows = tile.softmax.rows;
    for (std::int64_t row = 0; row < rows + 2 * kBlock; row += kBlock) {
        if (row >= kBlock) softmax.start(row - kBlock, smaller(row, rows));
        if (row < rows) walk.multiply_rows(tile.logits, row);
        if (row >= 2 * kBlock) walk.multiply_rows(tile.sums, row - 2 * kBlock);
        walk.finish();
        softmax.finish();
    }
    return lost != 0;
}

template <class Tiles>
bool attend(const AttentionTile& tile) {
    if (tile.logits.depth_pairs > kMaxPairs || tile.sums.depth_pairs > kMaxPairs) {
        product<Tiles>(tile.logits);
        unsigned lost = 0;
        SoftmaxSteps<true> softmax(tile, lost);
        softmax.start(0, tile.softmax.rows);
        softmax.finish();
        product<Tiles>(tile.sums);
        return lost != 0;
    }
    return tile.softmax.prob_factor == 1.0f ? attend_in_steps<Tiles, false>(tile)
                                            : attend_in_steps<Tiles, true>(tile);
}
