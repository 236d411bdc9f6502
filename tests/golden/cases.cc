#include "cases.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

#include "digest.h"
#include "properties/search/shrink.h"

namespace attncheck::golden {

using namespace properties;

// Steps are odd, so that both profiles of `draw` occur. Together they take 45 s of one core.
const std::array<Kind, kKinds> kKindTable{{
    {"case", 1, "the case line"},
    {"labels", 1, "classes of the case, in order"},
    {"edits", 5, "16 draws of edits for the case, by a validation property"},
    {"arguments", 3, "the call without elements, the C struct, the ruling"},
    {"places", 15, "shapes, and words for the first, middle and last element of each output"},
    {"buffers", 15, "the call with the elements of its inputs"},
    {"shrinks", 25, "first 200 neighbours of the case, and of the case with elements set"},
}};

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kNeighbours = 200;
constexpr int kEditDraws = 16;
constexpr std::size_t kWrittenElements = 2000, kKeptElements = 24;

/// The steps of the engine (Search::draw); sizes rise from 0 to 100 over the cases. Odd cases are for
/// the platform that has fp8.
Spec draw(const Operator& op, const Property& property, int number) {
    Random random(Digest()
                      .add(kSeed)
                      .add(op.name())
                      .add(property.name)
                      .add(static_cast<std::uint64_t>(number))
                      .value());
    const Profile profile = number % 2 == 0 ? Profile::ascend910b : Profile::ascend950;
    for (int tries = 0; tries < 100; ++tries) {
        Spec spec = op.sample(random, number * 101 / kCases, profile);
        if (property.adapt) property.adapt(spec, random);
        if (!op.illegal(spec) && (!property.domain || property.domain(spec))) return spec;
    }
    throw std::logic_error(fmt::format("{}: the generator of {} leaves its own domain", op.name(),
                                       property.name));
}

std::uint64_t hash_labels(const Operator& op, const Spec& spec) {
    Digest digest;
    for (const std::string& label : op.labels(spec)) digest.add(label);
    return digest.value();
}

/// The lists of edits are private to the two validation properties. Their `adapt` draws from them.
std::optional<std::uint64_t> hash_edits(const Property& property, const Spec& spec) {
    if (!property.validation || !property.adapt) return std::nullopt;
    Digest digest;
    for (int k = 0; k < kEditDraws; ++k) {
        Random random(static_cast<std::uint64_t>(k));
        Spec edited = spec;
        edited.edits.clear();
        property.adapt(edited, random);
        for (const Edit& edit : edited.edits) digest.add(print(edit));
    }
    return digest.value();
}

std::uint64_t hash_arguments(const Operator& op, const Spec& spec) {
    const Call call = spec.edits.empty() ? op.outline(spec) : op.build(spec);
    Digest digest;
    add_arguments(digest, call);
    if (op.entry_points() == std::vector{op.name()}) add_packed(digest, call);
    add_ruling(digest, rule(call));
    return digest.value();
}

/// Verdicts describe elements of outputs; edits may widen a tensor beyond the case.
std::uint64_t hash_places(const Operator& op, Spec spec) {
    spec.edits.clear();
    Digest digest;
    for (const auto& shape : op.shapes(spec)) digest.add(std::span(shape));
    for (const Tensor& tensor : op.outline(spec).tensors) {
        const auto elements = static_cast<std::int64_t>(tensor.elements());
        if (!tensor.present || !tensor.output || elements == 0) continue;
        for (const std::int64_t k : {std::int64_t{0}, elements / 2, elements - 1})
            digest.add(describe(spec, tensor.name, coordinates(k, tensor.buffer_shape)));
    }
    return digest.value();
}

std::uint64_t hash_buffers(const Operator& op, const Spec& spec) {
    const Call call = op.build(spec);
    Digest digest;
    add_arguments(digest, call);
    add_elements(digest, call);
    return digest.value();
}

void add_neighbours(Digest& digest, const Operator& op, const Property& property,
                    const Spec& spec) {
    std::size_t left = kNeighbours;
    for (const Neighbour& neighbour : neighbours(spec, op, property.domain)) {
        const std::optional<Spec> simpler = neighbour();
        digest.add(simpler ? print(*simpler) : "");
        if (--left == 0) return;
    }
}

/// Few generated cases set elements, so a second list is that of a case with some.
std::uint64_t hash_shrinks(const Operator& op, const Property& property, const Spec& spec) {
    Digest digest;
    add_neighbours(digest, op, property, spec);
    std::optional<Spec> written = written_out(spec, op, kWrittenElements);
    if (!written) return digest.value();
    const std::size_t step = written->overrides.size() / kKeptElements + 1;  // of all tensors
    std::erase_if(written->overrides, [&, k = std::size_t{0}](const auto&) mutable {
        return k++ % step != 0;
    });
    if (!op.illegal(*written) && (!property.domain || property.domain(*written)))
        add_neighbours(digest, op, property, *written);
    return digest.value();
}

CaseHashes hash_case(const Operator& op, const Property& property, int number, bool all) {
    const auto taken = [&](KindIndex kind) {
        return all || number % kKindTable[kind].step == 0;
    };
    const Spec spec = draw(op, property, number);
    CaseHashes out{print(spec), {}};
    out.hashes[kCase] = Digest().add(out.line).value();
    out.hashes[kLabels] = hash_labels(op, spec);
    if (taken(kEdits)) out.hashes[kEdits] = hash_edits(property, spec);
    if (taken(kArguments)) out.hashes[kArguments] = hash_arguments(op, spec);
    if (taken(kPlaces)) out.hashes[kPlaces] = hash_places(op, spec);
    if (taken(kBuffers) && !property.large) out.hashes[kBuffers] = hash_buffers(op, spec);
    if (taken(kShrinks)) out.hashes[kShrinks] = hash_shrinks(op, property, spec);
    return out;
}

}  // namespace

std::vector<CaseHashes> hash_cases(const Operator& op, const Property& property, bool all) {
    std::vector<CaseHashes> out;
    for (int number = 0; number < kCases; ++number)
        out.push_back(hash_case(op, property, number, all));
    if (!property.large) return out;
    constexpr std::int64_t kLength = 65536;
    for (const Spec& spec : op.large_cases(kLength, kSeed)) {
        out.push_back({print(spec), {}});
        out.back().hashes[kCase] = Digest().add(out.back().line).value();
    }
    return out;
}

std::array<std::optional<std::uint64_t>, kKinds> summary(const std::vector<CaseHashes>& cases) {
    std::array<std::optional<std::uint64_t>, kKinds> out;
    for (int kind = 0; kind < kKinds; ++kind) {
        Digest digest;
        bool any = false;
        for (const CaseHashes& one : cases)
            if (const auto& hash = one.hashes[kind]) {
                digest.add(*hash);
                any = true;
            }
        if (any) out[kind] = digest.value();
    }
    return out;
}

}  // namespace attncheck::golden
