#include "properties/operators/attention_decode/problem.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "properties/case/values.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

DecodeParts parts_without_values(const Spec& spec) {
    const Extents e = extents_of(spec);
    const Call call = outline_of(e);
    DecodeParts parts;
    parts.fields = spec.numbers;
    parts.dtype = parts.result = call.tensors.front().type();
    parts.scale = call.real("scale");
    parts.softcap = call.real("softcap");
    parts.gives_lse = call.tensor("lse").present;
    parts.cache_order = e["cache"];
    ref::DecodeShape& s = parts.shape;
    s.queries = longest(e.lengths("q"));
    s.kv_lengths = e.lengths("kv");
    s.kv_heads = e["kv_heads"];
    s.query_heads = e["query_heads"];
    s.head_dim = e["dim"];
    s.value_dim = e["value_dim"];
    s.pages = e["page_number"];
    s.page_size = e["page"];
    s.table_columns = e["table_columns"];
    s.window_left = e["window_left"];
    parts.block_table = decode_block_table(e);
    return parts;
}

InputRecipe recipe_of(const Spec& spec, const DecodeParts& parts) {
    InputRecipe how{
        .scale = static_cast<float>(parts.scale),
        .hash = indexed_hash(spec.seed),
        .leads = [seed = spec.seed](Int position, Int, Int length, Int) { return leads_in_steps(seed, position, length); },
        .shapes_rows_beyond = false};
    how.key_rows.emplace();
    for (std::size_t b = 0; b < parts.shape.kv_lengths.size(); ++b) {
        how.key_rows->emplace_back();
        for (Int j = 0; j < parts.shape.kv_lengths[b]; ++j)
            how.key_rows->back().push_back(parts.row_of(b, j));
    }
    return how;
}

double rest_value(RestValues kind, ref::Dtype dtype) {
    if (kind == RestValues::nan) return std::numeric_limits<double>::quiet_NaN();
    return kind == RestValues::huge ? ref::max_finite(dtype)
                                    : std::numeric_limits<double>::infinity();
}

/// Slots of no sequence get what the field `rest` says; elements that `set` names keep its value.
void fill_rest(const Spec& spec, DecodeParts& parts) {
    const auto kind = static_cast<RestValues>(spec.number("rest"));
    if (kind == RestValues::normal) return;
    fill_unowned(parts, ref::encode(parts.dtype, rest_value(kind, parts.dtype)));
    apply_overrides(spec, {{Role::key, &parts.key}, {Role::value, &parts.value}});
}

/// The extents of parts, whatever case they come from.
Extents extents_of_parts(const DecodeParts& parts) {
    const ref::DecodeShape& s = parts.shape;
    Spec spec = spec_with(parts.fields, decode_description());
    give_heads(s.dense(), spec);
    for (const auto& [field, value] : std::initializer_list<std::pair<const char*, Int>>{
             {"dtype", dtype_field(parts.dtype)}, {"page", s.page_size}, {"cache", parts.cache_order},
             {"lse", !parts.gives_lse}})
        spec.set(field, value);
    spec.set("sink", parts.sink.empty() ? 0 : std::max<Int>(spec.number("sink"), 1));
    spec.lists = {std::vector<Int>(s.kv_lengths.size(), s.queries), s.kv_lengths};
    Extents extents = extents_of(spec);
    extents.claim("page_number", s.pages);
    extents.claim("table_columns", s.table_columns);
    extents.claim("window_passed", s.window_left);
    return extents;
}

void own_values(const DecodeParts& parts, const Extents&, Role role, Tensor& tensor) {
    if (role == Role::list)
        tensor.bits.assign(parts.block_table.begin(), parts.block_table.end());
    else
        tensor.bits = parts.sink;
}

Call make_call(const DecodeParts& parts) {
    const Extents extents = extents_of_parts(parts);
    Call call = outline_of(extents);
    call.real("scale") = parts.scale;
    call.real("softcap") = parts.softcap;
    give_parts(parts, extents, call, own_values);
    return call;
}

class Decode : public PartsOperator<DecodeParts> {
public:
    Decode() : PartsOperator(decode_inputs, decode_problem, make_call) {}

    /// On the cache of all, or on new pages.
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random& random) const override {
        DecodeParts one = parts_of<DecodeParts>(problem);
        const ref::DecodeShape s = one.shape;
        one.query = slice(one.query, static_cast<Int>(b) * s.queries, s.queries,
                          s.query_heads * s.head_dim);
        one.block_table = slice(one.block_table, static_cast<Int>(b), 1, s.table_columns);
        one.shape.kv_lengths = {s.kv_lengths[b]};
        if (random.chance(50)) one = on_own_pages(one, s.page_size);
        return decode_problem(std::move(one));
    }
    AttentionProblem in_order(const AttentionProblem& problem) const override {
        return decode_problem(on_own_pages(parts_of<DecodeParts>(problem), 1));
    }
    /// Positions of its sequence that the row does not see.
    std::vector<char> masked_keys(const AttentionProblem& problem, Int t) const override {
        const auto& parts = extras_of<DecodeParts>(problem);
        const ref::DecodeShape& s = parts.shape;
        const auto b = static_cast<std::size_t>(t / s.queries);
        const ref::SeenPositions seen = ref::seen_positions(s, b, t % s.queries);
        std::vector<char> masked(static_cast<std::size_t>(problem.key_rows()));
        for (Int j = 0; j < s.kv_lengths[b]; ++j)
            if (j < seen.begin || j >= seen.end)
                std::fill_n(masked.begin() + parts.row_of(b, j) * s.kv_heads, s.kv_heads, 1);
        return masked;
    }

private:
    void move_extras(const DecodeParts& from, const HeadSources& sources,
                     DecodeParts& to) const override {
        if (!from.sink.empty())
            to.sink = gather_heads(from.sink, std::ssize(from.sink), sources.query, 1);
    }
};

}  // namespace

AttentionProblem decode_inputs(const Spec& spec) {
    DecodeParts parts = parts_without_values(spec);
    parts.sink = sinks_of(spec, parts.shape.query_heads);
    apply_overrides(spec, [&](std::size_t tensor) {
        return spec.schema->tensors[tensor].role == Role::sink ? &parts.sink : nullptr;
    });
    fill_values(spec, recipe_of(spec, parts), parts);
    fill_rest(spec, parts);
    if (spec.number("values") == static_cast<Int>(ValuePlace::in_keys))
        parts.value = columns_of(parts.key, parts.shape.head_dim, 0, parts.shape.value_dim);
    return decode_problem(std::move(parts));
}

AttentionProblem decode_problem(DecodeParts parts) {
    const ref::DecodeShape& s = parts.shape;
    AttentionProblem problem;
    problem.shape = s.dense();
    problem.query_lengths.assign(s.kv_lengths.size(), s.queries);
    problem.kv_lengths = s.kv_lengths;
    problem.columns = shared_columns(ref::decode_columns(
        s, std::vector<Int>(parts.block_table.begin(), parts.block_table.end())));
    problem.scale = static_cast<float>(parts.scale);
    problem.softcap = static_cast<float>(parts.softcap);
    problem.sink = ref::decode_all(ref::Dtype::fp32, parts.sink);
    const auto held = hold(problem, std::move(parts));
    problem.statistics =
        held->gives_lse && !withholds(problem, "lse") ? Statistics::lse : Statistics::none;
    problem.output_name = "out";
    problem.misreadings = decode_misreadings;
    add_attention_outputs(problem);
    place_rows(problem.forward_outputs, extents_of_parts(*held));
    return problem;
}

DecodeParts on_own_pages(const DecodeParts& parts, Int page_size, std::uint32_t rest) {
    DecodeParts own = parts;
    ref::DecodeShape& s = own.shape;
    s.page_size = page_size;
    s.pages = s.table_columns = 0;
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        s.table_columns = std::max(s.table_columns, s.pages_of(b));
    own.block_table.assign(s.kv_lengths.size() * static_cast<std::size_t>(s.table_columns), -1);
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        for (Int p = 0; p < s.pages_of(b); ++p)
            own.entry(b, p) = static_cast<std::int32_t>(s.pages++);
    const auto copy = [&](const Bits& from, Bits& to, Int width) {
        to.assign(static_cast<std::size_t>(s.pages * s.page_size * width), rest);
        for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
            for (Int j = 0; j < s.kv_lengths[b]; ++j)
                std::copy_n(from.begin() + parts.row_of(b, j) * width, width,
                            to.begin() + own.row_of(b, j) * width);
    };
    copy(parts.key, own.key, s.kv_heads * s.head_dim);
    copy(parts.value, own.value, s.kv_heads * s.value_dim);
    return own;
}

Call build_decode_call(const Spec& spec) {
    const auto parts = [](const Spec& of) { return parts_of<DecodeParts>(decode_inputs(of)); };
    return build_from_parts<DecodeParts>(spec, parts, own_values);
}

const AttentionOperator& decode_operator() {
    static const Decode kOperator;
    return kOperator;
}

}  // namespace attncheck::properties
