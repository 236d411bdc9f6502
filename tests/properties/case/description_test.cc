// Descriptions against calls of generated cases.
#include "properties/case/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <numeric>

#include "properties/case/derived.h"
#include "properties/operators/catalogue.h"
#include "properties/operators/flash_attention/case.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {
namespace {

constexpr int kCases = 200;

// A candidate that reads a struct, and the suite that wrote it, agree on every member.
TEST(Description, PacksEveryArgument) {
    for (const auto& op : operators()) {
        const Description& d = op->schema();
        if (!d.entry.pack) continue;
        Random random(7);
        const Call call = op->outline(op->sample(random, 20));
        std::vector<attncheck_tensor> tensors(d.tensors.size());
        std::vector<attncheck_int_array> arrays(d.arrays.size());
        std::vector<const char*> texts(d.texts.size());
        int count = 0;
        for (auto& tensor : tensors) tensor.rank = ++count;
        for (auto& array : arrays) array.size = ++count;
        for (auto& text : texts) text = d.op.c_str();
        const auto bytes = pack(call, tensors, arrays, texts);
        for (std::size_t i = 0; i < tensors.size(); ++i)
            EXPECT_EQ(d.tensors[i].argument.get(bytes.data()).rank, tensors[i].rank)
                << d.op << ' ' << d.tensors[i].name;
        for (std::size_t i = 0; i < arrays.size(); ++i)
            EXPECT_EQ(d.arrays[i].argument.get(bytes.data()).size, arrays[i].size)
                << d.op << ' ' << d.arrays[i].name;
        for (std::size_t i = 0; i < texts.size(); ++i)
            EXPECT_EQ(d.texts[i].argument.get(bytes.data()), texts[i])
                << d.op << ' ' << d.texts[i].name;
        for (std::size_t i = 0; i < d.integers.size(); ++i)
            EXPECT_EQ(d.integers[i].argument.get(bytes.data()), call.numbers[i].value)
                << d.op << ' ' << d.integers[i].name;
        for (std::size_t i = 0; i < d.reals.size(); ++i)
            EXPECT_EQ(d.reals[i].argument.get(bytes.data()), call.reals[i].value)
                << d.op << ' ' << d.reals[i].name;
    }
}

// What a generator draws is legal by the description and by the documented rules.
TEST(Description, GeneratedCasesAreLegal) {
    for (const auto& op : operators()) {
        if (!op->schema().entry.pack) continue;
        Random random(11);
        for (int k = 0; k < kCases; ++k) {
            const Spec spec = op->sample(random, k * 100 / kCases);
            ASSERT_FALSE(illegal(spec)) << print(spec) << ": " << *illegal(spec);
            const ref::Ruling ruling = rule(op->outline(spec));
            ASSERT_TRUE(ruling.accepted()) << print(spec) << ": " << ruling.message;
        }
    }
}

/// A call without values as text: all that a description says of it.
std::string text_of(const Call& call) {
    std::string out;
    const auto list = [](const std::vector<std::int64_t>& values) {
        return fmt::format("[{}]", fmt::join(values, ","));
    };
    for (const Tensor& t : call.tensors)
        out += fmt::format("{} {}{} type {} shape {}\n", t.name, t.output ? "out" : "in",
                           t.present ? "" : " absent", t.dtype, list(t.shape));
    for (const HostArray& a : call.arrays)
        out += fmt::format("{}{} {}\n", a.name, a.present ? "" : " absent",
                           list(a.present ? a.values : std::vector<std::int64_t>{}));
    for (const Text& t : call.texts) out += fmt::format("{} {}\n", t.name, t.value.value_or("-"));
    for (const Number& n : call.numbers) out += fmt::format("{} {}\n", n.name, n.value);
    for (const Real& r : call.reals) out += fmt::format("{} {}\n", r.name, r.value);
    return out;
}

class FlashDescription : public testing::TestWithParam<bool> {
protected:
    /// The case, under the description.
    Extents extents(const Spec& spec) const {
        return {flash_description(GetParam()), spec.numbers, spec.lists, spec.seed, spec.profile};
    }
    Spec sample(Random& random, int k) const {
        const Profile profile = k % 2 ? Profile::ascend950 : Profile::ascend910b;
        return find_operator(flash_description(GetParam()).op)
            ->sample(random, k * 100 / kCases, profile);
    }
};

// The notation carries the largest operator: layouts, statistics, biases, masks and ropes.
TEST_P(FlashDescription, SaysWhatTheCallIs) {
    Random random(3);
    for (int k = 0; k < kCases; ++k) {
        const Spec spec = sample(random, k);
        const Operator& op = *find_operator(spec.schema->op);
        const Extents e = extents(spec);
        const Call described = outline_of(e), made = op.outline(spec);
        ASSERT_EQ(text_of(described), text_of(made)) << print(spec);
        ASSERT_EQ(shapes_of(e), op.shapes(spec)) << print(spec);
        ASSERT_EQ(rule(described).message, rule(made).message) << print(spec);
    }
}

// Rows of the tensors lie where to_layout puts them, statistics where the reference says.
TEST_P(FlashDescription, PutsElementsWhereTheLayoutDoes) {
    Random random(5);
    for (int k = 0; k < kCases; ++k) {
        const Spec spec = sample(random, k);
        const Extents e = extents(spec);
        const FlashParts parts = flash_shape_parts(spec);
        const Description& d = e.description();
        const auto place_of = [&](const char* name, std::int64_t number) {
            const TensorField& field = d.tensors[static_cast<std::size_t>(d.tensor(name))];
            for (const Form& form : field.forms)
                if (form.when.holds(e))
                    return (form.order.empty() ? form.shape : form.order).place(e, number);
            return Place{};
        };
        const auto row_of = [&](const Place& place) {
            if (place.beyond) return place.of("q");
            return row_starts(spec.lists[0])[static_cast<std::size_t>(place.sequence)] +
                   place.of("q");
        };
        const std::int64_t heads = parts.shape.query_heads, dim = parts.shape.head_dim;
        std::vector<std::int64_t> packed(
            static_cast<std::size_t>(parts.shape.total_queries * heads));
        std::iota(packed.begin(), packed.end(), std::int64_t{0});
        const auto rows = to_layout(parts.layout, spec.lists[0], heads, 1, packed);
        const auto statistics =
            parts.layout == FlashLayout::tnd
                ? ref::statistics_order(parts.shape, parts.same_as_input)
                : to_layout(FlashLayout::bnsd, spec.lists[0], heads, 1, packed);
        for (std::size_t i = 0; i < packed.size(); i += 1 + packed.size() / 97) {
            const auto number = static_cast<std::int64_t>(i);
            const Place query = place_of("query", number * dim),
                        lane = place_of("softmax_max", number * 8 + 3);
            ASSERT_EQ(row_of(query) * heads + query.of("query_heads"), rows[i]) << print(spec);
            ASSERT_EQ(row_of(lane) * heads + lane.of("query_heads"), statistics[i]) << print(spec);
            ASSERT_EQ(lane.of("lanes"), 3);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(BothDirections, FlashDescription, testing::Bool());

}  // namespace
}  // namespace attncheck::properties
