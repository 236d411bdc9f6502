// Two validators of NsaCompress and NsaCompressGrad, written apart from the same contract, must
// agree: the same status, the same parameter to blame. A trap means they do not.
//
// How bytes become a call: 8 bytes choose a legal gradient call (operator, block, stride, N, D,
// dtype, number of sequences, T beyond the last length), one per sequence its length; no sequence
// means absent lengths. Up to 6 groups follow: what to spoil, which one of them, and a new value as
// in Bytes::value. Missing bytes are 0. The forward takes its output from output_grad.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "attncheck/candidate.h"
#include "fuzz/bytes.h"
#include "impl/nsa_compress_validate.h"
#include "ref/constraints.h"

using namespace attncheck;

namespace {

using Integer = std::int64_t;
using GradArgs = attncheck_nsa_compress_grad_args;

/// A legal gradient call, except that the stride may be too large; lengths backs its act_seq_len.
GradArgs draw_legal(Bytes& bytes, std::vector<Integer>& lengths) {
    GradArgs g{};
    g.compress_block_size = 16 * (1 + (bytes.byte() + 1) % 8);
    g.compress_stride = 16 * (1 + bytes.byte() % 8);
    constexpr Integer kHeads[] = {1, 2, 3, 128};
    const Integer heads = kHeads[bytes.byte() % 4], dim = 16 * (1 + bytes.byte() % 16);
    const std::int32_t dtype = bytes.byte() % 2 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
    lengths.resize(bytes.byte() % 6);
    Integer tokens = lengths.empty() ? bytes.byte() : bytes.byte() % 4, blocks = 0, last = 0;
    const auto add_blocks = [&](Integer own) {
        if (own >= g.compress_block_size)
            blocks += (own - g.compress_block_size) / g.compress_stride + 1;
    };
    for (Integer& length : lengths) {
        const Integer own = bytes.byte();
        add_blocks(own);
        length = last += own;
    }
    if (lengths.empty())
        add_blocks(tokens);
    else
        g.act_seq_len = {lengths.data(), static_cast<Integer>(lengths.size())};
    tokens += last;
    g.input = {&g, dtype, 3, {tokens, heads, dim}, {}};
    g.weight = {&g, dtype, 2, {g.compress_block_size, heads}, {}};
    g.output_grad = {&g, dtype, 3, {blocks, heads, dim}, {}};
    g.input_grad = g.input, g.weight_grad = g.weight;
    g.layout = "TND";
    return g;
}

void spoil(Bytes& bytes, GradArgs& g, std::vector<Integer>& lengths) {
    const std::uint8_t what = bytes.byte(), which = bytes.byte();
    Integer* const attributes[] = {&g.compress_block_size, &g.compress_stride, &g.act_seq_len_type};
    attncheck_tensor* const tensors[] = {&g.output_grad, &g.input, &g.weight, &g.input_grad,
                                         &g.weight_grad};
    const char* const layouts[] = {nullptr, "", "tnd", "TN", "TNDX", "BSND", "TND"};
    attncheck_tensor& t = *tensors[which % 5];
    Integer* integer = attributes[which % 3];
    switch (what % 8) {
        case 0:
            break;
        case 1:
            integer = &t.shape[which / 5 % 4];
            break;
        case 2:
            if (!lengths.empty()) integer = &lengths[which % lengths.size()];
            break;
        case 3:
            integer = &g.act_seq_len.size;
            break;
        case 4:
            t.rank = static_cast<std::int32_t>(bytes.value(t.rank));
            return;
        case 5:
            t.dtype = static_cast<std::int32_t>(bytes.value(t.dtype));
            return;
        case 6:
            g.layout = layouts[which % 7];
            return;
        case 7:
            if (which % 6)
                t.data = nullptr;
            else
                g.act_seq_len.values = nullptr;
            return;
    }
    *integer = bytes.value(*integer);
}

ref::TensorArgument argument(const attncheck_tensor& t) {
    const int entries = std::clamp(t.rank, 0, ATTNCHECK_MAX_RANK);
    return {t.data != nullptr, t.dtype, t.rank, {t.shape, t.shape + entries}};
}

void compare(const ref::Ruling& ruling, const std::optional<impl::Rejection>& found) {
    const impl::Rejection other = found.value_or(impl::Rejection{0, "", "accepted"});
    if (other.status == ruling.status && other.parameter == ruling.parameter) return;
    std::fprintf(stderr, "ref:  %d %s\nimpl: %d %s\n", ruling.status, ruling.message.c_str(),
                 other.status, other.message.c_str());
    __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes bytes{data, data + size};
    const bool forward = bytes.byte() % 2;
    std::vector<Integer> lengths;
    GradArgs g = draw_legal(bytes, lengths);
    for (int i = 0; i < 6 && bytes.next != bytes.end; ++i) spoil(bytes, g, lengths);
    // A size that nothing backs may only be handed over when nobody has to read the values.
    ref::ArrayArgument array{g.act_seq_len.values != nullptr, g.act_seq_len.size, {}};
    if (array.present && array.size > 0) {
        array.size = g.act_seq_len.size = static_cast<Integer>(lengths.size());
        array.values = lengths;
    }
    const auto layout = g.layout ? std::optional<std::string>(g.layout) : std::nullopt;
    if (forward) {
        const attncheck_nsa_compress_args f{
            g.input,           g.weight,           g.act_seq_len, g.layout, g.compress_block_size,
            g.compress_stride, g.act_seq_len_type, g.output_grad};
        compare(ref::rule_nsa_compress({argument(f.input), argument(f.weight), argument(f.output),
                                        array, layout, f.compress_block_size, f.compress_stride,
                                        f.act_seq_len_type}),
                impl::validate_nsa_compress(&f));
    } else {
        compare(ref::rule_nsa_compress_grad(
                    {argument(g.output_grad), argument(g.input), argument(g.weight),
                     argument(g.input_grad), argument(g.weight_grad), array, layout,
                     g.compress_block_size, g.compress_stride, g.act_seq_len_type}),
                impl::validate_nsa_compress_grad(&g));
    }
    return 0;
}
