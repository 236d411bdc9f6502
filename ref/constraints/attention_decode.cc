#include "ref/constraints/attention_decode.h"

#include "ref/constraints/examination.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMostQueries = 16, kLargestPage = 256;
/// Required tensors on both sides of kv_length, and those that are given of the optional ones.
struct DecodeOperands {
    Operands inputs, outputs, optional;

    explicit DecodeOperands(const AttentionDecodeArguments& a)
        : inputs{{a.query, "query", "[B,Sq,Hq,D]"},
                 {a.key_cache, "key_cache", "[pages,page_size,Hkv,D]"},
                 {a.value_cache, "value_cache", "[pages,page_size,Hkv,Dv]"},
                 {a.block_table, "block_table", "[B,max_pages]", Stores::int32}},
          outputs{{a.out, "out", "[B,Sq,Hq,Dv]"}} {
        if (a.sink.present) optional.push_back({a.sink, "sink", "[Hq]", Stores::fp32});
        if (a.lse.present) optional.push_back({a.lse, "lse", "[B,Hq,Sq]", Stores::fp32});
    }
};

void examine_types(Examination& e, const AttentionDecodeArguments& a, const DecodeOperands& of) {
    e.present(of.inputs);
    e.present(a.kv_length.present, "kv_length", "an array of B lengths");
    e.present(of.outputs);
    e.form({of.inputs, of.outputs, of.optional}, of.inputs[0],
           {Dtype::fp16, Dtype::bf16, Dtype::fp32});
}

void examine_numbers(Examination& e, const AttentionDecodeArguments& a) {
    e.rule(is_finite_as_fp32(a.scale), kInvalid, "scale", "is " + show(a.scale),
           "values that are finite in fp32");
    e.rule(is_finite_as_fp32(a.softcap) && a.softcap >= 0, kInvalid, "softcap",
           "is " + show(a.softcap), "0 and positive values that are finite in fp32");
    e.number(a.window_left >= -1, "window_left", a.window_left, "-1, 0 and positive values");
}

void examine_shapes(Examination& e, const AttentionDecodeArguments& a, const DecodeOperands& of) {
    const std::int64_t batches = a.query.shape[0], queries = a.query.shape[1];
    const std::int64_t heads = a.query.shape[2], dim = a.query.shape[3];
    const std::int64_t pages = a.key_cache.shape[0], page_size = a.key_cache.shape[1];
    const std::int64_t kv_heads = a.key_cache.shape[2], value_dim = a.value_cache.shape[3];
    const std::int64_t most_pages = a.block_table.shape[1];
    e.extent(batches >= 0, "query", "B", batches, "B >= 0");
    e.extent_within("query", "Sq", queries, 1, kMostQueries);
    e.extent(heads >= 1, "query", "Hq", heads, "Hq >= 1");
    e.extent(dim >= 1, "query", "D", dim, "D >= 1");
    e.extent(pages >= 0, "key_cache", "pages", pages, "pages >= 0");
    e.extent_within("key_cache", "page_size", page_size, 1, kLargestPage);
    e.extent(kv_heads >= 1, "key_cache", "Hkv", kv_heads, "Hkv >= 1");
    e.extent(value_dim >= 1, "value_cache", "Dv", value_dim, "Dv >= 1");
    e.extent(most_pages >= 0, "block_table", "max_pages", most_pages, "max_pages >= 0");
    if (!e.accepted()) return;
    e.extent(heads % kv_heads == 0, "query", "Hq", heads, "a multiple of Hkv");
    const Letters letters{{"B", batches},     {"Sq", queries},          {"Hq", heads},
                          {"D", dim},         {"pages", pages},         {"page_size", page_size},
                          {"Hkv", kv_heads},  {"Dv", value_dim},        {"max_pages", most_pages}};
    for (const Operands* operands : {&of.inputs, &of.outputs, &of.optional})
        e.shapes(*operands, letters);
    e.array_size(a.kv_length.size == batches, a.kv_length, "kv_length", "B lengths");
    if (!e.accepted()) return;
    for (std::size_t b = 0; b < a.kv_length.values.size(); ++b) {
        const std::int64_t length = a.kv_length.values[b];
        e.place = place_of(b, a.kv_length.values.size());
        e.number(length >= 0, "kv_length", length, "lengths >= 0", "below");
        // In whole pages: the product of both extents may not be a number of 64 bits.
        e.number(length / page_size + (length % page_size > 0) <= most_pages, "kv_length",
                 length, "at most max_pages * page_size", "above");
    }
    e.place.clear();
}

}  // namespace

Ruling rule_attention_decode(const AttentionDecodeArguments& a) {
    Examination e;
    const DecodeOperands operands(a);
    examine_types(e, a, operands);
    examine_numbers(e, a);
    if (e.accepted()) examine_shapes(e, a, operands);
    e.ruling.any_status = !e.accepted();
    return e.ruling;
}

}  // namespace attncheck::ref
