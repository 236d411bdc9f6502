// From a case of compress attention to its call, with the edits that make arguments illegal.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

/// The value behind "KEY=" of an edit, -1 when there is none.
std::int64_t value_in(const std::string& edit) {
    std::int64_t value = -1;
    const auto equals = edit.find('=');
    if (equals != std::string::npos)
        std::from_chars(edit.data() + equals + 1, edit.data() + edit.size(), value);
    return value;
}

/// Edits that change the problem before its call is made.
bool comes_before_call(const std::string& edit) {
    return edit.starts_with("all.") || edit.starts_with("first.cmp=") || edit == "heads.uneven";
}

/// "all.KEY=VALUE": a field at a value that may be illegal, in every shape and argument that
/// follows from it; "first.cmp=LENGTH": the first sequence's number of keys, likewise.
void apply_everywhere(const std::string& edit, Spec& spec, std::optional<ref::Dtype>& dtype) {
    constexpr std::int64_t kLargest = 1024;  // buffers are really laid out
    const std::int64_t value = value_in(edit);
    if (edit == "heads.uneven") return;
    if (edit.starts_with("first.cmp=") && value >= 0 && value <= kLargest) {
        spec.lists[1][0] = value;
        return;
    }
    const std::string key = edit.starts_with("all.") ? edit.substr(4, edit.find('=') - 4) : "";
    if (key == "dims" && value >= 0 && value <= kLargest) {
        spec.numbers[kDim] = spec.numbers[kValueDim] = value;
        return;
    }
    const int field = spec.schema->number(key);
    if (field < 0 || field > kCount || value < 0 || value > kLargest)
        throw std::invalid_argument(
            fmt::format("case: break entry '{}', expected first.cmp, all.dtype, all.kv_heads, "
                        "all.group, all.dim, all.dims, all.value_dim, all.block, all.stride, "
                        "all.select or all.count and a value in 0..{}",
                        edit, kLargest));
    if (field == kDtype) {
        if (value != ATTNCHECK_FLOAT32 && value != ATTNCHECK_FLOAT16 && value != ATTNCHECK_BFLOAT16)
            throw std::invalid_argument(
                fmt::format("case: break entry '{}' knows the dtypes 0, 1 and 27", edit));
        dtype = static_cast<ref::Dtype>(value);
    } else {
        spec.numbers[static_cast<std::size_t>(field)] = value;
    }
}

/// "rows.q=VALUE", "rows.cmp=VALUE": T1 or C in the shape of every tensor that has it, without
/// the memory: only a limit on the number of rows can object.
void claim_rows(const std::string& edit, Call& call) {
    const bool of_keys = edit.starts_with("rows.cmp=");
    const std::int64_t rows = value_in(edit);
    if (rows < 0 || (!of_keys && !edit.starts_with("rows.q=")))
        throw std::invalid_argument(
            fmt::format("case: break entry '{}', expected rows.q= or rows.cmp= and a count", edit));
    for (Tensor& tensor : call.tensors) {
        const bool key = tensor.name == "key" || tensor.name == "value";
        if (key == of_keys && !tensor.name.ends_with("mask") && !tensor.shape.empty())
            tensor.shape[0] = rows;
    }
}

/// "long.cmp=ROWS": rows.cmp, all of them in the last sequence, with its selection blocks.
void claim_sequence(const std::string& edit, Call& call) {
    const std::int64_t rows = value_in(edit), stride = call.number("compress_stride"),
                       keys = stride > 0 ? call.number("select_block_size") / stride : 0;
    claim_rows("rows." + edit.substr(5), call);
    auto &cmp = call.arrays[1].values, &blocks = call.arrays[2].values;
    if (cmp.empty() || blocks.empty() || keys < 1 || rows < 0 || rows > INT64_MAX - keys) return;
    const std::int64_t before = cmp.size() > 1 ? cmp[cmp.size() - 2] : 0,
                       blocks_before = blocks.size() > 1 ? blocks[blocks.size() - 2] : 0;
    cmp.back() = rows;
    blocks.back() = blocks_before + (rows - before + keys - 1) / keys;
}

/// All elements zero: for shapes that no reference is defined on.
Parts zero_parts(const Spec& spec, std::int64_t more_heads) {
    Parts parts = parts_without_values(spec);
    parts.shape.query_heads += more_heads;
    const ref::CompressAttentionShape& s = parts.shape;
    const auto zeros = [](std::int64_t rows, std::int64_t heads, std::int64_t dim) {
        return std::vector<std::uint32_t>(static_cast<std::size_t>(rows * heads * dim));
    };
    parts.query = zeros(s.total_queries, s.query_heads, s.head_dim);
    parts.key = zeros(s.total_keys, s.kv_heads, s.head_dim);
    parts.value = zeros(s.total_keys, s.kv_heads, s.value_dim);
    for (Parts::Mask* mask : {&parts.mask, &parts.topk_mask})
        if (mask->present) mask->bits = zeros(mask->shape[0], mask->shape[1], 1);
    return parts;
}

}  // namespace

Call build_call(const Spec& spec) {
    Spec everywhere = spec;
    std::optional<ref::Dtype> dtype;
    bool changed = false;
    std::int64_t more_heads = 0;
    for (const Edit& of : spec.edits) {
        const std::string edit = print(of);
        if (!comes_before_call(edit)) continue;
        changed = true;
        if (edit == "heads.uneven")  // one query head more than the groups have
            more_heads = 1;
        else
            apply_everywhere(edit, everywhere, dtype);
    }
    if (changed) require_edits_fit(shapes_of(*spec.schema, parts_without_values(everywhere)));
    Call call = make_call(changed ? zero_parts(everywhere, more_heads) : parts_of(spec));
    if (dtype)
        for (Tensor& tensor : call.tensors)
            if (tensor.name == "query" || tensor.name == "key" || tensor.name == "value" ||
                tensor.name == "attention_out") {
                std::fill(tensor.bits.begin(), tensor.bits.end(), 0);
                tensor = make_tensor(tensor.name, tensor.output, *dtype, tensor.buffer_shape,
                                     std::move(tensor.bits));
            }
    for (std::size_t i = 0; i < call.tensors.size(); ++i)
        call.tensors[i].strides = strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
    for (const Edit& of : spec.edits) {
        const std::string edit = print(of);
        if (comes_before_call(edit)) continue;
        if (edit.starts_with("long.cmp="))
            claim_sequence(edit, call);
        else if (edit.starts_with("rows."))
            claim_rows(edit, call);
        else
            apply_edit(call, edit);
    }
    return call;
}

}  // namespace attncheck::properties::compress_attention
