#include "impl/operators/nsa_compress/nsa_compress.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "impl/kernels/nsa_compress_pair_kernels.h"
#include "impl/operators/nsa_compress/plan.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

struct CompressProblem {
    const KernelTable& kernels;
    HalfFormat format;
    StridedRows<const std::uint16_t> input;
    StridedRows<std::uint16_t> output;
    const float* weight;                 // [num_heads, block]; null with products of pairs
    const std::uint16_t* weight_halves;  // the same, null without
    WindowGeometry geometry;
    std::int64_t num_tokens, num_heads, head_dim;
    bool from_memory;  // the input is larger than a last-level cache
    bool bypass_cache;
    const CompressPairKernels* pairs;  // null where products are of single numbers
    bool plain_weight;                 // of pairs only
};

using SlabKernel = void (*)(const CompressSlab&);

// Computes output rows [row_begin, row_end) of a group of heads. A token slab is read once and
// added to every open window; sums of open windows wait in a ring of max_open() rows.
class CompressUnit {
public:
    CompressUnit(const CompressProblem& problem, std::int64_t head_begin, std::int64_t num_heads)
        : problem_(problem),
          head_begin_(head_begin),
          num_heads_(num_heads),
          row_size_(num_heads * problem.head_dim),
          ring_(problem.geometry.max_open() * row_size_),
          packed_(packed_elements()),
          rounds_whole_rows_(problem.pairs != nullptr && problem.plain_weight &&
                             problem.head_dim % kLineElements == 0 &&
                             problem.output.contiguous_dim() &&
                             problem.output.head_stride == problem.head_dim) {
        if (problem.pairs == nullptr) {
            slab_.weight = problem.weight + head_begin * problem.geometry.block;
            kernel_ = problem.kernels.compress_slab[static_cast<int>(problem.format)];
        } else {
            slab_.weight_halves = problem.weight_halves + head_begin * problem.geometry.block;
            kernel_ = problem.plain_weight ? problem.pairs->compress_slab
                                           : problem.pairs->exact_compress_slab;
        }
        const std::int64_t fitting = tokens_fitting(kBytesAtOnce, row_size_);
        const RequestPlan lines(problem.kernels.requests, row_size_,
                                problem.pairs != nullptr ? kPairTokens : 1,
                                tokens_ahead(kBytesAhead, row_size_, kSlabTokens));
        slab_.requests = lines.requests;
        slab_.ahead = lines.ahead;
        slab_.tokens_at_once = lines.requests == LineRequests::kOnce ? fitting : kSlabTokens;
        slab_.from_memory = problem.from_memory;
        slab_.num_heads = num_heads;
        slab_.head_dim = problem.head_dim;
        slab_.block = problem.geometry.block;
        if (problem.input.contiguous_dim()) {
            slab_.token_stride = problem.input.row_stride;
            slab_.head_stride = problem.input.head_stride;
        } else {
            slab_.token_stride = row_size_;
            slab_.head_stride = problem.head_dim;
        }
    }

    // `cursor` is at the sequence of row_begin.
    void run(SequenceCursor cursor, std::int64_t row_begin, std::int64_t row_end) {
        for (; cursor.window_begin < row_end; cursor.next()) {
            const std::int64_t first = std::max<std::int64_t>(0, row_begin - cursor.window_begin);
            const std::int64_t end = std::min(cursor.num_windows(), row_end - cursor.window_begin);
            if (first < end) run_windows(cursor, first, end);
        }
    }

private:
    // Asked for twice: at least the slab itself, which is walked head by head.
    static constexpr std::int64_t kBytesAhead = 16 << 10;
    // Asked for once: tokens that single products walk head by head, which leaves room for what was
    // asked for in the first level. Half of it measured the same with rows of 2 KiB, 1.4 times as
    // long with rows of 4; twice of it 1.0 and 1.1 times.
    static constexpr std::int64_t kBytesAtOnce = 8 << 10;

    // Scratch for a packed slab of tokens or one packed output row, whichever is larger.
    std::int64_t packed_elements() const {
        if (!problem_.input.contiguous_dim()) return kSlabTokens * row_size_;
        return problem_.output.contiguous_dim() ? 0 : row_size_;
    }

    float* ring_row(std::int64_t window) const {
        return ring_.data() + window % problem_.geometry.max_open() * row_size_;
    }

    void run_windows(const SequenceCursor& cursor, std::int64_t first, std::int64_t end) {
        const WindowGeometry& geometry = problem_.geometry;
        const std::int64_t pos_end = (end - 1) * geometry.stride + geometry.block;
        for (std::int64_t pos = first * geometry.stride; pos < pos_end; pos += kSlabTokens) {
            const std::int64_t low = std::max(first, geometry.first_open(pos));
            const std::int64_t high = std::min(end - 1, geometry.last_open(pos));
            if (high * geometry.stride == pos) {
                std::memset(ring_row(high), 0, static_cast<std::size_t>(row_size_) * sizeof(float));
            }
            touch_pages_ahead(cursor.token_begin + pos);
            slab_.num_windows = static_cast<int>(high - low + 1);
            for (int k = 0; k < slab_.num_windows; ++k) {
                slab_.first_row[k] = pos - (low + k) * geometry.stride;
                slab_.sums[k] = ring_row(low + k);
            }
            add_slab(cursor.token_begin + pos, kernel_);
            if (low * geometry.stride + geometry.block == pos + kSlabTokens) {
                const std::int64_t row = cursor.window_begin + low;
                if (!store_pair_sums(row, ring_row(low))) {
                    finish_pair_sums(cursor.token_begin + low * geometry.stride, ring_row(low));
                    store_row(row, ring_row(low));
                }
            }
        }
    }

    // Whether the row is there: sums may be such that they have to be formed again.
    bool store_pair_sums(std::int64_t row, const float* sums) const {
        return rounds_whole_rows_ && problem_.pairs->round_sums[problem_.bypass_cache](
                                         sums, problem_.output.at(row, head_begin_), row_size_);
    }

    // Sums of pairs in which something subnormal may have been lost are formed again. `token` is
    // the window's first.
    void finish_pair_sums(std::int64_t token, float* sums) {
        if (problem_.pairs == nullptr || order_sums(sums) || !problem_.plain_weight) return;
        const AlignedBuffer<float> again(row_size_);
        std::memset(again.data(), 0, static_cast<std::size_t>(row_size_) * sizeof(float));
        slab_.num_windows = 1;
        slab_.sums[0] = again.data();
        for (std::int64_t row = 0; row < problem_.geometry.block; row += kSlabTokens) {
            slab_.first_row[0] = row;
            add_slab(token + row, problem_.pairs->exact_compress_slab);
        }
        order_sums(again.data());
        for (std::int64_t i = 0; i < row_size_; ++i) {
            const bool is_plain = std::isfinite(sums[i]) && std::abs(sums[i]) >= kLeastSum;
            if (!is_plain) sums[i] = again.data()[i];
        }
    }

    bool order_sums(float* sums) const {
        if (problem_.head_dim % kLineElements == 0)
            return problem_.pairs->order_sums(sums, row_size_);
        bool plain = true;
        for (std::int64_t head = 0; head < num_heads_; ++head) {
            if (!problem_.pairs->order_sums(sums + head * problem_.head_dim, problem_.head_dim))
                plain = false;
        }
        return plain;
    }

    // Not where lines are asked for once: such requests find their pages themselves, and a read
    // keeps what follows it waiting (1.4 times as long where rows of 1 KiB begin 1 KiB into a
    // page).
    void touch_pages_ahead(std::int64_t token) const {
        if (!problem_.bypass_cache || !problem_.input.contiguous_dim()) return;
        if (slab_.requests == LineRequests::kOnce) return;
        const std::int64_t begin = token + tokens_to_touch_ahead(row_size_);
        const std::int64_t count =
            std::clamp<std::int64_t>(problem_.num_tokens - begin, 0, kSlabTokens);
        touch_pages({begin, count, head_begin_, num_heads_, problem_.head_dim}, problem_.input);
    }

    // Windows and sums are those of slab_.
    void add_slab(std::int64_t token, SlabKernel kernel) {
        if (problem_.input.contiguous_dim()) {
            slab_.input = problem_.input.at(token, head_begin_);
        } else {
            gather(problem_.input, {token, kSlabTokens, head_begin_, num_heads_, problem_.head_dim},
                   packed_.data());
            slab_.input = packed_.data();
        }
        kernel(slab_);
    }

    void store_row(std::int64_t row, const float* sums) {
        const auto format = static_cast<int>(problem_.format);
        const auto narrow_row = problem_.bypass_cache ? problem_.kernels.stream_row[format]
                                                      : problem_.kernels.narrow_row[format];
        if (!problem_.output.contiguous_dim()) {
            narrow_row(sums, packed_.data(), row_size_);
            scatter(packed_.data(), {row, 1, head_begin_, num_heads_, problem_.head_dim},
                    problem_.output);
            return;
        }
        if (problem_.output.head_stride == problem_.head_dim) {
            narrow_row(sums, problem_.output.at(row, head_begin_), row_size_);
            return;
        }
        for (std::int64_t head = 0; head < num_heads_; ++head) {
            narrow_row(sums + head * problem_.head_dim, problem_.output.at(row, head_begin_ + head),
                       problem_.head_dim);
        }
    }

    const CompressProblem& problem_;
    std::int64_t head_begin_, num_heads_, row_size_;
    AlignedBuffer<float> ring_;
    AlignedBuffer<std::uint16_t> packed_;
    bool rounds_whole_rows_;  // sums of pairs, in one pass
    CompressSlab slab_;
    SlabKernel kernel_;
};

bool larger_than_cache(const attncheck_tensor& input) {
    constexpr std::int64_t kCacheBytes = std::int64_t{32} << 20;
    return input.shape[0] >= kCacheBytes / 2 / (input.shape[1] * input.shape[2]);
}

}  // namespace

void nsa_compress(const attncheck_nsa_compress_args& args, const KernelTable& kernels) {
    const std::int64_t num_rows = args.output.shape[0];
    if (num_rows == 0) return;
    const HalfFormat format = half_format(args.input);
    const CompressPairKernels* pairs = format == HalfFormat::kBf16 ? kernels.pairs : nullptr;
    // Such an input streams through the cache and would push the output out anyway.
    const bool from_memory = larger_than_cache(args.input);
    const TransposedWeight weight(args.weight, format, pairs != nullptr);
    const CompressProblem problem{kernels,
                                  format,
                                  input_rows(args.input),
                                  output_rows(args.output),
                                  weight.floats(),
                                  weight.halves(),
                                  {args.compress_block_size, args.compress_stride},
                                  args.input.shape[0],
                                  args.input.shape[1],
                                  args.input.shape[2],
                                  from_memory,
                                  from_memory && rows_at_lines(args.output),
                                  pairs,
                                  weight.plain()};

    const std::int64_t scratch_per_head =
        problem.geometry.max_open() * problem.head_dim * std::int64_t{sizeof(float)};
    HeadGroups groups = HeadGroups::fitting(problem.num_heads, scratch_per_head);
    // Single products of longer rows are slower (of 8 KiB 1.3 to 1.5 times), those of pairs are
    // not.
    constexpr std::int64_t kRowBytes = 4 << 10;
    if (pairs == nullptr && kernels.requests == LineRequests::kOnce) {
        groups.heads_per_group = std::min(
            groups.heads_per_group, std::max<std::int64_t>(kRowBytes / 2 / problem.head_dim, 1));
    }

    // A chunk boundary costs block - stride tokens read twice: at least 64 rows per chunk bound
    // that by 1/64 for the usual block = 2 * stride; many chunks per thread even out a thread that
    // was interrupted.
    constexpr std::int64_t kRowsPerChunk = 64, kChunksPerThread = 16;
    const bool serial = num_rows * problem.geometry.stride <
                        kSerialElements / (problem.num_heads * problem.head_dim);
    const std::int64_t wanted_chunks = serial ? 1 : kChunksPerThread * num_threads();
    const std::int64_t num_chunks =
        std::clamp<std::int64_t>(num_rows / kRowsPerChunk, 1, wanted_chunks);

    std::vector<SequenceCursor> starts;
    starts.reserve(static_cast<std::size_t>(num_chunks));
    SequenceCursor cursor{args.act_seq_len.values, args.act_seq_len.size, problem.geometry};
    for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
        const std::int64_t row = chunk_begin(num_rows, num_chunks, chunk);
        while (cursor.window_begin + cursor.num_windows() <= row) cursor.next();
        starts.push_back(cursor);
    }
    const auto work = [&](std::int64_t unit) {
        const std::int64_t chunk = unit / groups.count(), group = unit % groups.count();
        CompressUnit(problem, groups.begin(group), groups.size(group))
            .run(starts[static_cast<std::size_t>(chunk)], chunk_begin(num_rows, num_chunks, chunk),
                 chunk_begin(num_rows, num_chunks, chunk + 1));
        if (problem.bypass_cache) kernels.end_of_stores();
    };
    if (serial) {
        for (std::int64_t unit = 0; unit < groups.count(); ++unit) work(unit);
    } else {
        parallel_for(num_chunks * groups.count(), work);
    }
}

}  // namespace attncheck::impl
