// Printing and parsing are inverses, and no text, however damaged, does worse than throw.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "properties/case/spec.h"
#include "tests/properties/case/every_operator.h"

namespace attncheck::properties {
namespace {

constexpr int kSamples = 3000;

double special_value(Random& random) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    switch (random.between(0, 9)) {
        case 0:
            return std::numeric_limits<double>::quiet_NaN();
        case 1:
            return kInfinity;
        case 2:
            return -kInfinity;
        case 3:
            return -0.0;
        case 4:
            return std::numeric_limits<double>::denorm_min();
        case 5:
            return std::numeric_limits<double>::max();
        case 6:
            return -0x1p-24;
        case 7:
            return 0x1.fffffffffffffp-1022;
        default:
            return std::ldexp(static_cast<double>(random.between(-(1ll << 52), 1ll << 52)),
                              static_cast<int>(random.between(-1000, 900)));
    }
}

/// Every part of a Spec, filled in at random.
Spec decorated(const Operator& op, std::uint64_t number) {
    Spec spec = sampled(op, number);
    Random random(~number);
    const auto shapes = op.shapes(spec);
    for (std::int64_t k = random.between(0, 5); k > 0; --k) {
        ElementRef ref;
        ref.tensor = static_cast<int>(random.between(0, std::ssize(shapes) - 1));
        const auto& shape = shapes[static_cast<std::size_t>(ref.tensor)];
        const TensorField& field = op.schema().tensors[static_cast<std::size_t>(ref.tensor)];
        if (field.output || field.derived) continue;
        bool has_elements = true;
        for (std::size_t dim = 0; dim < shape.size(); ++dim) {
            has_elements = has_elements && shape[dim] > 0;
            ref.index[dim] = has_elements ? random.between(0, shape[dim] - 1) : 0;
        }
        if (has_elements) spec.overrides[ref] = special_value(random);
    }
    if (random.chance(30)) spec.seed = random.next();
    const std::string tensor = random.pick(op.schema().tensors).name;
    const std::vector<std::string> edits{tensor + ".absent", tensor + ".shape[1]=-7",
                                         "act_seq_len[0]=-1", "layout=\"TNDX\"",
                                         "all.dim=24",        "compress_stride=0"};
    for (std::int64_t k = random.between(0, 2); k > 0; --k)
        spec.edits.push_back(random.pick(edits));
    return spec;
}

/// Building may refuse an edit; it may do nothing else.
void build_if_small(const Spec& spec) {
    const Operator& op = *find_operator(spec.schema->op);
    if (op.illegal(spec)) return;
    for (const auto& shape : op.shapes(spec)) {
        std::int64_t elements = 1;
        for (const auto extent : shape) elements *= extent;
        if (elements > 100'000) return;
    }
    try {
        op.build(spec);
    } catch (const std::invalid_argument&) {
    }
}

class RoundTrip : public OperatorTest {};

INSTANTIATE_TEST_SUITE_P(Operators, RoundTrip, testing::ValuesIn(every_operator()), named_after_it);

// What is printed reads back as the same Spec, and prints as the same line.
TEST_P(RoundTrip, ParseUndoesPrint) {
    for (int number = 0; number < kSamples; ++number) {
        const Spec spec = decorated(op(), static_cast<std::uint64_t>(number));
        const std::string line = print(spec);
        const Spec back = spec_of(line);
        ASSERT_EQ(back, spec) << line;
        ASSERT_EQ(print(back), line);
    }
}

// A generated Spec is legal, and stays legal through its text.
TEST_P(RoundTrip, GeneratedSpecsAreLegal) {
    for (int number = 0; number < kSamples; ++number) {
        const Spec spec = sampled(op(), static_cast<std::uint64_t>(number));
        ASSERT_EQ(op().illegal(spec), std::nullopt) << print(spec);
        ASSERT_EQ(op().illegal(spec_of(print(spec))), std::nullopt) << print(spec);
    }
}

// Flipped, deleted, doubled and foreign bytes: a Spec that prints and parses again, or the one
// exception that is documented.
TEST_P(RoundTrip, DamagedLinesThrowOrParseToWhatTheyPrint) {
    Random random(2026);
    int parsed = 0, refused = 0;
    for (int number = 0; number < 2 * kSamples; ++number) {
        std::string line = print(decorated(op(), static_cast<std::uint64_t>(number % 200)));
        for (std::int64_t k = random.between(1, 3); k > 0 && !line.empty(); --k) {
            const auto at = static_cast<std::size_t>(random.between(0, std::ssize(line) - 1));
            const std::string syntax = "[]{}=,.\"- 019naif\n";
            switch (random.between(0, 5)) {
                case 0:
                    line[at] = static_cast<char>(line[at] ^ (1 << random.between(0, 7)));
                    break;
                case 1:
                    line.erase(at, static_cast<std::size_t>(random.between(1, 8)));
                    break;
                case 2:
                    line.insert(at, line.substr(at / 2, 9));
                    break;
                case 3:
                    line[at] = static_cast<char>(random.between(0, 255));
                    break;
                case 4:  // no damage: a blank behind a comma
                    if (const auto comma = line.find(',', at); comma != line.npos)
                        line.insert(comma + 1, 1, ' ');
                    break;
                default:
                    line[at] =
                        syntax[static_cast<std::size_t>(random.between(0, std::ssize(syntax) - 1))];
            }
        }
        try {
            const Spec spec = spec_of(line);
            ++parsed;
            ASSERT_EQ(spec_of(print(spec)), spec) << line;
            build_if_small(spec);
        } catch (const std::invalid_argument&) {
            ++refused;
        }
    }
    EXPECT_GT(parsed, kSamples / 30);  // edits are read strictly: few damaged ones parse
    EXPECT_GT(refused, kSamples / 20);
}

}  // namespace
}  // namespace attncheck::properties
