// Descriptions against calls of generated cases.
#include "properties/case/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <numeric>

#include "properties/case/derived.h"
#include "properties/case/row_order.h"
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
    Spec sample(Random& random, int k) const {
        const Profile profile = k % 2 ? Profile::ascend950 : Profile::ascend910b;
        return find_operator(flash_description(GetParam()).op)
            ->sample(random, k * 100 / kCases, profile);
    }
};

// A relation changes parts and calls again: without a change the call is the case's.
TEST_P(FlashDescription, PartsMakeTheCallOfTheirCase) {
    Random random(3);
    for (int k = 0; k < kCases; ++k) {
        const Spec spec = sample(random, k);
        ASSERT_EQ(text_of(make_flash_call(flash_shape_parts(spec))),
                  text_of(outline_of(extents_of(spec))))
            << print(spec);
    }
}

/// Packed number (row * heads + head) of a row in memory.
std::int64_t packed_number(const Spec& spec, std::int64_t row, std::int64_t heads) {
    const auto batches = std::ssize(spec.lists[0]), length = spec.lists[0][0];
    const auto layout = static_cast<FlashLayout>(spec.numbers[kFaLayout]);
    const auto number = [&](std::int64_t b, std::int64_t s, std::int64_t n) {
        return (b * length + s) * heads + n;
    };
    if (layout == FlashLayout::sbh)
        return number(row / heads % batches, row / heads / batches, row % heads);
    if (layout == FlashLayout::bnsd)
        return number(row / length / heads, row % length, row / length % heads);
    return row;
}

// Rows lie where the layout's name says, statistics where the reference says.
TEST_P(FlashDescription, PutsElementsWhereTheLayoutDoes) {
    Random random(5);
    for (int k = 0; k < kCases; ++k) {
        const Spec spec = sample(random, k);
        const Extents e = extents_of(spec);
        const FlashParts parts = flash_shape_parts(spec);
        const Description& d = e.description();
        const auto order = [&](const char* name) {
            return RowOrder(d.tensors[static_cast<std::size_t>(d.tensor(name))], e);
        };
        const RowOrder query = order("query"), statistic = order("softmax_max");
        const std::int64_t heads = parts.shape.query_heads;
        Spec bnsd = spec;
        bnsd.numbers[kFaLayout] = static_cast<std::int64_t>(FlashLayout::bnsd);
        const bool tnd = parts.layout == FlashLayout::tnd;
        const auto statistics =
            tnd ? ref::statistics_order(parts.shape, parts.same_as_input)
                : std::vector<std::int64_t>{};
        const std::int64_t rows = parts.shape.total_queries * heads;
        for (std::int64_t row = 0; row < rows; row += 1 + rows / 97) {
            ASSERT_EQ(query(packed_number(spec, row, heads)), row) << print(spec);
            const std::int64_t packed = tnd ? statistics[static_cast<std::size_t>(row)]
                                            : packed_number(bnsd, row, heads);
            ASSERT_EQ(statistic(packed), row) << print(spec);
        }
        std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows * parts.shape.head_dim));
        std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
        ASSERT_EQ(query.from_memory(query.to_memory(numbers)), numbers) << print(spec);
    }
}

INSTANTIATE_TEST_SUITE_P(BothDirections, FlashDescription, testing::Bool());

}  // namespace
}  // namespace attncheck::properties
