#include "properties/case/edit_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "properties/case/derived.h"
#include "properties/case/description.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN, kBeyond32 = std::int64_t{1} << 32;
constexpr std::int64_t kBeyond8 = 256;  ///< the same number where only eight bits are read

constexpr auto kUsualReals = {"nan", "inf", "-inf", "1e300", "-1e39", "0", "-1", "1e-300"};

/// Other spellings of a text, which a comparison without regard to case or of the shorter length takes for it.
std::vector<std::string> spellings(const std::string& text) {
    std::string lower = text;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return {lower, "", text.substr(0, text.size() - 1), " " + text, "BSND"};
}

/// What a comparison of as many letters as the text has takes for it.
std::vector<std::string> longer_spellings(const std::string& text) { return {text + "X", text + "x", text + " "}; }

std::vector<Edit> texts_of(const std::string& name, const std::vector<std::string>& values) {
    std::vector<Edit> edits;
    for (const std::string& value : values) {
        edits.emplace_back(name);
        edits.back().value = value;
    }
    return edits;
}

/// The field that an integer is, nullptr if it is none.
const NumberField* field_of(const Description& d, const std::string& key) {
    const int index = d.number(key);
    return index < 0 ? nullptr : &d.numbers[static_cast<std::size_t>(index)];
}

/// A size in steps, not one of a few enumerators.
bool is_multiple(const NumberField& field) {
    return field.step > 1 && field.max >= 4 * field.step;
}

/// The field whose limits a claim tries, nullptr if it has none.
const NumberField* limits_of(const Description& d, const Claim& claim) {
    if (!claim.limits_of.empty()) return field_of(d, claim.limits_of);
    return claim.apply ? nullptr : field_of(d, claim.key.substr(claim.key.find('.') + 1));
}

/// Values of a claim, as far as it takes them, each once.
void add_values(EditGroups& groups, const Claim& claim, const std::vector<std::int64_t>& values) {
    std::vector<std::int64_t> kept;
    for (const std::int64_t v : values)
        if (v >= 0 && v <= claim.largest && std::find(kept.begin(), kept.end(), v) == kept.end())
            kept.push_back(v);
    if (!kept.empty()) groups.push_back(values_of(claim.key, kept));
}

}  // namespace

std::vector<Edit> values_of(const std::string& name, const std::vector<std::int64_t>& values) {
    std::vector<Edit> edits;
    for (const auto value : values) {
        edits.emplace_back(name);
        edits.back().value = value;
    }
    return edits;
}

void add_tensor_edits(EditGroups& groups, const std::string& tensor,
                      const std::vector<std::int64_t>& shape) {
    const auto rank = std::ssize(shape);
    groups.push_back({tensor + ".absent"});
    groups.push_back(values_of(tensor + ".rank",
                               {-1, 0, 1, rank - 1, rank + 1, 8, 9, 1000, INT32_MAX, INT32_MIN}));
    groups.push_back(values_of(
        tensor + ".dtype",
        {ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT32, ATTNCHECK_INT32, ATTNCHECK_INT64,
         ATTNCHECK_UINT8, ATTNCHECK_BOOL, ATTNCHECK_FLOAT8_E5M2, 2, -1}));
    for (std::int64_t dim = 0; dim < rank; ++dim) {
        const std::int64_t now = shape[static_cast<std::size_t>(dim)];
        groups.push_back(values_of(fmt::format("{}.shape[{}]", tensor, dim),
                                   {now + 1, now - 1, 0, -1, 2 * now + 16, std::int64_t{1} << 32,
                                    std::int64_t{1} << 62, INT64_MAX, INT64_MIN}));
    }
    std::vector<Edit> swaps;  // a comparison that does not look at the order takes these
    for (std::int64_t dim = 0; dim < rank; ++dim)
        for (std::int64_t other = dim + 1; other < rank; ++other)
            if (shape[static_cast<std::size_t>(dim)] != shape[static_cast<std::size_t>(other)])
                swaps.emplace_back(fmt::format("{}.swap[{},{}]", tensor, dim, other));
    if (!swaps.empty()) groups.push_back(swaps);
}

void add_tensor_edits(EditGroups& groups, const Call& call) {
    std::vector<Edit> added;
    for (const Tensor& tensor : call.tensors)
        if (tensor.present)
            add_tensor_edits(groups, tensor.name, tensor.shape);
        else
            added.emplace_back(tensor.name + ".present");
    if (!added.empty()) groups.push_back(added);
}

void add_number_edits(EditGroups& groups, const Call& call) {
    const Description& d = *call.description;
    for (const RealField& field : d.reals) {
        groups.emplace_back();
        for (const std::string& value : field.tried)
            groups.back().emplace_back(field.name + '=' + value);
        if (!field.tried.empty()) continue;
        for (const char* value : kUsualReals) groups.back().emplace_back(field.name + '=' + value);
    }
    for (const IntegerField& field : d.integers) {
        if (field.largest == 0) continue;
        const std::int64_t now = call.number(field.name);
        groups.push_back(values_of(field.name, {0, -1, now + 1, now - 1, 2 * now, field.largest + 1,
                                                kBeyond32 + now, kMax, kMin}));
    }
    for (const IntegerField& field : d.integers) {
        if (field.inert || field.largest > 0) continue;
        const NumberField* number = field_of(d, field.value);
        const bool symbol = !number && d.scalar(field.value) >= 0;
        if (symbol) continue;
        const std::int64_t now = call.number(field.name);
        std::vector<std::int64_t> values{kMax, kMin};
        if (number && is_multiple(*number)) {
            const std::int64_t step = number->step;
            values.insert(values.begin(),
                          {0, -step, step / 2, step + 1, now + step / 2, now - step, now + step,
                           2 * now, number->max + step, now + kBeyond8});
        } else {
            const std::int64_t last = number ? number->max : now;
            for (std::int64_t value = last + 1; value >= (number ? number->min : now) - 1; --value)
                values.insert(values.begin(), value);
        }
        groups.push_back(values_of(field.name, values));
    }
    for (const IntegerField& field : d.integers)  // 258 is 2 where eight bits are read
        if (field.inert) groups.push_back(values_of(field.name, {-1, 1, 2, 258, kMax, kMin}));
}

void add_text_edits(EditGroups& groups, const Call& call) {
    for (const TextField& field : call.description->texts) {
        const auto& now = *std::find_if(call.texts.begin(), call.texts.end(),
                                        [&](const Text& text) { return text.name == field.name; });
        const std::string own = now.value.value_or("");
        groups.push_back(texts_of(field.name, field.tried.empty() ? spellings(own) : field.tried));
        if (!own.empty()) groups.push_back(texts_of(field.name, longer_spellings(own)));
        groups.push_back({field.name + ".absent"});
    }
}

void add_length_edits(EditGroups& groups, const std::string& array,
                      const std::vector<std::int64_t>& lengths, std::int64_t rows) {
    groups.push_back({array + ".absent"});
    groups.push_back({array + ".null", array + ".size=-1"});
    groups.push_back({array + ".size=0"});
    // The first end beyond the second, which stays legal otherwise: only the order is broken.
    if (lengths.size() > 1 && lengths[1] > 0)
        groups.push_back({fmt::format("{}[0]={}", array, lengths[0] + 2 * lengths[1])});
    std::int64_t end = 0;
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        end += lengths[k];
        std::vector<std::int64_t> values{-1,       -2,        end - 1,   end + 1,
                                         rows + 1, rows + 16, INT64_MAX, INT64_MIN};
        // Less of this sequence and more of the next one: the sum of both stays.
        if (k + 1 < lengths.size())
            values.insert(values.end(), {end - lengths[k], end + lengths[k + 1], end - lengths[k] - 1,
                                         end + lengths[k + 1] + 1});
        groups.push_back(values_of(fmt::format("{}[{}]", array, k), values));
    }
}

void add_length_edits(EditGroups& groups, const Extents& extents) {
    for (const ArrayField& array : extents.description().arrays)
        if (!array.ends_of.empty() && array.present.holds(extents))
            add_length_edits(groups, array.name, extents.lengths(array.ends_of),
                             extents.rows(array.ends_of));
}

void add_claim_edits(EditGroups& groups, const Extents& extents) {
    const Description& d = extents.description();
    for (const Claim& claim : d.claims) {
        if (claim.tried) {
            add_values(groups, claim, claim.tried(extents));
            continue;
        }
        const NumberField* field = limits_of(d, claim);
        if (!field) {
            groups.push_back({claim.key});
            continue;
        }
        if (field == &d.numbers[0]) {  // the dtype
            add_values(groups, claim, {ATTNCHECK_FLOAT32});
            continue;
        }
        const std::int64_t now = extents[field->key], step = field->step, half = step / 2;
        std::vector<std::int64_t> limits{0, field->min - step, field->min, field->max,
                                         field->max + step};
        if (half > 0)
            limits.insert(limits.end(),
                          {half, field->min + half, now + half, field->max + half});
        add_values(groups, claim, limits);
        std::vector<std::int64_t> relations{now + step, now - step, now + kBeyond8};
        for (const Claim& other : d.claims) {
            const NumberField* beside = limits_of(d, other);
            if (!beside || beside == field || beside->step != step || beside->max != field->max)
                continue;
            const std::int64_t value = extents[beside->key];
            relations.insert(relations.end(), {value, value - step, value + step});
        }
        add_values(groups, claim, relations);
    }
}

void add_single_edits(EditGroups& groups, const Extents& extents) {
    const Description& d = extents.description();
    for (const IntegerField& field : d.integers) {
        if (field.inert) continue;
        if (const NumberField* number = field_of(d, field.value))
            groups.push_back(values_of(field.name, {number->max + number->step}));
        else if (d.scalar(field.value) < 0)
            groups.push_back(values_of(field.name, {std::stoll(field.value) + 1}));
        if (field.largest > 0) groups.push_back(values_of(field.name, {0}));
    }
    for (const Claim& claim : d.claims)
        if (const NumberField* field = limits_of(d, claim); field && field != &d.numbers[0]) {
            add_values(groups, claim, {field->max + field->step});
            add_values(groups, claim, {0});
        }
    for (const RealField& field : d.reals) groups.push_back({field.name + "=nan"});
    for (const TextField& field : d.texts)
        if (const auto value = field.value(extents))
            groups.push_back(texts_of(field.name, {spellings(*value).front()}));
    const bool fp16 = extents["dtype"] == 0;
    for (const TensorField& tensor : d.tensors)
        if (tensor.present.holds(extents)) {
            const bool other = fp16 && tensor.types.front().type == "dtype";
            groups.push_back(values_of(tensor.name + ".dtype",
                                       {other ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16}));
        }
    if (!d.parallel_lists) return;
    for (std::size_t i = 1; i < d.arrays.size(); ++i)
        if (d.arrays[i].present.holds(extents))
            groups.push_back(
                values_of(d.arrays[i].name + ".size", {extents.sequences() - 1, std::int64_t{0}}));
}

EditGroups derived_edits(const Extents& extents) {
    EditGroups groups;
    const Call call = outline_of(extents);
    add_tensor_edits(groups, call);
    add_number_edits(groups, call);
    add_text_edits(groups, call);
    add_length_edits(groups, extents);
    add_claim_edits(groups, extents);
    add_single_edits(groups, extents);
    return groups;
}

}  // namespace attncheck::properties
