// The steps of SoftmaxTile that are the same for every instruction set. Included where SoftmaxTile
// is known, once per target.

// Rows [begin, end) of a tile, at most 16, whose rescalings are one call of the exponential.
// `Vectors` has, of some instruction set:
//
//   float max_of_row(const float* row, std::int64_t cols)   NaN if any element is
//   void exp_of_16(float* values)
//   float weigh(std::int64_t row, float shift)   makes the weights of a row, returns the sum of
//                                                their exponentials
template <class Vectors>
__attribute__((always_inline)) inline void softmax_rows(const SoftmaxTile& tile, std::int64_t begin,
                                                        std::int64_t end, const Vectors& vectors) {
    constexpr float kInfinity = __builtin_inff();
    alignas(64) float shift[16], rescale[16] = {};
    for (std::int64_t r = begin; r < end; ++r) {
        const float old_max = tile.row_max[r],
                    tile_max = vectors.max_of_row(tile.logits + r * tile.stride, tile.cols);
        const float new_max = old_max >= tile_max  ? old_max
                              : old_max != old_max ? old_max
                                                   : tile_max;
        shift[r - begin] = new_max == -kInfinity ? 0.0f : new_max;
        rescale[r - begin] = old_max - shift[r - begin];
        tile.row_max[r] = new_max;
    }
    vectors.exp_of_16(rescale);
    for (std::int64_t r = begin; r < end; ++r) {
        const float sum = vectors.weigh(r, shift[r - begin]);
        tile.rescale[r] = rescale[r - begin];
        tile.row_sum[r] = tile.row_sum[r] * tile.rescale[r] + sum;
    }
}
