// Calls of NsaSelectedAttention and NsaSelectedAttentionGrad.
//
// Head    direction, block, count, heads, dims, dtype, scale, mask, memory order of topk_indices,
//         number of sequences and their lengths, rows beyond the last one
// Change  what: an extent of one tensor or of all, a length, an attribute, an array's size, a rank,
//         a dtype, a stride, the layout, a tensor or an array absent, the scale, a listed block
// The forward takes its outputs from the tensors of the same name. topk_indices, whose values
// count, is stored for the shape it has at last: existing blocks where the legal call had queries
// with keys, elsewhere blocks that no sequence has.
#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "fuzz/bytes.h"
#include "fuzz/struct_call.h"

namespace attncheck::fuzz {
namespace {

using Integer = std::int64_t;
using GradArgs = attncheck_nsa_selected_attention_grad_args;

constexpr Integer kMaxStored = 1 << 9;  ///< beyond it topk_indices is one number, all strides 0
constexpr Integer kMostSequences = 2 << 20, kMostBacked = 1100;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kScales[] = {0.1,
                              0,
                              -1,
                              5e-324,
                              0x1.fffffefffffffp127,
                              0x1.ffffffp127,
                              -1e300,
                              kInfinity,
                              std::numeric_limits<double>::quiet_NaN()};
constexpr int kLegalScales = 5;
constexpr Integer kMebi = 1 << 20;
constexpr Integer kLimits[] = {0,    1,    2,      3,      8,         31,     32,
                               33,   127,  128,    129,    160,       192,    193,
                               256,  1023, 1024,   1025,   2 * kMebi, -1,     2048,
                               2047, 2049, 131071, 131072, 131073,    131088, 2 * kMebi + 1};
constexpr Integer kNoLength = -1;  ///< stands for a present array until its values are final

/// Every number a shape is made of.
enum Extent { kT1, kN1, kT2, kN2, kD, kDv, kK, kExtents };

void set_shape(attncheck_tensor& t, Integer first, Integer second, Integer third) {
    t.shape[0] = first, t.shape[1] = second, t.shape[2] = third;
}

/// Elements of a shape of rank 3, or nothing when it is no such shape or larger than `most`.
std::optional<Integer> elements(const attncheck_tensor& t, Integer most) {
    if (t.rank != 3) return std::nullopt;
    Integer product = 1;
    for (int axis = 0; axis < 3; ++axis) {
        const Integer extent = t.shape[axis];
        if (extent < 0 || extent > most / std::max<Integer>(product, 1)) return std::nullopt;
        product *= extent;
    }
    return product;
}

const Family& family() {
    static const Family only("nsa_selected_attention", "nsa_selected_attention_grad");
    return only;
}

class SelectedAttentionCall : public StructCall {
public:
    explicit SelectedAttentionCall(const CallBytes& bytes) : StructCall(family(), &g_) {
        draw({bytes.head.data(), bytes.head.data() + bytes.head.size()});
        for (const Change& change : bytes.changes) spoil(change);
        unchanged_ = bytes.changes.empty();
        backed_["actual_seq_q_len"] =
            back_array(g_.actual_seq_q_len, query_ends_, kMostSequences, kMostBacked);
        backed_["actual_seq_kv_len"] =
            back_array(g_.actual_seq_kv_len, kv_ends_, kMostSequences, kMostBacked);
        store_topk();
    }

    std::optional<ref::Ruling> ruling() const override {
        return forward_ ? judge<ref::SelectedAttentionArguments>(ref::rule_nsa_selected_attention)
                        : judge<ref::SelectedAttentionGradArguments>(
                              ref::rule_nsa_selected_attention_grad);
    }

private:
    std::array<attncheck_tensor*, 12> tensors() {
        return {
            &g_.query,        &g_.key,       &g_.value, &g_.attention_out, &g_.attention_out_grad,
            &g_.dq,           &g_.dk,        &g_.dv,    &g_.softmax_max,   &g_.softmax_sum,
            &g_.topk_indices, &g_.atten_mask};
    }

    void draw(Bytes head) {
        constexpr Integer kKvHeads[] = {1, 2, 3, 4, 128}, kGroups[] = {1, 2, 7, 32};
        constexpr Integer kDims[][2] = {{128, 128}, {192, 128}, {192, 192}};
        constexpr Integer kCounts[] = {1, 2, 5, 32};
        forward_ = head.byte() % 2;
        g_.selected_block_size = 16 * (1 + head.byte() % 8);
        x_[kK] = kCounts[head.byte() % 4];
        const std::uint8_t heads = head.byte();
        x_[kN2] = kKvHeads[heads % 5];
        x_[kN1] = x_[kN2] * (x_[kN2] == 128 ? 1 : kGroups[heads / 5 % 4]);
        const std::uint8_t dims = head.byte();
        x_[kD] = kDims[dims % 3][0], x_[kDv] = kDims[dims % 3][1];
        const std::int32_t dtype = head.byte() % 2 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
        g_.scale_value = kScales[head.byte() % kLegalScales];
        const std::uint8_t mask = head.byte();  // bit 0: mode 2, bit 2: there is one
        order_ = head.byte() % 6;
        const auto [longest_query, longest_kv] = draw_lengths(head);
        for (attncheck_tensor* t : tensors()) *t = {no_memory(), dtype, 3, {}, {}};
        g_.softmax_max.dtype = g_.softmax_sum.dtype = ATTNCHECK_FLOAT32;
        g_.topk_indices.dtype = ATTNCHECK_INT32;
        set_shapes();
        g_.sparse_mode = mask % 2 * 2;
        g_.atten_mask = {nullptr, mask % 3 ? ATTNCHECK_BOOL : ATTNCHECK_UINT8, 2, {}, {}};
        if (mask & 4) g_.atten_mask.data = no_memory();
        set_shape(g_.atten_mask, mask % 2 ? mask : longest_query, mask % 2 ? 2048 : longest_kv, 0);
        g_.input_layout = draw_layout(0, 0);
        g_.actual_seq_q_len = {&kNoLength, std::ssize(query_ends_)};
        g_.actual_seq_kv_len = {&kNoLength, std::ssize(kv_ends_)};
    }

    /// Lengths of up to 5 sequences; returns the longest of each side.
    std::pair<Integer, Integer> draw_lengths(Bytes& head) {
        const Integer block = g_.selected_block_size;
        const Integer least = block * x_[kK], most = 131072 / block * block;
        Integer query_end = 0, kv_end = 0, longest_query = 0, longest_kv = 0;
        for (int left = 1 + head.byte() % 5; left > 0; --left) {
            const Integer queries = head.byte() % 9, kind = head.byte();
            Integer keys = least + block * (kind / 2 % 64);
            if (kind % 2 == 0) keys = kind % 16 == 0 ? most : 0;
            blocks_.insert(blocks_.end(), static_cast<std::size_t>(queries), keys / block);
            query_ends_.push_back(query_end += queries);
            kv_ends_.push_back(kv_end += keys);
            longest_query = std::max(longest_query, queries);
            longest_kv = std::max(longest_kv, keys);
        }
        x_[kT1] = std::max<Integer>(1, query_end + head.byte() % 4);
        x_[kT2] = std::max<Integer>(1, kv_end + head.byte());
        return {longest_query, longest_kv};
    }

    void set_shapes() {
        for (attncheck_tensor* t : {&g_.query, &g_.dq}) set_shape(*t, x_[kT1], x_[kN1], x_[kD]);
        for (attncheck_tensor* t : {&g_.key, &g_.dk}) set_shape(*t, x_[kT2], x_[kN2], x_[kD]);
        for (attncheck_tensor* t : {&g_.value, &g_.dv}) set_shape(*t, x_[kT2], x_[kN2], x_[kDv]);
        for (attncheck_tensor* t : {&g_.attention_out, &g_.attention_out_grad})
            set_shape(*t, x_[kT1], x_[kN1], x_[kDv]);
        for (attncheck_tensor* t : {&g_.softmax_max, &g_.softmax_sum})
            set_shape(*t, x_[kT1], x_[kN1], 8);
        set_shape(g_.topk_indices, x_[kT1], x_[kN2], x_[kK]);
        g_.head_num = x_[kN1], g_.selected_block_count = x_[kK];
    }

    void spoil(const Change& change) {
        const std::uint8_t which = change.which;
        Integer* const attributes[] = {&g_.head_num, &g_.sparse_mode, &g_.selected_block_size,
                                       &g_.selected_block_count};
        attncheck_tensor& t = *tensors()[which % 12];
        std::vector<Integer>& ends = which % 2 ? query_ends_ : kv_ends_;
        attncheck_int_array& array = which % 2 ? g_.actual_seq_q_len : g_.actual_seq_kv_len;
        switch (change.what % 13) {
            case 0:
                return apply(change, *attributes[which % 4], kLimits);
            case 1:
                return apply(change, t.shape[which / 12 % ATTNCHECK_MAX_RANK], kLimits);
            case 2:
                return apply(change, ends[which / 2 % ends.size()], kLimits);
            case 3:
                return apply(change, array.size, kLimits);
            case 4:
                return apply(change, t.rank, kRanks);
            case 5:
                return apply(change, t.dtype, kDtypes);
            case 6:
                g_.input_layout = draw_layout(0, which);
                return;
            case 7:
                t.data = which / 12 % 4 ? nullptr : no_memory();
                return;
            case 8:
                array.values = nullptr;
                return;
            case 9:
                g_.scale_value = kScales[which % std::size(kScales)];
                return;
            case 10:
                apply(change, x_[which % kExtents], kLimits);
                return set_shapes();
            case 11:
                replaced_.emplace_back(which, 0);
                return apply(change, replaced_.back().second, kLimits);
            default:  // validation looks at no stride but those of topk_indices, set at last
                return apply(change, t.strides[which / 12 % ATTNCHECK_MAX_RANK], {});
        }
    }

    /// Gives topk_indices memory of exactly the size that its shape and strides span, and notes its
    /// values row-major; a shape that is none to store gets a single 0 at strides 0.
    void store_topk() {
        attncheck_tensor& t = g_.topk_indices;
        const Integer count = elements(t, kMaxStored).value_or(0);
        if (count == 0) order_ = 0;
        const bool repeats = order_ == 0 || order_ == 4;  // one element serves many rows
        const Integer heads = t.shape[1], k = t.shape[2], rows = std::ssize(blocks_);
        Integer first = 0, last = 0;
        for (int axis = 0; axis < 3; ++axis) {
            if (count == 0) {
                t.strides[axis] = 0;
                continue;
            }
            const Integer dense[] = {heads * k, k, 1}, turned[] = {1, t.shape[0] * k, t.shape[0]};
            const Integer factor[][3] = {{0, 0, 0},  {1, 1, 1}, {0, 0, 0},
                                         {-1, 1, 1}, {0, 1, 1}, {2, -2, 2}};
            t.strides[axis] = order_ == 2 ? turned[axis] : dense[axis] * factor[order_][axis];
            (t.strides[axis] < 0 ? first : last) += t.strides[axis] * (t.shape[axis] - 1);
        }
        stored_.assign(static_cast<std::size_t>(last - first + 1), repeats ? 0 : -9);
        if (t.data) t.data = stored_.data() - first;
        const auto element = [&](Integer number) -> std::int32_t& {
            const Integer place = number / (heads * k) * t.strides[0] +
                                  number / k % heads * t.strides[1] + number % k * t.strides[2];
            return stored_[static_cast<std::size_t>(place - first)];
        };
        for (Integer i = 0; i < count && !repeats; ++i) {
            const Integer row = i / (heads * k);
            const Integer blocks = row < rows ? blocks_[static_cast<std::size_t>(row)] : 0;
            if (blocks > 0) element(i) = static_cast<std::int32_t>((i * 7 + row) % blocks);
        }
        for (const auto& [number, value] : replaced_)
            if (count > 0) element(number % count) = value;
        for (Integer i = 0; i < count; ++i) topk_values_.push_back(element(i));
    }

    /// The ruling; nothing when every rule but the last holds for a topk_indices of so many
    /// elements that looking at all of them takes too long.
    template <class Arguments>
    std::optional<ref::Ruling> judge(ref::Ruling (*rule)(const Arguments&)) const {
        constexpr Integer kMostLookedAt = 1 << 11;
        auto a = ruled<Arguments>();
        a.topk_values = topk_values_;
        try {
            return rule(a);
        } catch (const std::logic_error&) {
            const std::optional<Integer> count = elements(g_.topk_indices, kMostLookedAt);
            if (!a.topk_values.empty()) throw;
            if (!count) return std::nullopt;
            a.topk_values.assign(static_cast<std::size_t>(*count), 0);
            return rule(a);
        }
    }

    GradArgs g_{};
    std::array<Integer, kExtents> x_{};
    std::vector<Integer> query_ends_, kv_ends_;  ///< back the arrays
    std::vector<Integer> blocks_;  ///< of every query row with keys, in the legal call; 0 without
    int order_ = 0;                ///< memory order of topk_indices
    std::vector<std::pair<Integer, std::int32_t>> replaced_;  ///< topk values, by row-major number
    std::vector<std::int32_t> stored_;                        ///< what topk_indices points into
    std::vector<Integer> topk_values_;                        ///< row-major
};

}  // namespace

std::unique_ptr<FuzzedCall> nsa_selected_attention_call(const CallBytes& bytes) {
    return std::make_unique<SelectedAttentionCall>(bytes);
}

}  // namespace attncheck::fuzz
