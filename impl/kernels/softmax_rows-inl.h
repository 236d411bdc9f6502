// The steps of SoftmaxTile that are the same for every instruction set. Included where SoftmaxTile
// is known, once per target.

// Up to 16 rows, whose rescalings are one call of the exponential. `Vectors` has, of some
// instruction set:
//
//   float max_of_row(const float* row, std::int64_t cols)   NaN if any element is
//   void exp_of_16(float* values)
//   float weigh(std::int64_t row, float shift)   makes the weights of a row, returns the sum of
//                                                their exponentials
template <class Vectors>
class SoftmaxRows {
public:
    __attribute__((always_inline)) inline SoftmaxRows(const SoftmaxTile& tile,
                                                      const Vectors& vectors)
        : tile_(tile), vectors_(vectors) {}

    // Rows [begin, end): new maxima and rescalings.
    __attribute__((always_inline)) inline void start(std::int64_t begin, std::int64_t end) {
        constexpr float kInfinity = __builtin_inff();
        begin_ = begin;
        for (std::int64_t r = begin; r < end; ++r) {
            const float old_max = tile_.row_max[r],
                        tile_max = vectors_.max_of_row(tile_.logits + r * tile_.stride, tile_.cols);
            const float new_max = old_max >= tile_max  ? old_max
                                  : old_max != old_max ? old_max
                                                       : tile_max;
            shift_[r - begin] = new_max == -kInfinity ? 0.0f : new_max;
            rescale_[r - begin] = old_max - shift_[r - begin];
            tile_.row_max[r] = new_max;
        }
        vectors_.exp_of_16(rescale_);
    }
    // Each of them, after start.
    __attribute__((always_inline)) inline void weigh(std::int64_t r) {
        const float sum = vectors_.weigh(r, shift_[r - begin_]);
        tile_.rescale[r] = rescale_[r - begin_];
        tile_.row_sum[r] = tile_.row_sum[r] * tile_.rescale[r] + sum;
    }

private:
    const SoftmaxTile& tile_;
    const Vectors& vectors_;
    std::int64_t begin_ = 0;
    alignas(64) float shift_[16], rescale_[16] = {};
};

template <class Vectors>
__attribute__((always_inline)) inline void softmax_of(const SoftmaxTile& tile,
                                                      const Vectors& vectors) {
    SoftmaxRows<Vectors> rows(tile, vectors);
    for (std::int64_t begin = 0; begin < tile.rows; begin += 16) {
        const std::int64_t end = tile.rows < begin + 16 ? tile.rows : begin + 16;
        rows.start(begin, end);
        for (std::int64_t r = begin; r < end; ++r) rows.weigh(r);
    }
}
