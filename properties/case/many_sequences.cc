#include "properties/case/many_sequences.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "properties/case/derived.h"
#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

constexpr int kPercent = 4, kPackedPercent = 12, kLargePercent = 16, kMiddlePercent = 40, kLargeTables = 2, kSparse = 60, kFilled = 6;
constexpr std::int64_t kFew = 7, kNarrow = 16, kSmallPage = 4, kShort = 24;

/// Kernels keep lengths in tables of 32, of 64 or 128, or of one entry for each of 1024 threads. Two sequences behind a table
/// show one whose last entry is taken for all of them.
struct Table {
    std::int64_t fewest, most;
    double elements;  ///< of all tensors together
};
constexpr Table kSmall{kFew, 33, 200'000}, kMiddle{34, 130, 1'000'000}, kLarge{1025, 1030, 1'000'000};

/// How sequences are made of those of the case: which lists may have any shorter length. The lengths of
/// keys can depend on other fields, and those of queries be one. Elsewhere they are `whole`, or some tens
/// in steps of a small block.
/// `sparse`: most of them are empty, so that wide rows are no more than a case may cost.
struct Cut {
    bool first = true, others = true, whole = true, all_alike = false, sparse = false;
    bool takes(std::size_t list) const { return list == 0 ? first : others; }
};

/// `count` sequences, each as long as one of the case's or shorter. The last one has rows if the case has:
/// it is the first behind a table.
Spec repeated(const Spec& spec, std::int64_t count, const Cut& cut, Random& random) {
    Spec many = spec;
    many.overrides.clear();
    for (auto& list : many.lists) list.clear();
    const auto length_of = [&](std::size_t k, std::size_t b) {
        return spec.lists[k][std::min(b, spec.lists[k].size() - 1)];
    };
    const auto draw = [&](bool with_rows) {
        auto from = static_cast<std::size_t>(random.between(0, std::ssize(spec.lists[0]) - 1));
        for (std::size_t b = 0; with_rows && b < spec.lists[0].size(); ++b)
            if (length_of(0, b) > 0 && length_of(many.lists.size() - 1, b) > 0) from = b;
        for (std::size_t k = 0; k < many.lists.size(); ++k) {
            const std::int64_t length = length_of(k, from);
            const std::int64_t any = random.pick<std::int64_t>({0, 1, 1, 2, 3, 5, length, length});
            const bool is_free = cut.takes(k);
            const std::int64_t some = is_free     ? any
                                      : cut.whole ? length
                                                  : random.pick<std::int64_t>({0, 16, 16, 48});
            // Keys behind the first lists: a defect may need more of them than a tile has, in a late sequence.
            const bool is_kept = k > 0 && (cut.whole || is_free) && random.chance(50);
            const std::int64_t least = with_rows ? (is_free || cut.whole ? 1 : 16) : 0;
            many.lists[k].push_back(is_kept ? length : std::min(length, std::max(some, least)));
        }
    };
    for (std::int64_t b = 0; b < count; ++b) {
        const bool is_last = b == count - 1;
        if (cut.sparse && !is_last && !random.chance(kFilled)) {
            for (std::size_t k = 0; k < many.lists.size(); ++k)
                many.lists[k].push_back(cut.takes(k) || !cut.whole ? 0 : length_of(k, 0));
            continue;
        }
        if (b == 0 || !cut.all_alike) {
            draw(is_last);
            continue;
        }
        for (auto& list : many.lists) list.push_back(list.front());
    }
    return many;
}

/// A case of long rows: many of them cost seconds where a kernel takes wide ones only.
bool is_long(const std::vector<std::int64_t>& lengths) {
    constexpr std::int64_t kLong = 1000;
    return std::ranges::any_of(lengths, [](std::int64_t length) { return length > kLong; });
}

Spec with_one_head(Spec spec) {
    for (std::size_t i = 0; i < spec.numbers.size(); ++i) {
        const NumberField& field = spec.schema->numbers[i];
        if (field.word == "head") spec.numbers[i] = std::max<std::int64_t>(field.min, 1);
    }
    return spec;
}

/// The same with narrow rows and lists of one small block: a thousand sequences of wide ones are more than
/// a case may cost.
Spec narrow(Spec spec) {
    for (std::size_t i = 0; i < spec.numbers.size(); ++i) {
        const NumberField& field = spec.schema->numbers[i];
        if (field.key == "block" || field.key == "count") spec.numbers[i] = field.min;
        if (field.key == "dim" || field.key == "value_dim")
            spec.numbers[i] = std::min(spec.numbers[i], std::max(field.min, kNarrow));
        if (field.key == "page") spec.numbers[i] = std::min(spec.numbers[i], kSmallPage);
    }
    return spec;
}

/// The same with short lengths: where most of them are kept, a thousand long ones are too much.
Spec shortened(Spec spec) {
    for (auto& list : spec.lists)
        for (std::int64_t& length : list) length = std::min(length, kShort);
    return spec;
}

/// The first of these cases, cut to so many sequences, that is legal and not too large.
std::optional<Spec> first_repeated(const std::vector<Spec>& cases, std::int64_t count, const Table& table, bool sparse,
                                   Random& random) {
    constexpr Cut kCuts[] = {{true, true}, {false, true}, {true, false}, {true, false, false}};
    for (const Spec& from : cases)
        for (const bool all_alike : {false, true})
            for (Cut cut : kCuts) {
                if (sparse && all_alike) continue;
                cut.all_alike = all_alike, cut.sparse = sparse;
                Spec many = repeated(from, count, cut, random);
                if (!illegal(many) && elements_of_tensors(many) <= table.elements) return many;
            }
    return std::nullopt;
}

void repeat_sequences(Spec& spec, const Table& table, Random& random) {
    if (spec.lists.empty() || spec.lists[0].empty()) return;
    const std::int64_t most = std::min(table.most, spec.schema->lists[0].max_size);
    if (most < kFew) return;
    const std::int64_t count = random.between(std::min(table.fewest, most), most);
    const bool sparse = table.fewest > kSmall.most && random.chance(kSparse);
    const std::vector<Spec> small{with_one_head(spec), narrow(with_one_head(spec)), shortened(narrow(with_one_head(spec)))};
    std::vector<Spec> wide = small;
    wide.insert(wide.begin(), spec);
    std::optional<Spec> many;
    if (sparse) many = first_repeated(wide, count, table, true, random);
    if (!many && std::ranges::none_of(spec.lists, is_long)) many = first_repeated(small, count, table, false, random);
    if (!many && !sparse) many = first_repeated(wide, count, table, true, random);
    if (many) spec = *std::move(many);
}

}  // namespace

double elements_of_tensors(const Spec& spec) {
    double elements = 0;
    for (const auto& shape : shapes_of(extents_of(spec)))
        elements += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
    return elements;
}

void draw_many_sequences(Spec& spec) {
    if (spec.lists.empty() || spec.lists[0].empty()) return;
    Random random(mix(spec.seed) ^ static_cast<std::uint64_t>(spec.lists[0].size()));
    // Where a layout among others packs sequences, few cases have lengths of their own.
    const bool is_packed = spec.schema->number("layout") >= 0 && std::ranges::adjacent_find(spec.lists[0], std::not_equal_to<>()) !=
                                                                     spec.lists[0].end();
    if (!random.chance(is_packed ? kPackedPercent : kPercent)) return;
    const bool is_large = random.chance(kLargePercent);
    repeat_sequences(spec, is_large ? kLarge : random.chance(kMiddlePercent) ? kMiddle : kSmall, random);
}

void draw_large_table(Spec& spec, Random& random) {
    if (random.chance(kLargeTables)) repeat_sequences(spec, kLarge, random);
}

}  // namespace attncheck::properties
