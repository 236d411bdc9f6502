// NsaCompress and NsaCompressGrad as data: fields, tensors, arguments and rules.
#include <type_traits>

#include "properties/case/attention_fields.h"
#include "properties/case/claims.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLongest = 1 << 20;

/// Output rows of each sequence; none at all where a claim leaves nothing to count.
std::vector<std::int64_t> blocks_of(const Extents& e) {
    ref::CompressShape shape;
    shape.block = e["block"];
    shape.stride = e["stride"];
    std::vector<std::int64_t> blocks = e.lengths("seq");
    for (auto& length : blocks)
        length = shape.block > 0 && shape.stride > 0 ? shape.blocks_of(length) : 0;
    return blocks;
}

/// Both directions; A is the C struct, R the arguments of the documented rules.
template <class A, class R>
Description describe(ref::Ruling (*rule)(const R&)) {
    constexpr bool gradient = std::is_same_v<A, attncheck_nsa_compress_grad_args>;
    Description d;
    d.op = gradient ? "nsa_compress_grad" : "nsa_compress";
    d.numbers = {type_field({"fp16", "bf16"}),
                 {.key = "heads", .min = 1, .max = 128, .word = "head"},
                 {.key = "dim", .min = 16, .max = 256, .step = 16, .word = "channel"},
                 {.key = "block",
                  .min = gradient ? 32 : 16,
                  .max = 128,
                  .step = 16,
                  .word = "window position"},
                 {.key = "stride", .min = 16, .max = 128, .step = 16},
                 {.key = "beyond", .max = kLongest, .fallback = 0}};
    d.lists = {{"seq", 0, kLongest, 4096, "token", "beyond"}};
    d.symbols = {{.name = "blocks", .word = "block", .lengths = blocks_of}};

    const TensorField input{
        .name = "input", .logical = "seq+ heads dim", .argument = both<&A::input, &R::input>};
    const TensorField weight{.name = "weight",
                             .role = Role::weight,
                             .logical = "block heads",
                             .argument = both<&A::weight, &R::weight>};
    if constexpr (gradient) {
        d.numbers.push_back(choice("lengths", {"given", "absent"}));
        d.numbers.push_back(choice("layout", {"TND", "absent"}));
        d.tensors = {{.name = "output_grad",
                      .logical = "blocks+ heads dim",
                      .argument = both<&A::output_grad, &R::output_grad>},
                     input,
                     weight,
                     {.name = "input_grad",
                      .output = true,
                      .logical = "seq+ heads dim",
                      .argument = both<&A::input_grad, &R::input_grad>},
                     {.name = "weight_grad",
                      .output = true,
                      .role = Role::weight_grad,
                      .logical = "block heads",
                      .argument = both<&A::weight_grad, &R::weight_grad>}};
        d.rules.push_back(
            {"lengths=absent",
             [](const Extents& e) { return e.sequences() == 1 && e["beyond"] == 0; },
             "lengths=absent means one sequence of all tokens: seq needs one entry and beyond=0"});
    } else {
        d.tensors = {input,
                     weight,
                     {.name = "output",
                      .output = true,
                      .logical = "blocks+ heads dim",
                      .argument = both<&A::output, &R::output>}};
    }
    d.arrays = {{.name = "act_seq_len",
                 .argument = both<&A::act_seq_len, &R::act_seq_len>,
                 .present = gradient ? "lengths=given" : "",
                 .ends_of = "seq"}};
    d.repeats_anywhere = true;
    d.texts = {{"layout", both<&A::layout, &R::layout>,
                gradient ? name_in("layout") : [](const Extents&) { return "TND"; }}};
    d.integers = {
        {"compress_block_size", both<&A::compress_block_size, &R::compress_block_size>, "block"},
        {"compress_stride", both<&A::compress_stride, &R::compress_stride>, "stride"},
        {"act_seq_len_type", both<&A::act_seq_len_type, &R::act_seq_len_type>, "0"}};

    d.rules.push_back({{},
                       [](const Extents& e) { return e.rows("seq") >= 1; },
                       "seq and beyond give no token, at least one is needed"});
    d.rules.push_back(
        {{}, [](const Extents& e) { return e.rows("seq") <= 4 * kLongest; }, "more than 4 Mi tokens"});
    if (gradient)
        d.rules.push_back({{},
                           [](const Extents& e) { return e["stride"] < e["block"]; },
                           "stride={stride} must be less than block={block}"});
    else
        d.rules.push_back({{},
                           [](const Extents& e) { return e["stride"] <= e["block"]; },
                           "stride={stride} must be at most block={block}"});
    constexpr std::int64_t kLargest = 4096;  // buffers are really laid out
    d.claims = field_claims({"dtype", "heads", "dim", "block", "stride"}, kLargest);
    d.entry = entry_point<A>(rule);
    d.build = build_compress_call;
    return resolved(std::move(d));
}

}  // namespace

const Description& compress_description(bool gradient) {
    static const Description forward =
        describe<attncheck_nsa_compress_args>(ref::rule_nsa_compress);
    static const Description backward =
        describe<attncheck_nsa_compress_grad_args>(ref::rule_nsa_compress_grad);
    return gradient ? backward : forward;
}

}  // namespace attncheck::properties
