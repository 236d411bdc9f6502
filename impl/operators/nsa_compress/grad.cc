#include <algorithm>
#include <vector>

#include "impl/operators/nsa_compress/gradient_unit.h"
#include "impl/operators/nsa_compress/nsa_compress.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

// Chunks of tokens, a function of the shape alone. A boundary inside a sequence is moved back to a
// window start, where the fewest windows are cut (and which is a slab boundary).
struct TokenChunk {
    SequenceCursor cursor;
    std::int64_t begin;
};

std::vector<TokenChunk> cut_tokens(const GradientProblem& problem,
                                   const attncheck_int_array& lengths) {
    constexpr std::int64_t kElementsPerChunk = std::int64_t{1} << 16;  // about 10 us of work
    const std::int64_t row_size = problem.num_heads * problem.head_dim;
    const std::int64_t partial_bytes =
        problem.num_heads * problem.geometry.block * std::int64_t{sizeof(float)};
    // Pages of dX are not touched ahead at the start of a chunk, hence few of them.
    const std::int64_t most = std::min<std::int64_t>(64, kMaxPartialBytes / partial_bytes);
    const std::int64_t tokens_per_chunk = std::max<std::int64_t>(1, kElementsPerChunk / row_size);
    const std::int64_t num_chunks =
        std::clamp<std::int64_t>(problem.num_tokens / tokens_per_chunk, 1, most);

    std::vector<TokenChunk> chunks;
    chunks.reserve(static_cast<std::size_t>(num_chunks));
    SequenceCursor cursor{lengths.values, lengths.size, problem.geometry};
    for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
        std::int64_t begin = chunk_begin(problem.num_tokens, num_chunks, chunk);
        while (!cursor.done() && cursor.token_begin + cursor.length() <= begin) cursor.next();
        if (!cursor.done()) begin -= (begin - cursor.token_begin) % problem.geometry.stride;
        chunks.push_back({cursor, begin});
    }
    return chunks;
}

void store_weight_grad(const float* partials, std::int64_t num_chunks,
                       const attncheck_tensor& weight_grad, HalfFormat format) {
    const std::int64_t block = weight_grad.shape[0], num_heads = weight_grad.shape[1];
    auto* data = static_cast<std::uint16_t*>(weight_grad.data);
    for (std::int64_t head = 0; head < num_heads; ++head) {
        for (std::int64_t row = 0; row < block; ++row) {
            float sum = 0.0f;
            for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
                sum += partials[(chunk * num_heads + head) * block + row];
            }
            data[row * weight_grad.strides[0] + head * weight_grad.strides[1]] =
                narrow(format, sum);
        }
    }
}

bool worth_bypassing(const attncheck_tensor& grad) {
    return rows_at_lines(grad) &&
           grad.shape[0] >= kBypassBytes / 2 / (grad.shape[1] * grad.shape[2]);
}

}  // namespace

void nsa_compress_grad(const attncheck_nsa_compress_grad_args& args, const KernelTable& kernels) {
    const HalfFormat format = half_format(args.input);
    const CompressPairKernels* pairs = format == HalfFormat::kBf16 ? kernels.pairs : nullptr;
    const TransposedWeight weight(args.weight, format, pairs != nullptr);
    const GradientProblem problem{kernels,
                                  format,
                                  input_rows(args.output_grad),
                                  input_rows(args.input),
                                  output_rows(args.input_grad),
                                  weight.floats(),
                                  weight.halves(),
                                  {args.compress_block_size, args.compress_stride},
                                  args.input.shape[0],
                                  args.output_grad.shape[0],
                                  args.input.shape[1],
                                  args.input.shape[2],
                                  worth_bypassing(args.input_grad),
                                  pairs,
                                  weight.plain()};
    const std::int64_t whole_pack = problem.num_tokens;
    const attncheck_int_array one_sequence{&whole_pack, 1};
    const std::vector<TokenChunk> chunks =
        cut_tokens(problem, args.act_seq_len.values == nullptr ? one_sequence : args.act_seq_len);
    const auto num_chunks = static_cast<std::int64_t>(chunks.size());

    const std::int64_t block = problem.geometry.block;
    const std::int64_t scratch_per_head =
        (problem.geometry.max_open() * problem.head_dim + block * kLanesPerSum) *
        std::int64_t{sizeof(float)};
    const HeadGroups groups = HeadGroups::fitting(problem.num_heads, scratch_per_head);
    const AlignedBuffer<float> partials(num_chunks * problem.num_heads * block);

    const auto work = [&](std::int64_t unit) {
        const std::int64_t chunk = unit / groups.count(), group = unit % groups.count();
        const TokenChunk& start = chunks[static_cast<std::size_t>(chunk)];
        const std::int64_t end = chunk + 1 < num_chunks
                                     ? chunks[static_cast<std::size_t>(chunk) + 1].begin
                                     : problem.num_tokens;
        GradientUnit gradient(problem, groups.begin(group), groups.size(group));
        gradient.run(start.cursor, start.begin, end,
                     partials.data() + (chunk * problem.num_heads + groups.begin(group)) * block);
        if (problem.bypass_cache) kernels.end_of_stores();
    };
    if (problem.num_tokens < kSerialElements / (problem.num_heads * problem.head_dim)) {
        for (std::int64_t unit = 0; unit < num_chunks * groups.count(); ++unit) work(unit);
    } else {
        parallel_for(num_chunks * groups.count(), work);
    }
    store_weight_grad(partials.data(), num_chunks, args.weight_grad, format);
}

}  // namespace attncheck::impl
