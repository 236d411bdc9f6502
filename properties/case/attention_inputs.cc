#include "properties/case/attention_inputs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>

#include "properties/case/data.h"
#include "properties/case/derived.h"
#include "properties/case/random.h"
#include "properties/case/values.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Softmax needs moderate logits: query and key follow only the recipes that keep them so, and huge
/// or subnormal numbers go where products are linear.
Recipe recipe_for(Recipe recipe, Role role, bool is_rope, bool gradient) {
    switch (recipe) {
        case Recipe::onehot:
        case Recipe::cancelling:
        case Recipe::subnormal:
            return role == Role::value ? recipe : Recipe::normal;
        case Recipe::spiky:
            return (role == Role::key && !is_rope) || role == Role::output_grad ? Recipe::normal
                                                                               : recipe;
        case Recipe::huge:
            return role == (gradient ? Role::output_grad : Role::value) ? recipe : Recipe::normal;
        case Recipe::ones:
            return role == Role::query || role == Role::key ? Recipe::normal : recipe;
        default:
            return recipe;
    }
}

/// One tensor [rows, heads, dim] before its type rounds it.
class Filler {
public:
    Filler(const Spec& spec, const InputRecipe& how, int tensor, const std::vector<Int>& shape,
           ref::Dtype dtype)
        : spec_(spec),
          how_(how),
          role_(spec.schema->tensors[static_cast<std::size_t>(tensor)].role),
          tensor_(tensor),
          rows_(shape[0]),
          heads_(shape[1]),
          dim_(shape[2]),
          dtype_(dtype),
          recipe_(recipe_for(spec.recipe, role_, tensor != tensor_with(role_, *spec.schema),
                             tensor_with(Role::output_grad, *spec.schema) >= 0)) {}

    std::vector<double> values() const {
        std::vector<double> out(static_cast<std::size_t>(elements()));
        if (spec_.recipe == Recipe::zeros) return out;
        for_row_ranges(rows_, elements(), [&](Int begin, Int end) {
            auto at = static_cast<std::size_t>(begin * heads_ * dim_);
            for (Int row = begin; row < end; ++row)
                for (Int head = 0; head < heads_; ++head) {
                    const Int index[2] = {row, head};
                    const RecipeRow recipe(recipe_, spec_.seed, {tensor_, false, rows_}, dtype_,
                                           index, elements());
                    for (Int channel = 0; channel < dim_; ++channel)
                        out[at++] = value({tensor_, role_, row, head, channel}, recipe);
                }
        });
        return out;
    }

private:
    Int elements() const { return rows_ * heads_ * dim_; }

    double value(const InputElement& at, const RecipeRow& recipe) const {
        if (recipe_ == Recipe::ints) {
            if (role_ != Role::output_grad) return whole_number(how_.hash(at), 2);
            // One +-1 per row: products with it have as few bits as the values themselves.
            const std::uint64_t chosen = how_.hash({tensor_, role_, at.row, at.head, 0});
            return at.channel == static_cast<Int>(chosen % static_cast<std::uint64_t>(dim_))
                       ? (chosen >> 32 & 1 ? 1 : -1)
                       : 0;
        }
        if (how_.own)
            if (const auto own = how_.own(at)) return *own;
        if (recipe_ == Recipe::onehot)  // the output shows the probabilities
            return at.channel == at.row % dim_ ? 1 : 0;
        return recipe(at.channel);
    }

    const Spec& spec_;
    const InputRecipe& how_;
    Role role_;
    int tensor_;
    Int rows_, heads_, dim_;
    ref::Dtype dtype_;
    Recipe recipe_;
};

/// What all logits of a sequence share: "minus40", "plus300".
std::optional<double> offset_of(std::string_view logits) {
    for (const auto& [sign, factor] : {std::pair{"minus", -1.0}, std::pair{"plus", 1.0}})
        if (logits.starts_with(sign))
            return factor * std::stod(std::string(logits.substr(std::string_view(sign).size())));
    return std::nullopt;
}

/// The key rows of each sequence, by position, and those behind the last one.
std::vector<std::vector<Int>> rows_of_sequences(const Spec& spec, const InputRecipe& how,
                                                Int key_rows) {
    if (how.key_rows) return *how.key_rows;
    std::vector<Int> lengths = spec.lists[1];
    if (how.shapes_rows_beyond)
        lengths.push_back(std::accumulate(lengths.begin(), lengths.end(), key_rows, std::minus<>()));
    std::vector<std::vector<Int>> out;
    Int first = 0;
    for (const Int length : lengths) {
        out.emplace_back(static_cast<std::size_t>(std::max<Int>(length, 0)));
        std::iota(out.back().begin(), out.back().end(), first);
        first += length;
    }
    return out;
}

/// Channel 0 of query and key carries the part of the logits that is no noise.
void shape_logits(const Spec& spec, const InputRecipe& how, const std::vector<Int>& key_shape,
                  std::size_t query_dim, std::vector<double>& query, std::vector<double>& key) {
    const auto field = static_cast<std::size_t>(spec.schema->number("logits"));
    const std::string& kind =
        spec.schema->numbers[field].names[static_cast<std::size_t>(spec.numbers[field])];
    const bool equal = kind == "equal";
    if (kind == "plain" || (how.scale == 0 && !equal)) return;
    const auto heads = static_cast<std::size_t>(key_shape[1]),
               dim = static_cast<std::size_t>(key_shape[2]);
    const double sign = how.scale < 0 ? -1 : 1;
    const std::optional<double> offset = offset_of(kind);
    // 64 * 64 leads by 200 and more at every scale that is not zero or less than a tenth.
    const double part = offset ? std::sqrt(std::fabs(*offset / how.scale)) : 64;
    if (!equal)
        for (std::size_t i = 0; i < query.size(); i += query_dim) query[i] = part;
    Int first = 0;
    for (const std::vector<Int>& rows : rows_of_sequences(spec, how, key_shape[0])) {
        const Int length = std::ssize(rows);
        for (Int j = 0; j < length; ++j)
            for (std::size_t n = 0; n < heads; ++n) {
                const auto row = [&](Int position) {
                    const Int number = rows[static_cast<std::size_t>(position)];
                    return key.data() + (static_cast<std::size_t>(number) * heads + n) * dim;
                };
                double* const here = row(j);
                if (equal)
                    std::copy_n(row(0), dim, here);
                else if (offset)
                    here[0] = sign * std::copysign(part, *offset);
                else
                    here[0] =
                        how.leads(j, first, length, static_cast<Int>(n)) ? sign * part : 0;
            }
        first += length;
    }
}

}  // namespace

bool leads_in_steps(std::uint64_t seed, Int position, Int length) {
    constexpr Int kShortest = 16;
    const std::uint64_t hash = pair_hash(seed, 0, 91);
    Int step = hash % 3 == 0 ? kShortest : kShortest << (hash >> 8) % 11;
    while (step > std::max<Int>(length, 1)) step /= 2;
    return position % step == ((hash >> 4 & 1) != 0 ? step - 1 : 0);
}

std::uint64_t pair_hash(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
    return mix(mix(seed ^ 0x7f4a7c15u) + a * 0x9E3779B185EBCA87ull + b * 0xC2B2AE3D27D4EB4Full);
}

HiddenPairs::HiddenPairs(std::uint64_t seed, std::uint64_t salt, std::size_t columns)
    : seed_(seed),
      salt_(salt),
      percent_(Random(seed + salt).pick<std::uint64_t>({5, 50, 50, 90, 97})),
      columns_(std::max<std::size_t>(columns, 1)) {
    constexpr int kStructured = 60;
    Random random(mix(seed ^ salt << 32 ^ 0x41dde2));
    tile_ = static_cast<std::size_t>(random.pick<std::int64_t>({16, 32, 64, 64, 128}));
    const auto tiles = static_cast<std::int64_t>((columns_ + tile_ - 1) / tile_);
    if (tiles < 2 || !random.chance(kStructured)) return;
    form_ = random.pick({Form::front, Form::back, Form::blocks});
    const std::int64_t of_tiles = random.chance(50) ? (form_ == Form::front ? 1 : tiles - 1) : random.between(1, tiles - 1);
    edge_ = of_tiles * tile_ + static_cast<std::size_t>(random.pick<std::int64_t>({0, 0, 0, 1})) - static_cast<std::size_t>(random.chance(15));
}

bool HiddenPairs::operator()(std::size_t place) const {
    const std::size_t row = place / columns_, column = place % columns_;
    if (pair_hash(seed_, row, salt_) % 11 == 0) return true;
    switch (form_) {
        case Form::front:
            return column < edge_;
        case Form::back:
            return column >= edge_;
        case Form::blocks:
            return pair_hash(seed_ + 1, row / tile_, column / tile_) % 2 == 0;
        case Form::any:
            break;
    }
    return pair_hash(seed_, place, salt_ + 1) % 100 < percent_;
}

std::function<std::uint64_t(const InputElement&)> indexed_hash(std::uint64_t seed) {
    return [seed](const InputElement& at) {
        return pair_hash(seed + 131 * static_cast<std::uint64_t>(at.tensor),
                         static_cast<std::uint64_t>(at.row * 1024 + at.head),
                         static_cast<std::uint64_t>(at.channel));
    };
}

double whole_number(std::uint64_t hash, Int reach) {
    return static_cast<double>(static_cast<Int>(hash % static_cast<std::uint64_t>(2 * reach + 1))) -
           static_cast<double>(reach);
}

std::vector<std::vector<std::uint32_t>> attention_inputs(const Spec& spec,
                                                         const InputRecipe& how) {
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    const auto& tensors = spec.schema->tensors;
    std::vector<std::vector<double>> values(tensors.size());
    std::vector<bool> filled(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        filled[i] = shapes[i].size() == 3 && !tensors[i].output && !tensors[i].derived &&
                    tensors[i].role != Role::list;
        if (filled[i])
            values[i] = Filler(spec, how, static_cast<int>(i), shapes[i],
                               extents.type_of(tensors[i]))
                            .values();
    }
    const auto query = static_cast<std::size_t>(tensor_with(Role::query, *spec.schema)),
               key = static_cast<std::size_t>(tensor_with(Role::key, *spec.schema));
    if (spec.recipe != Recipe::zeros)
        shape_logits(spec, how, shapes[key], static_cast<std::size_t>(shapes[query][2]),
                     values[query], values[key]);
    std::vector<std::vector<std::uint32_t>> bits(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i)
        if (filled[i]) bits[i] = ref::encode_all(extents.type_of(tensors[i]), values[i]);
    return bits;
}

}  // namespace attncheck::properties
