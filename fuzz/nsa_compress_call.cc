// Calls of NsaCompress and NsaCompressGrad.
//
// Head    direction, block, stride, N, D, dtype, number of sequences, rows beyond the last one (all
//         rows of a gradient without sequences: its lengths are absent), length of each sequence
// Change  what: an extent, a length, an attribute, the array's size, a rank, a dtype, a stride, the
//         layout, a tensor or the array absent; value as in Change::value
// The forward takes its output from output_grad.
#include <algorithm>

#include "fuzz/bytes.h"
#include "fuzz/struct_call.h"

namespace attncheck::fuzz {
namespace {

using Integer = std::int64_t;
using GradArgs = attncheck_nsa_compress_grad_args;

constexpr Integer kLimits[] = {0, 1, 15, 16, 17, 112, 127, 128, 129, 144, 255, 256, 257, 272, -1};

/// Output rows of a sequence.
Integer blocks_of(const GradArgs& g, Integer length) {
    if (length < g.compress_block_size) return 0;
    return (length - g.compress_block_size) / g.compress_stride + 1;
}

const Family& family() {
    static const Family only("nsa_compress", "nsa_compress_grad", {{"output", "output_grad"}});
    return only;
}

class CompressCall : public StructCall {
public:
    explicit CompressCall(const CallBytes& bytes) : StructCall(family(), &g_) {
        draw({bytes.head.data(), bytes.head.data() + bytes.head.size()});
        for (const Change& change : bytes.changes) spoil(change);
        unchanged_ = bytes.changes.empty();
        const Integer all = std::ssize(lengths_);  // every size is legal, so all values are read
        if (g_.act_seq_len.size > 0) g_.act_seq_len.size = all;
        backed_["act_seq_len"] = back_array(g_.act_seq_len, lengths_, all, all);
    }

    std::optional<ref::Ruling> ruling() const override {
        return forward_ ? ref::rule_nsa_compress(ruled<ref::CompressArguments>())
                        : ref::rule_nsa_compress_grad(ruled<ref::CompressGradArguments>());
    }

private:
    void draw(Bytes head) {
        forward_ = head.byte() % 2;
        const Integer least = forward_ ? 1 : 2;  // the gradient needs stride < block
        const Integer sixteens = least + (head.byte() + 1) % (9 - least);
        g_.compress_block_size = 16 * sixteens;
        g_.compress_stride = 16 * (1 + head.byte() % (forward_ ? sixteens : sixteens - 1));
        constexpr Integer kHeads[] = {1, 2, 3, 128};
        const Integer heads = kHeads[head.byte() % 4], dim = 16 * (1 + head.byte() % 16);
        const std::int32_t dtype = head.byte() % 2 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
        lengths_.resize(std::max<std::size_t>(head.byte() % 6, forward_ ? 1 : 0));
        const Integer beyond = head.byte();
        Integer tokens = 0, blocks = 0;
        for (Integer& length : lengths_) {
            const Integer own = head.byte();
            blocks += blocks_of(g_, own);
            length = tokens += own;
        }
        if (lengths_.empty())
            blocks = blocks_of(g_, tokens = std::max<Integer>(beyond, 1));
        else
            tokens = std::max<Integer>(tokens + beyond % 4, 1);
        const auto tensor = [&](std::int32_t rank, Integer rows, Integer second, Integer third) {
            return attncheck_tensor{no_memory(), dtype, rank, {rows, second, third}, {}};
        };
        g_.input = g_.input_grad = tensor(3, tokens, heads, dim);
        g_.weight = g_.weight_grad = tensor(2, g_.compress_block_size, heads, 0);
        g_.output_grad = tensor(3, blocks, heads, dim);
        if (!lengths_.empty()) g_.act_seq_len = {lengths_.data(), std::ssize(lengths_)};
        g_.layout = draw_layout(0, 0);
    }

    void spoil(const Change& change) {
        attncheck_tensor* const tensors[] = {&g_.output_grad, &g_.input, &g_.weight, &g_.input_grad,
                                             &g_.weight_grad};
        Integer* const attributes[] = {&g_.compress_block_size, &g_.compress_stride,
                                       &g_.act_seq_len_type};
        attncheck_tensor& t = *tensors[change.which % 5];
        switch (change.what % 9) {
            case 0:
                return apply(change, t.shape[change.which / 5 % ATTNCHECK_MAX_RANK], kLimits);
            case 1:
                if (!lengths_.empty())
                    apply(change, lengths_[change.which % lengths_.size()], kLimits);
                return;
            case 2:
                return apply(change, *attributes[change.which % 3], kLimits);
            case 3:
                return apply(change, g_.act_seq_len.size, kLimits);
            case 4:
                return apply(change, t.rank, kRanks);
            case 5:
                return apply(change, t.dtype, kDtypes);
            case 6:
                return apply(change, t.strides[change.which / 5 % ATTNCHECK_MAX_RANK], {});
            case 7:
                g_.layout = draw_layout(0, change.which);
                return;
            default:
                if (change.which % 6 == 5)
                    g_.act_seq_len.values = nullptr;
                else
                    tensors[change.which % 6]->data = nullptr;
        }
    }

    GradArgs g_{};
    std::vector<Integer> lengths_;  ///< back g_.act_seq_len
};

}  // namespace

std::unique_ptr<FuzzedCall> nsa_compress_call(const CallBytes& bytes) {
    return std::make_unique<CompressCall>(bytes);
}

}  // namespace attncheck::fuzz
