// The corners of flash_attention.md 9 that a case of flash attention is in.
#include <fmt/format.h>

#include <algorithm>

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Names the corner cases of flash_attention.md 9 that a legal case is, as "corner:N" or, where one
/// number has several sides, "corner:N.side". What contract.md overrides is left out; illegal
/// arguments are the edits' (validation.cc).
class Corners {
public:
    Corners(const Spec& spec, std::vector<std::string>& out)
        : spec_(spec), parts_(flash_shape_parts(spec)), out_(out) {}

    void name() {
        if (masked_) name_masks();
        corner(!masked_ && mode_ != 0, "9");
        corner(n_[kFaInert] == 2, "8");
        if (tnd_) name_sequences();
        name_extents();
        name_dropout();
        name_biases();
        name_data();
    }

private:
    void corner(bool applies, const char* which) {
        if (applies) out_.push_back(fmt::format("corner:{}", which));
    }
    /// True for some batch or sequence.
    template <class Test>
    bool some(Test&& test) const {
        for (std::size_t b = 0; b < q_.size(); ++b)
            if (test(q_[b], kv_[b])) return true;
        return false;
    }
    void name_masks();
    void name_prefixes();
    void name_split_bands();
    void name_read_masks();
    void name_sequences();
    void name_extents();
    void name_dropout();
    void name_biases();
    void name_data();
    bool hides_a_row() const;

    const Spec& spec_;
    const FlashParts parts_;
    std::vector<std::string>& out_;
    const std::vector<Int>&n_ = spec_.numbers, &q_ = spec_.lists[0], &kv_ = spec_.lists[1];
    const ref::FlashAttentionShape& shape_ = parts_.shape;
    const Int mode_ = n_[kFaSparse];
    const bool masked_ = n_[kFaMask] != 0, tnd_ = is_tnd(spec_);
};

void Corners::name_masks() {
    const Int pre = shape_.mask.pre_tokens, next = shape_.mask.next_tokens;
    corner(mode_ == 3 && some([](Int q, Int kv) { return q > kv && kv > 0; }), "1");
    corner(mode_ == 3 && some([](Int q, Int kv) { return 0 < q && q < kv; }), "2");
    const bool different = some([](Int q, Int kv) { return q != kv && q > 0 && kv > 0; });
    corner(mode_ == 4 && different && n_[kFaTokens] == 0, "3");
    corner(mode_ == 4 && pre < 0, "4.pre");
    corner(mode_ == 4 && next < 0, "4.next");
    corner(mode_ == 4 && pre != 0 && pre == -next, "4.limit");
    corner(mode_ == 0 && pre < 0 && -pre == longest(q_) - 1, "5.pre");
    corner(mode_ == 0 && next < 0 && -next == longest(kv_) - 1, "5.next");
    corner(mode_ == 0 && pre == 0 && next == 0, tnd_ ? "6.sequences" : "6.batches");
    const bool unlimited = pre == INT64_MAX || next == INT64_MAX;
    corner(mode_ == 0 && unlimited, "10.top_left");
    corner(mode_ == 4 && unlimited, "10.bottom_right");
    corner(mode_ >= 7 && unlimited, "10.split");
    if (mode_ == 5 || mode_ == 6) name_prefixes();
    if (mode_ >= 7) name_split_bands();
    if (mode_ < 2 || mode_ == 5) name_read_masks();
}

void Corners::name_prefixes() {
    const auto& prefix = shape_.mask.prefix;
    corner(mode_ == 5 && prefix.empty(), "12");
    if (mode_ != 6) return;
    bool full = false, zero = false, differ = false;
    for (std::size_t b = 0; b < prefix.size(); ++b) {
        full = full || (prefix[b] == kv_[b] && kv_[b] > 0);
        zero = zero || (prefix[b] == 0 && q_[b] > kv_[b] && kv_[b] > 0);
        differ = differ || prefix[b] != prefix[0];
    }
    corner(full, "11.full");
    corner(zero, "11.zero");
    corner(differ, "11.differ");
}

void Corners::name_split_bands() {
    const auto has_queries = [](Int q) { return q != 0; };
    const auto first = std::find_if(q_.begin(), q_.end(), has_queries);
    if (first == q_.end()) return;
    const auto last = std::find_if(q_.rbegin(), q_.rend(), has_queries);
    const auto band =
        static_cast<std::size_t>(mode_ == 7 ? q_.rend() - last - 1 : first - q_.begin());
    corner(mode_ == 7 && q_.back() == 0, "13.last_empty");
    corner(mode_ == 8 && q_.front() == 0, "13.first_empty");
    corner(q_.size() == 1, "13.single");
    const bool limit = shape_.mask.next_tokens == q_[band] - kv_[band];
    corner(limit, mode_ == 7 ? "13.last_limit" : "13.first_limit");
}

/// A row whose keys are all hidden by the contents of the mask.
bool Corners::hides_a_row() const {
    FlashParts with = parts_;
    fill_flash_mask(spec_, with);
    const auto& values = with.shape.mask.values;
    const auto columns = static_cast<std::ptrdiff_t>(shape_.mask.shape.back());
    if (columns == 0) return false;
    for (auto row = values.begin(); row != values.end(); row += columns)
        if (std::find(row, row + columns, 0) == row + columns) return true;
    return false;
}

void Corners::name_read_masks() {
    if (longest(q_) == 0 || longest(kv_) == 0 || spec_.recipe == Recipe::zeros) return;
    const bool several = q_.size() > 1;
    corner(mode_ == 1 && hides_a_row(), "7");
    corner(n_[kFaMask] == 1, "32.bool");
    corner(n_[kFaMask] == 2, "32.any_byte");
    switch (static_cast<FlashMaskForm>(n_[kFaMaskForm])) {
        case FlashMaskForm::single:
            return corner(true, "33.single");
        case FlashMaskForm::one:
            return corner(true, "33.one");
        case FlashMaskForm::batch:
            return corner(several, "33.batch");
        case FlashMaskForm::head:
            return corner(several && shape_.query_heads > 1, "33.head");
        case FlashMaskForm::packed:
            return corner(several, "33.packed");
    }
}

void Corners::name_sequences() {
    const std::size_t count = q_.size();
    bool inner = false, differ = false;
    Int before = 0;
    for (std::size_t b = 0; b < count; ++b) {
        inner = inner || (b > 0 && b + 1 < count && q_[b] == 0 && kv_[b] == 0);
        differ = differ || (before != 0 && q_[b] != 0 && q_[b] != before);
        if (q_[b] != 0) before = q_[b];
    }
    const bool leading = count > 1 && q_.front() == 0, trailing = count > 1 && q_.back() == 0;
    const bool all_empty = total(q_) == 0 && n_[kFaBeyondQ] > 0;
    corner(inner, "14.inner_empty");
    corner(leading, "14.leading_empty");
    corner(trailing, "14.trailing_empty");
    corner(trailing && masked_ && mode_ == 6, "14.trailing_empty_prefix");
    corner(trailing && pse_of(spec_) == FlashPse::batch_slopes, "14.trailing_empty_slopes");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 0; }), "14.no_keys");
    corner(all_empty, "14.all_empty");
    corner(n_[kFaBeyondQ] > 0 && !all_empty, "15.queries");
    corner(n_[kFaBeyondKv] > 0, "15.keys");
    const bool orders_differ = differ && shape_.query_heads > 1;
    corner(orders_differ && !parts_.same_as_input, "16");
    corner(orders_differ && parts_.same_as_input, "17");
}

void Corners::name_extents() {
    const Int group = n_[kFaGroup], dim = n_[kFaDim], value_dim = n_[kFaValueDim];
    corner(group == 2, "18.two");
    corner(group == 3, "18.three");
    corner(group > 1 && n_[kFaKvHeads] == 1, "18.one_kv_head");
    corner(value_dim < dim && value_dim > 1, "19.value_smaller");
    corner(value_dim == 1 && dim > 1, "19.value_one");
    corner(dim == 1, "19.dim_one");
    corner(dim > 1 && dim % 16 != 0, "19.dim_odd");
    corner(dim == 512, "19.dim_largest");
    corner(!tnd_ && q_[0] == 0, "34.no_queries");
    corner(!tnd_ && q_[0] > 0 && kv_[0] == 0, "34.no_keys");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 1; }), "36.one_key");
    corner(some([](Int q, Int kv) { return q == 1 && kv > 0; }), "36.one_query");
    corner(some([](Int q, Int kv) { return q > 0 && kv > 16 && kv % 8 != 0; }), "36.odd_keys");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 1024; }), "36.keys_1024");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 1025; }), "36.keys_1025");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 2049; }), "36.keys_2049");
    corner(some([](Int q, Int kv) { return q > 0 && kv > 4096; }), "36.keys_above_4096");
}

void Corners::name_dropout() {
    const auto drop = static_cast<FlashDrop>(n_[kFaDrop]);
    corner(drop == FlashDrop::random && n_[kFaKeep] == 0, "24");
    corner(drop == FlashDrop::drop_all, "26");
    corner(n_[kFaKeep] >= static_cast<Int>(FlashKeep::hundredth), "24.rarely_kept");
    if (drop != FlashDrop::random) return;
    Int bits = 0;
    bool crosses = false;
    for (std::size_t b = 0; b < q_.size(); ++b) {
        crosses = crosses || (bits % 8 != 0 && q_[b] * kv_[b] > 0);
        bits += shape_.query_heads * q_[b] * kv_[b];
    }
    const bool odd = some([](Int q, Int kv) { return q > 1 && kv % 2 != 0; });
    corner(bits % 8 != 0 && odd, "25.rows");
    corner(crosses, tnd_ ? "25.sequences" : "25.batches");
}

void Corners::name_biases() {
    const FlashPse pse = pse_of(spec_);
    if (pse == FlashPse::absent) return;
    const bool behind = n_[kFaPseType] == 0, before = n_[kFaPseType] == 1, several = q_.size() > 1;
    const double scale = parts_.scale;
    corner(behind && scale != 1, "27.behind_scale");
    corner(before && scale != 1 && scale != 0, "27.before_scale");
    corner(before && scale == 1, "27.scale_one");
    corner(before && scale == 0, "27.scale_zero");
    corner(behind && pse == FlashPse::plain, "37");
    corner(pse == FlashPse::one_batch && several, "28.one_batch");
    corner(pse == FlashPse::one_row && several && longest(q_) > 1, "28.one_row");
    corner(pse == FlashPse::one_batch_row && several && longest(q_) > 1, "28.one_batch_row");
    corner(pse == FlashPse::plain && q_[0] == 1024 && kv_[0] == 1024, "29.plain_1024");
    corner(is_compressed(spec_) && longest(q_) > 1024, "29.compressed");
    corner(is_compressed(spec_) && longest(q_) > 2048, "29.rows_again");
    corner(is_compressed(spec_) && tnd_ && several, "29.sequences");
    corner(hides_by_bias(spec_, parts_), "27.hidden");
    if (!has_slopes(spec_)) return;
    corner(pse == FlashPse::slopes, "30.slopes");
    corner(pse == FlashPse::batch_slopes && several, "30.batch_slopes");
    const auto start = static_cast<FlashStart>(n_[kFaStart]);
    corner(start == FlashStart::both, "30.start");
    corner(start == FlashStart::both && parts_.query_start->front() > 1024, "30.late_start");
    corner(start == FlashStart::query || start == FlashStart::key, "30.one_start");
    corner(q_[0] != kv_[0] && kv_[0] > 0, "30.shifted");
    FlashParts with = parts_;
    fill_flash_bias(spec_, with);
    const auto& slopes = with.shape.bias.values;
    corner(std::any_of(slopes.begin(), slopes.end(), [](double v) { return v < 0; }),
           "30.negative");
}

void Corners::name_data() {
    corner(n_[kFaLogits] >= 7 && parts_.scale != 0, "35.far");
    corner(n_[kFaLogits] == 1 && longest(kv_) > 1, "35.equal");
    corner(parts_.scale < 0, "35.negative_scale");
    corner(n_[kFaRope] > 0, "39");
    for (const char* name : {"query", "key", "value", parts_.gradient ? "dq" : "attention_out"})
        corner(spec_.layouts[static_cast<std::size_t>(spec_.schema->tensor(name))] != Layout::dense,
               fmt::format("40.{}", name).c_str());
    const bool halves =
        some([](Int q, Int kv) { return q > 0 && kv > 1 && kv <= 64 && (kv & (kv - 1)) == 0; });
    corner(!parts_.gradient && halves && n_[kFaLogits] == 1 && spec_.recipe == Recipe::signs &&
               parts_.dtype != ref::Dtype::fp32,
           "43");
    if (!parts_.gradient) return;
    corner(n_[kFaStats] != 0, "38");
    corner(n_[kFaOut] != 0 && parts_.scale != 1 && parts_.scale != 0, "44");
}

}  // namespace

void name_flash_corners(const Spec& spec, std::vector<std::string>& out) {
    Corners(spec, out).name();
}

}  // namespace attncheck::properties
