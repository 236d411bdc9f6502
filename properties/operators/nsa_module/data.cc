// Values of the inputs of the NSA module. Every value is a function of the seed and the logical
// index alone.
#include <cmath>
#include <limits>

#include "properties/case/data.h"
#include "properties/operators/nsa_module/case.h"

namespace attncheck::properties::nsa_module {
namespace {

std::uint64_t hash_of(std::uint64_t seed, int tensor, std::int64_t a, std::int64_t b,
                      std::int64_t c) {
    return mix(mix(mix(seed ^ 0x6e73616d) +
                   static_cast<std::uint64_t>(16 * a + tensor) * 0x9E3779B185EBCA87ull) +
               static_cast<std::uint64_t>(b) * 0xC2B2AE3D27D4EB4Full +
               static_cast<std::uint64_t>(c));
}

bool is_query_or_key(int input) {
    return input == kQuery || input == kKeyCompress || input == kKeySelect || input == kKeyWindow;
}

bool is_weight(int input) { return input == kKeyWeight || input == kValueWeight; }

/// Softmax needs moderate logits: query and key follow only the recipes that keep them so.
Recipe recipe_for(Recipe recipe, int input) {
    const bool only_values =
        recipe == Recipe::onehot || recipe == Recipe::cancelling || recipe == Recipe::ones;
    return is_query_or_key(input) && only_values ? Recipe::normal : recipe;
}

/// Of one token and head, or weight; `index` without the last number.
RecipeRow recipe_row(const Spec& spec, const Parts& parts, int input,
                     const std::vector<std::int64_t>& shape, std::span<const std::int64_t> index) {
    return {recipe_for(spec.recipe, input), spec.seed, {input, is_weight(input), shape[0]},
            parts.dtype, index, shape[0] * shape[1] * (shape.size() > 2 ? shape[2] : 1)};
}

/// An element of a tensor that is no weight.
double recipe_element(const Spec& spec, int input, const RecipeRow& recipe,
                      const std::int64_t (&at)[3]) {
    if (recipe_for(spec.recipe, input) == Recipe::ints)  // -2..2: sums of a case stay exact in fp32
        return static_cast<double>(hash_of(spec.seed, input, at[0], at[1], at[2]) % 5) - 2;
    return recipe(at[2]);
}

/// Rank of a token's key in lattice data, -64..63: two tokens in 256 share one, and no row sees
/// three leaders unless it has more than 256 keys.
double rank_of(const Spec& spec, std::int64_t position, std::int64_t head) {
    const auto offset = static_cast<std::int64_t>(hash_of(spec.seed, 15, 0, head, 0) % 256);
    return static_cast<double>((position * 97 + offset) % 256 / 2) - 64;
}

/// query = (+-256, 0, ...), key = (rank, small integers ...): logits are 256 apart times the scale,
/// one or two keys lead each row, and P is 1 or 1/2 in any arithmetic.
double lattice_element(const Spec& spec, int input, const std::int64_t (&at)[3],
                       std::int64_t position) {
    const std::uint64_t hash = hash_of(spec.seed, input, at[0], at[1], at[2]);
    if (input == kQuery) return at[2] != 0 ? 0 : hash % 2 ? 256 : -256;
    if (is_query_or_key(input))
        return at[2] == 0 ? rank_of(spec, position, at[1]) : static_cast<double>(hash % 3) - 1;
    if (input == kOutputGrad)  // a few channels: dS stays a number of few bits
        return hash % 64 == 0 ? 1 : hash % 64 == 1 ? -1 : 0;
    return static_cast<double>(hash % 5) - 2;
}

double weight_element(const Spec& spec, const Parts& parts, int input,
                      const std::vector<std::int64_t>& shape, const std::int64_t (&at)[3]) {
    switch (static_cast<Weights>(spec.numbers[kWeights])) {
        case Weights::onehot:
            return at[0] == static_cast<std::int64_t>(hash_of(spec.seed, input, 0, at[1], 0) %
                                                      static_cast<std::uint64_t>(shape[0]));
        case Weights::mean:
            return 1 / static_cast<double>(shape[0]);
        case Weights::recipe:
            break;
    }
    const double value = recipe_row(spec, parts, input, shape, std::span(at).first(1))(at[1]);
    // Pooled keys of l weights of size 1 would have logits sqrt(l) times those of the others.
    return recipe_for(spec.recipe, input) == Recipe::normal ? value / 4 : value;
}

double gate_element(const Spec& spec, const std::int64_t (&at)[3]) {
    constexpr double kOpen = std::numeric_limits<double>::infinity();
    const auto gates = static_cast<Gates>(spec.numbers[kGates]);
    switch (gates) {
        case Gates::half:
            return 0;
        case Gates::compress:
        case Gates::select:
        case Gates::window:
            return at[2] == spec.numbers[kGates] - static_cast<int>(Gates::compress) ? kOpen
                                                                                     : -kOpen;
        case Gates::closed:
            return -kOpen;
        case Gates::random:
            break;
    }
    // -3..3 in steps of 2^-8: values that bf16 cannot hold.
    return static_cast<double>(hash_of(spec.seed, kGateLogits, at[0], at[1], at[2]) % 1537) / 256 -
           3;
}

}  // namespace

void fill_data(const Spec& spec, Parts& parts) {
    const bool zero = spec.recipe == Recipe::zeros;
    const auto starts = row_starts(parts.shape.lengths);
    const bool lattice = static_cast<Logits>(spec.numbers[kLogits]) == Logits::lattice;
    const auto shapes = shapes_of(extents_of(spec));
    for (int input = 0; input < kInputs; ++input) {
        const auto& shape = shapes[static_cast<std::size_t>(input)];
        std::vector<double> values;
        const std::int64_t width = shape.size() > 2 ? shape[2] : 1;
        if (shape[0] > 0)  // an absent tensor has no more extents
            values.reserve(static_cast<std::size_t>(shape[0] * shape[1] * width));
        std::size_t sequence = 0;
        for (std::int64_t row = 0; row < shape[0]; ++row) {
            while (sequence + 1 < starts.size() && starts[sequence + 1] <= row) ++sequence;
            for (std::int64_t head = 0; head < shape[1]; ++head) {
                const std::int64_t index[2] = {row, head};
                const RecipeRow recipe = recipe_row(spec, parts, input, shape, index);
                for (std::int64_t c = 0; c < width; ++c) {
                    const std::int64_t at[3] = {row, head, c};
                    values.push_back(
                        input == kGateLogits ? gate_element(spec, at)
                        : zero               ? 0
                        : is_weight(input)   ? weight_element(spec, parts, input, shape, at)
                        : lattice ? lattice_element(spec, input, at, row - starts[sequence])
                                  : recipe_element(spec, input, recipe, at));
                }
            }
        }
        parts.bits[static_cast<std::size_t>(input)] =
            ref::encode_all(parts.type_of(input), values);
    }
}

}  // namespace attncheck::properties::nsa_module
