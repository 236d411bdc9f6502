// The generator of merges: which shapes and data are drawn how often, the classes of a case, those
// that a run must reach, and steps to smaller cases that change several fields.
#include <algorithm>

#include "properties/case/attention_draws.h"
#include "properties/operators/attention_merge/problem.h"
#include "properties/operators/labels.h"

namespace attncheck::properties {
namespace {

void sample_data(Random& random, Spec& spec) {
    spec.set("weights", random.between(0, 4));
    if (random.chance(20)) spec.set("shift", random.between(1, 2));
    if (random.chance(45)) spec.set("dead", random.between(1, 3));
    if (random.chance(15)) spec.set("statistics", 1);
    using enum Recipe;
    draw_data(spec, random,
              {{normal, 4},
               {ints, 1},
               {ones, 1},
               {signs, 1},
               {cancelling, 1},
               {spiky, 1},
               {huge, 1},
               {subnormal, 1},
               {specials, 1}});
    draw_layouts(spec, random, Layout::broadcast, 50, 50);
}

/// All parts alike, and heads as rows.
std::vector<Spec> joint_shrinks(const Spec& spec) {
    std::vector<Spec> out;
    Spec plain = spec;
    for (const char* field : {"weights", "shift", "dead"}) plain.set(field, 0);
    out.push_back(plain);
    Spec turned = spec;
    const std::int64_t rows = spec.number("rows") * spec.number("heads");
    turned.set("rows", std::min<std::int64_t>(rows, 4096));
    turned.set("heads", 1);
    out.push_back(turned);
    return out;
}

/// What a prefill merges: thousands of rows, or more than a 16-bit count of them; and the widths of latent attention.
void make_large(Spec& spec, Random& random) {
    spec.set("parts", random.between(2, 6));
    spec.set("heads", random.between(1, 2));
    spec.set("dim", random.between(1, 2));
    spec.set("rows", random.between(1024, 5000));
    if (random.chance(40)) return;
    if (random.chance(35)) {  // more heads than a block of threads takes
        spec.set("rows", random.between(1, 3));
        spec.set("heads", random.pick<std::int64_t>({33, 65, 66, 127, 128, 129, 130, 256}));
        return;
    }
    if (random.chance(70)) {
        spec.set("rows", random.between(1, 3));
        spec.set("dim", random.pick<std::int64_t>({256, 257, 320, 384, 511, 512}));
        return;
    }
    spec.set("parts", 2);
    spec.set("dim", 1);
    spec.set("heads", random.pick<std::int64_t>({1, 1, 1, 2, 16}));
    spec.set("rows", 65'536 / spec.number("heads") + random.between(0, 9));
}

Spec sample_merge(const Schema& schema, Random& random, int size, Profile) {
    Spec spec(schema);
    spec.set("dtype", random.between(0, 2));
    spec.set("parts", random.pick<std::int64_t>({0, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17,
                                                 random.between(1, 33), random.between(18, 64)}));
    spec.set("rows", random.chance(4) ? 0 : random.between(1, 6));
    spec.set("heads", random.chance(70) ? random.between(1, 4)
                                        : random.pick<std::int64_t>({5, 6, 7, 8, 9, 16, 17}));
    spec.set("dim", random.pick<std::int64_t>({1, 2, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 80, 96,
                                               128, 129, random.between(1, 140)}));
    if (random.chance(3)) spec.set("rows", random.between(64, 300));  // more than a tile of rows
    const std::int64_t budget = 4'000 + 400 * static_cast<std::int64_t>(size);
    const auto cost = [&] {
        return spec.number("parts") * spec.number("rows") * spec.number("heads") *
               spec.number("dim");
    };
    const bool is_large = random.chance(2);
    if (is_large) make_large(spec, random);
    while (!is_large && cost() > budget) {
        const char* field = random.pick<const char*>({"heads", "dim", "dim", "rows"});
        spec.set(field, std::max<std::int64_t>(spec.number(field) / 2, 1));
    }
    sample_data(random, spec);
    return spec;
}

std::vector<std::string> merge_labels(const Spec& spec) {
    Labels labels(spec, {"weights", "shift", "dead"});
    const std::int64_t parts = spec.number("parts");
    labels.add(parts == 0    ? "parts:0"
               : parts == 1  ? "parts:1"
               : parts == 2  ? "parts:2"
               : parts <= 16 ? "parts:few"
                             : "parts:many");
    labels.add(spec.number("rows") == 0, "no_rows");
    labels.add(spec.number("rows") > 32, "many_rows");
    labels.add(spec.number("heads") > 1, "multi_head");
    labels.add(spec.number("dim") % 16 != 0, "dim_tail");
    labels.add(spec.number("statistics") == 1, "lse_absent");
    labels.layouts();
    labels.edited();
    return labels.take();
}

std::vector<RequiredClass> merge_required_classes() {
    return Required(merge_description())
        .share(40, {"multi_head"})
        .share(30, {"dim_tail"})
        .share(25, {"strided"})
        .share(20, {"fp16", "bf16", "fp32"})
        .share(30, "parts", {"few"})
        .share(10, "parts", {"many"})
        .share(8, "parts", {"2"})
        .share(4, "parts", {"1"})
        .share(2, "parts", {"0"})
        .values(8, "weights")
        .values(4, "shift", 1)
        .values(5, "dead", 1)
        .share(5, {"lse_absent"})
        .share(3, {"reversed", "broadcast"})
        .share(1, {"no_rows"})
        .share(0.5, {"many_rows"})
        .share(1, "data", {"ones", "ints", "signs", "normal", "cancelling", "spiky", "huge",
                           "subnormal", "specials"})
        .take();
}

}  // namespace

std::unique_ptr<Operator> make_attention_merge() {
    return make_operator({.schema = merge_description(),
                          .properties = merge_properties(),
                          .required = merge_required_classes(),
                          .labels = merge_labels,
                          .draw = sample_merge,
                          .joint_shrinks = joint_shrinks,
                          .expected = [](const Spec& spec, const ref::RoundingClass& rounding) {
                              const MergeProblem problem(spec);
                              return outputs_of(problem.expected(rounding), problem.gives_lse);
                          }});
}

}  // namespace attncheck::properties
