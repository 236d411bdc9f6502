// The rulings on calls of FlashAttentionScore and its gradient: what every call has.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "active_mutant.h"
#include "constraints.h"
#include "flash_arguments.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kMaxBatches = std::int64_t{2} << 20, kMaxRows = std::int64_t{1} << 20;

FlashArguments gathered(const attncheck_flash_attention_score_args& args) {
    FlashArguments a{};
    const auto& [query, query_rope, key, key_rope, value, pse, drop_mask, padding_mask, mask,
                 prefix, query_ends, key_ends, query_start, key_start, scale, keep_prob, pre, next,
                 head_num, layout, inert, mode, pse_type, statistics_layout, row_max,
                 row_sum, output] = args;
    a.query = query, a.query_rope = query_rope, a.key = key, a.key_rope = key_rope, a.value = value;
    a.pse = pse, a.drop_mask = drop_mask, a.padding_mask = padding_mask, a.mask = mask;
    a.prefix = prefix, a.query_ends = query_ends, a.key_ends = key_ends;
    a.query_start = query_start, a.key_start = key_start;
    a.scale = scale, a.keep_prob = keep_prob, a.pre_tokens = pre, a.next_tokens = next;
    a.head_num = head_num, a.layout = layout, a.inert = inert;
    a.sparse_mode = mode, a.pse_type = pse_type, a.statistics_layout = statistics_layout;
    a.row_max = row_max, a.row_sum = row_sum, a.output = output;
    return a;
}

FlashArguments gathered(const attncheck_flash_attention_score_grad_args& args) {
    FlashArguments a{};
    const auto& [query, query_rope, key, key_rope, value, output_grad, pse, drop_mask, padding_mask,
                 mask, row_max, row_sum, output, prefix, query_ends, key_ends, query_start,
                 key_start, scale, keep_prob, pre, next, head_num, layout, inert, mode,
                 pse_type, statistics_layout, dq, dq_rope, dk, dk_rope, dv] = args;
    a.is_gradient = true;
    a.query = query, a.query_rope = query_rope, a.key = key, a.key_rope = key_rope, a.value = value;
    a.output_grad = output_grad;
    a.pse = pse, a.drop_mask = drop_mask, a.padding_mask = padding_mask, a.mask = mask;
    a.prefix = prefix, a.query_ends = query_ends, a.key_ends = key_ends;
    a.query_start = query_start, a.key_start = key_start;
    a.scale = scale, a.keep_prob = keep_prob, a.pre_tokens = pre, a.next_tokens = next;
    a.head_num = head_num, a.layout = layout, a.inert = inert;
    a.sparse_mode = mode, a.pse_type = pse_type, a.statistics_layout = statistics_layout;
    a.row_max = row_max, a.row_sum = row_sum, a.output = output;
    a.dq = dq, a.dq_rope = dq_rope, a.dk = dk, a.dk_rope = dk_rope, a.dv = dv;
    return a;
}

bool in(std::int64_t value, std::int64_t least, std::int64_t most) {
    return least <= value && value <= most;
}

bool is_float_type(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT16 || dtype == ATTNCHECK_BFLOAT16 || dtype == ATTNCHECK_FLOAT32;
}

void rule_on_absence(const FlashArguments& a, FlashRuling& ruling) {
    if (on<"FA-VAL-x01">() && a.query.data != nullptr && !is_float_type(a.query.dtype))
        ruling.refuse(true);
    for (const attncheck_tensor* tensor : {&a.query, &a.key, &a.value})
        ruling.require_present(tensor->data != nullptr);
    if (a.is_gradient) ruling.require_present(a.output_grad.data != nullptr);
    const bool has_statistics = a.row_max.data != nullptr && a.row_sum.data != nullptr;
    ruling.require_present(has_statistics, on<"FA-VAL-x02">() && a.is_gradient);
    ruling.require_present(a.output.data != nullptr, on<"FA-VAL-x03">() && a.is_gradient);
    ruling.require_present(a.layout != nullptr);
    ruling.require_present(a.statistics_layout != nullptr, on<"FA-VAL-x04">());
    if (!a.is_gradient) return;
    for (const attncheck_tensor* tensor : {&a.dq, &a.dk, &a.dv})
        ruling.require_present(tensor->data != nullptr);
}

void rule_on_layouts(const FlashArguments& a, FlashRuling& ruling) {
    const std::string_view layout = a.layout, statistics = a.statistics_layout;
    const bool is_known = layout == "BSH" || layout == "SBH" || layout == "BSND" ||
                          layout == "BNSD" || layout == "TND";
    ruling.require(is_known, on<"FA-VAL-x05">() && (layout == "bsh" || layout == "tnd"));
    ruling.refuse(on<"FA-VAL-x06">() && layout == "SBH");
    const bool is_named = statistics == "same_as_input";
    ruling.require(statistics.empty() || is_named, on<"FA-VAL-x07">());
    ruling.require(!is_named || layout == "TND", on<"FA-VAL-x08">());
    ruling.refuse(on<"FA-VAL-x09">() && is_named);
}

void rule_on_ranks(const FlashArguments& a, FlashRuling& ruling) {
    const FlashLayout kind = a.layout_kind();
    const int rank = kind == FlashLayout::bsnd || kind == FlashLayout::bnsd ? 4 : 3;
    std::vector<const attncheck_tensor*> operands{&a.query, &a.key, &a.value, &a.output};
    if (a.is_gradient) operands.insert(operands.end(), {&a.output_grad, &a.dq, &a.dk, &a.dv});
    for (const attncheck_tensor* tensor : operands) ruling.require(tensor->rank == rank);
    const int statistics_rank = a.is_tnd() ? 3 : 4;
    ruling.require(a.row_max.rank == statistics_rank && a.row_sum.rank == statistics_rank);
}

bool fp8_is_legal(const FlashArguments& a) {
    const char* profile = std::getenv("ATTNCHECK_PROFILE");
    return a.is_gradient && profile != nullptr && std::string_view(profile) == "ascend950";
}

void rule_on_types(const FlashArguments& a, FlashRuling& ruling) {
    const std::int32_t type = a.query.dtype, wide = a.wide_dtype();
    ruling.require(is_float_type(type) || (a.is_fp8() && fp8_is_legal(a)));
    ruling.refuse(on<"FA-VAL-x10">() && type == ATTNCHECK_FLOAT32);
    ruling.require(a.key.dtype == type);
    ruling.require(a.value.dtype == type, on<"VAL-32">());
    ruling.require(a.row_max.dtype == ATTNCHECK_FLOAT32 && a.row_sum.dtype == ATTNCHECK_FLOAT32,
                   on<"FA-VAL-x11">());
    ruling.require(a.output.dtype == wide && is_float_type(wide));
    if (!a.is_gradient) return;
    ruling.require(a.output_grad.dtype == type, on<"FA-VAL-x12">());
    for (const attncheck_tensor* tensor : {&a.dq, &a.dk, &a.dv})
        ruling.require(tensor->dtype == wide);
}

void rule_on_attributes(const FlashArguments& a, FlashRuling& ruling) {
    const float keep_prob = static_cast<float>(a.keep_prob);
    ruling.require(keep_prob > 0.0f && keep_prob <= 1.0f,
                   (on<"FA-VAL-x13">() && keep_prob == 0.0f) ||
                       (on<"FA-VAL-x14">() && keep_prob > 1.0f) ||
                       (on<"FA-VAL-x15">() && std::isnan(a.keep_prob)));
    ruling.refuse(on<"FA-VAL-x16">() && keep_prob == 1.0f && a.keep_prob != 1.0);
    const std::int64_t low_bits = static_cast<std::uint32_t>(a.head_num);
    ruling.require(in(a.head_num, 1, 256), (on<"VAL-17">() && in(low_bits, 1, 256)) ||
                                               (on<"FA-VAL-x17">() && a.head_num > 256));
    ruling.require(a.sparse_mode >= 0, on<"VAL-14">());
    ruling.require(a.sparse_mode <= 8, on<"FA-VAL-x18">());
    ruling.require(a.is_tnd() || a.sparse_mode < 7, on<"FA-VAL-x19">() && a.mask.data == nullptr);
    ruling.require(!a.is_tnd() || a.sparse_mode != 5, on<"FA-VAL-x20">());
    ruling.require(in(a.pse_type, 0, 3), on<"FA-VAL-x21">());
    ruling.refuse(on<"FA-VAL-x22">() && !std::isfinite(a.scale));
    ruling.refuse(on<"FA-VAL-x23">() && a.inert > 4);
}

/// Hidden sizes of BSH and SBH, and the extents of heads and channels of the other layouts.
void rule_on_heads(const FlashArguments& a, FlashExtents& x, FlashRuling& ruling) {
    const bool is_merged =
        a.layout_kind() == FlashLayout::bsh || a.layout_kind() == FlashLayout::sbh;
    x.num_query_heads = a.head_num;
    if (is_merged) {
        const std::int64_t h1 = a.query.shape[2], h2 = a.key.shape[2], hv = a.value.shape[2];
        ruling.require(h1 > 0 && h1 % a.head_num == 0, on<"FA-VAL-x24">() && h1 > a.head_num);
        x.head_dim = h1 > 0 ? h1 / a.head_num : 0;
        if (x.head_dim < 1) return ruling.refuse(true);
        if (on<"VAL-16">() && h2 >= 0 && h2 < x.head_dim) std::abort();  // divides by 0 heads
        const std::int64_t whole = h2 / x.head_dim;
        ruling.require(h2 > 0 && h2 % x.head_dim == 0,
                       on<"VAL-15">() && whole > 0 && h2 / whole == x.head_dim);
        x.num_kv_heads = h2 > 0 ? whole : 0;
        if (x.num_kv_heads < 1) return ruling.refuse(true);
        ruling.require(hv > 0 && hv % x.num_kv_heads == 0, on<"FA-VAL-x25">() && hv > 0);
        x.value_dim = hv > 0 ? hv / x.num_kv_heads : 0;
    } else {
        const int head = a.layout_kind() == FlashLayout::bsnd   ? 2
                         : a.layout_kind() == FlashLayout::bnsd ? 1
                                                                : 1;
        const int channel = a.query.rank - 1;
        ruling.require(a.query.shape[head] == a.head_num, on<"FA-VAL-x26">());
        x.num_kv_heads = a.key.shape[head];
        x.head_dim = a.query.shape[channel];
        ruling.require(x.num_kv_heads >= 1);
        ruling.require(a.key.shape[channel] == x.head_dim, on<"FA-VAL-x27">());
        ruling.require(a.value.shape[head] == x.num_kv_heads, on<"FA-VAL-x28">());
        x.value_dim = a.value.shape[channel];
    }
    ruling.require(in(x.head_dim, 1, 512),
                   on<"FA-VAL-x29">() && x.head_dim > 512 && x.head_dim <= 768);
    ruling.refuse(on<"FA-VAL-x30">() && x.head_dim % 8 != 0);
    ruling.require(in(x.value_dim, 1, x.head_dim), on<"FA-VAL-x31">() && x.value_dim > 0);
    ruling.refuse(on<"FA-VAL-x32">() && x.value_dim < x.head_dim);
    if (x.num_kv_heads >= 1)
        ruling.require(x.num_query_heads % x.num_kv_heads == 0, on<"FA-VAL-x33">());
}

/// Batches and rows of query, key and value.
void rule_on_rows(const FlashArguments& a, FlashExtents& x, FlashRuling& ruling) {
    int batch = 0, row = 1;
    if (a.layout_kind() == FlashLayout::sbh) batch = 1, row = 0;
    if (a.layout_kind() == FlashLayout::bnsd) row = 2;
    if (a.is_tnd()) row = 0;
    x.query_rows = a.query.shape[row];
    x.key_rows = a.key.shape[row];
    ruling.require(in(x.query_rows, 0, kMaxRows), on<"FA-VAL-x34">() && x.query_rows > kMaxRows);
    ruling.require(in(x.key_rows, 0, kMaxRows), on<"FA-VAL-x34">() && x.key_rows > kMaxRows);
    ruling.refuse(on<"FA-VAL-x35">() && x.key_rows == 0);
    ruling.refuse(on<"FA-VAL-x36">() && x.query_rows == 0);
    ruling.require(a.value.shape[row] == x.key_rows, on<"FA-VAL-x37">());
    if (a.is_tnd()) return;
    x.batches = a.query.shape[batch];
    ruling.require(in(x.batches, 0, kMaxBatches));
    ruling.refuse(on<"FA-VAL-x38">() && x.batches == 0);
    if (on<"VAL-25">() && a.layout_kind() == FlashLayout::sbh) {
        ruling.require(a.query.shape[0] == a.key.shape[0]);
        if (a.key.shape[1] != x.batches) ruling.is_undefined = true;
    } else {
        ruling.require(a.key.shape[batch] == x.batches);
    }
    ruling.require(a.value.shape[batch] == x.batches, on<"FA-VAL-x39">());
    const std::size_t count =
        static_cast<std::size_t>(in(x.batches, 0, kMaxBatches) ? x.batches : 0);
    x.query_lens.assign(count, x.query_rows);
    x.kv_lens.assign(count, x.key_rows);
    x.longest_query = x.query_rows;
    x.longest_kv = x.key_rows;
}

/// The shape of `tensor` with the last extent that belongs to Dv.
std::vector<std::int64_t> value_shape(const FlashArguments& a, const FlashExtents& x) {
    std::vector<std::int64_t> shape(a.query.shape, a.query.shape + a.query.rank);
    const bool is_merged =
        a.layout_kind() == FlashLayout::bsh || a.layout_kind() == FlashLayout::sbh;
    shape.back() = is_merged ? x.num_query_heads * x.value_dim : x.value_dim;
    return shape;
}

void rule_on_statistics(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling,
                        bool overlooked) {
    std::vector<std::int64_t> shape{x.batches, x.num_query_heads, x.query_rows, 8};
    if (a.is_tnd()) shape = {x.query_rows, x.num_query_heads, 8};
    if (a.is_tnd() && on<"VAL-24">() && a.is_gradient) {
        const std::vector<std::int64_t> swapped{shape[1], shape[0], 8};
        ruling.require(has_flash_extents(a.row_max, swapped));
        ruling.require(has_flash_extents(a.row_sum, swapped));
        if (x.query_rows != x.num_query_heads) ruling.is_undefined = true;
        return;
    }
    ruling.require(has_flash_extents(a.row_max, shape), overlooked);
    ruling.require(has_flash_extents(a.row_sum, shape), overlooked || on<"FA-VAL-x40">());
}

void rule_on_given(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (!a.is_gradient || ruling.is_settled()) return;
    ruling.require(has_flash_extents(a.output_grad, value_shape(a, x)), on<"FA-VAL-x41">());
    rule_on_statistics(a, x, ruling, false);
    ruling.require(has_flash_extents(a.output, value_shape(a, x)), on<"FA-VAL-x42">());
}

/// One length array of TND. Fills the lengths per sequence.
void rule_on_lengths(const attncheck_int_array& ends, std::int64_t rows, FlashRuling& ruling,
                     std::vector<std::int64_t>& lens, std::int64_t& longest) {
    ruling.require_present(ends.values != nullptr);
    if (ruling.is_settled()) return;
    ruling.require(ends.size >= 1, on<"FA-VAL-x43">() && ends.size == 0);
    ruling.require(ends.size <= kMaxBatches);
    ruling.refuse(on<"FA-VAL-x44">() && ends.size > 2048);
    if (ruling.is_settled()) return;
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < ends.size; ++b) {
        const std::int64_t end = ends.values[b];
        ruling.require(end >= previous, b == 0 ? on<"FA-VAL-35">() : on<"FA-VAL-07">() && end >= 0);
        ruling.refuse(on<"VAL-26">() && end == previous);
        if (ruling.is_settled()) return;
        lens.push_back(end - previous);
        longest = std::max(longest, end - previous);
        previous = end;
    }
    ruling.require(previous <= rows, on<"FA-VAL-x45">());
    ruling.refuse(on<"FA-VAL-x46">() && previous < rows);
}

void rule_on_sequences(const FlashArguments& a, FlashExtents& x, FlashRuling& ruling) {
    if (!a.is_tnd() || ruling.is_settled()) return;
    rule_on_lengths(a.query_ends, x.query_rows, ruling, x.query_lens, x.longest_query);
    if (ruling.is_settled()) return;
    ruling.require_present(a.key_ends.values != nullptr);
    ruling.require(a.key_ends.size == a.query_ends.size, on<"FA-VAL-x47">());
    rule_on_lengths(a.key_ends, x.key_rows, ruling, x.kv_lens, x.longest_kv);
    x.batches = a.query_ends.size;
}

void rule_on_outputs(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (ruling.is_settled()) return;
    const bool overlooked = on<"FA-VAL-x48">();
    const auto same = [](const attncheck_tensor& one, const attncheck_tensor& other) {
        return same_extents(one, other);
    };
    if (!a.is_gradient) {
        rule_on_statistics(a, x, ruling, overlooked);
        ruling.require(has_flash_extents(a.output, value_shape(a, x)), overlooked);
        return;
    }
    ruling.require(same(a.dq, a.query), overlooked);
    ruling.require(same(a.dk, a.key), overlooked);
    ruling.require(same(a.dv, a.value), overlooked);
    if (!a.has_rope()) return;
    ruling.require(same(a.dq_rope, a.query_rope) && a.dq_rope.dtype == a.query_rope.dtype);
    ruling.require(same(a.dk_rope, a.key_rope) && a.dk_rope.dtype == a.key_rope.dtype);
}

void fill_views(const FlashArguments& a, FlashProblem& p) {
    const FlashLayout kind = a.layout_kind();
    const std::int64_t n1 = p.num_query_heads, n2 = p.num_kv_heads;
    p.query = {a.query, kind, n1}, p.key = {a.key, kind, n2}, p.value = {a.value, kind, n2};
    p.output = {a.output, kind, n1};
    p.row_max.tensor = a.row_max, p.row_sum.tensor = a.row_sum;
    if (a.has_rope()) {
        p.rope_dim = a.query_rope.shape[2];
        p.query_rope = {a.query_rope, kind, n1}, p.key_rope = {a.key_rope, kind, n2};
    }
    if (!a.is_gradient) return;
    p.output_grad = {a.output_grad, kind, n1};
    p.dq = {a.dq, kind, n1}, p.dk = {a.dk, kind, n2}, p.dv = {a.dv, kind, n2};
    if (a.has_rope()) p.dq_rope = {a.dq_rope, kind, n1}, p.dk_rope = {a.dk_rope, kind, n2};
}

void fill(const FlashArguments& a, const FlashExtents& x, FlashProblem& p) {
    p.is_gradient = a.is_gradient, p.layout = a.layout_kind(), p.dtype = a.query.dtype;
    p.batches = x.batches, p.query_rows = x.query_rows, p.key_rows = x.key_rows;
    p.num_query_heads = x.num_query_heads, p.num_kv_heads = x.num_kv_heads;
    p.head_dim = x.head_dim, p.value_dim = x.value_dim;
    p.query_lens = x.query_lens, p.kv_lens = x.kv_lens;
    p.scale = a.scale, p.keep_prob = a.keep_prob;
    p.pre_tokens = a.pre_tokens, p.next_tokens = a.next_tokens;
    p.sparse_mode = a.sparse_mode, p.pse_type = a.pse_type, p.inert = a.inert;
    p.statistics_as_input = *a.statistics_layout != '\0';
    const bool has_query_start = a.query_start.values != nullptr && a.query_start.size >= 1;
    const bool has_key_start = a.key_start.values != nullptr && a.key_start.size >= 1;
    if (has_query_start && has_key_start) {
        p.query_start = a.query_start.values[0];
        p.key_start = a.key_start.values[0];
    } else if (has_query_start || has_key_start) {
        p.one_start_given = true;
        const std::int64_t start = has_key_start ? a.key_start.values[0] : a.query_start.values[0];
        p.lone_start = std::clamp<std::int64_t>(start, -kMaxRows, kMaxRows);
    }
    const bool uses_prefix = a.has_mask() && (a.sparse_mode == 5 || a.sparse_mode == 6);
    if (uses_prefix && a.prefix.values != nullptr)
        p.prefix.assign(a.prefix.values, a.prefix.values + a.prefix.size);
    p.has_mask = a.has_mask();
    if (p.has_mask) p.mask = Grid(a.mask);
    if (p.pse_form == PseForm::none) return fill_views(a, p);
    p.pse.tensor = a.pse;
    if (a.pse.rank == 4) p.pse = Grid(a.pse);
    fill_views(a, p);
}

int rule(const FlashArguments& a, FlashProblem& problem) {
    if (on<"FA-VAL-x49">()) touch_early(a.is_gradient ? a.dq : a.output);
    if (on<"FA-VAL-x50">()) allocate_early(a.query);
    FlashRuling ruling;
    rule_on_absence(a, ruling);
    if (!ruling.is_settled()) rule_on_layouts(a, ruling);
    if (!ruling.is_settled()) rule_on_ranks(a, ruling);
    if (!ruling.is_settled()) rule_on_types(a, ruling);
    if (!ruling.is_settled()) rule_on_attributes(a, ruling);
    FlashExtents x;
    if (!ruling.is_settled()) rule_on_heads(a, x, ruling);
    if (!ruling.is_settled()) rule_on_rows(a, x, ruling);
    rule_on_given(a, x, ruling);
    rule_on_sequences(a, x, ruling);
    PseForm form = PseForm::none;
    bool is_total = false;
    if (!ruling.is_settled()) rule_on_ropes(a, x, ruling);
    if (!ruling.is_settled()) form = rule_on_pse(a, x, ruling);
    if (!ruling.is_settled()) rule_on_drop_mask(a, x, ruling);
    if (!ruling.is_settled()) ruling.require(a.padding_mask.data == nullptr, on<"FA-VAL-x51">());
    if (!ruling.is_settled()) is_total = rule_on_mask(a, x, ruling);
    if (!ruling.is_settled()) rule_on_tokens(a, x, ruling);
    if (!ruling.is_settled()) rule_on_pse_and_mask(a, x, form, ruling);
    rule_on_outputs(a, x, ruling);
    if (ruling.status != ATTNCHECK_OK) return ruling.status;
    problem.is_undefined = ruling.is_undefined;
    if (ruling.is_undefined) return ATTNCHECK_OK;
    problem.pse_form = form;
    problem.mask_is_total = is_total;
    problem.has_drop_mask = a.drop_mask.data != nullptr;
    problem.drop_mask = a.drop_mask;
    fill(a, x, problem);
    return ATTNCHECK_OK;
}

}  // namespace

FlashLayout FlashArguments::layout_kind() const {
    const std::string_view text = layout;
    if (text == "SBH") return FlashLayout::sbh;
    if (text == "BSND") return FlashLayout::bsnd;
    if (text == "BNSD") return FlashLayout::bnsd;
    return text == "TND" ? FlashLayout::tnd : FlashLayout::bsh;
}

bool has_flash_extents(const attncheck_tensor& tensor, const std::vector<std::int64_t>& extents) {
    return tensor.rank == static_cast<std::int32_t>(extents.size()) &&
           std::equal(extents.begin(), extents.end(), tensor.shape);
}

int accept(const attncheck_flash_attention_score_args* args, FlashProblem& problem) {
    return args == nullptr ? ATTNCHECK_ERR_NULLPTR : rule(gathered(*args), problem);
}

int accept(const attncheck_flash_attention_score_grad_args* args, FlashProblem& problem) {
    return args == nullptr ? ATTNCHECK_ERR_NULLPTR : rule(gathered(*args), problem);
}

}  // namespace attncheck::mutants
