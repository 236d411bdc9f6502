// What a property found out about one case, and how results become verdicts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/judge/compare.h"

namespace attncheck::properties {

/// What judged a failure.
enum class Tier { relation, bound, deviation, filter, memory, validation, crash };
std::string_view name_of(Tier tier);
/// The tier of that name. Throws std::invalid_argument when there is none.
Tier tier_named(std::string_view name);

/// What errors say about a rounding that a candidate may or may not do: least-squares sums, `found`
/// over `expected` is its share (tiers.h).
struct CastEvidence {
    std::string word;  ///< of the rounding class: "p", "ds", "sum"
    double found = 0, expected = 0;
};

/// Elements that were compared with their expectation, and those of them about which the bound says
/// nothing: any result is accepted there.
struct ElementCount {
    std::int64_t compared = 0, unjudged = 0;

    void add(const ElementCount& other) {
        compared += other.compared;
        unjudged += other.unjudged;
    }
    double share() const {
        return compared > 0 ? static_cast<double>(unjudged) / static_cast<double>(compared) : 0;
    }
};

/// Adds up evidence for the same word.
void add_evidence(std::vector<CastEvidence>& all, const CastEvidence& one);

/// How errors compare with another bound than the declared one (bound_evidence.h).
struct BoundEvidence {
    std::string name;
    double worst = 0;        ///< ratio, or what the name says
    std::int64_t cases = 0;  ///< that were compared
};

/// Keeps the worst by name.
void add_evidence(std::vector<BoundEvidence>& all, const BoundEvidence& one);

struct Verdict {
    enum class Kind { held, failed, declined, inapplicable } kind = Kind::held;
    std::string
        failure;  ///< class, constant while shrinking: "mismatch output", "crashed SIGSEGV", ...
    std::string message;     ///< what differs and where, for people; may have several lines
    double worst_ratio = 0;  ///< largest error in units of its bound
    Tier tier = Tier::relation;
    std::vector<CastEvidence> casts = {};
    std::vector<BoundEvidence> bounds = {};
    std::int64_t differing = 0;  ///< elements whose bits differed where any order of sums is right
    ElementCount elements = {};
    std::string clause = {};     ///< of the documented constraints that rejects the call

    static Verdict fail(std::string failure, std::string message, Tier tier = Tier::relation) {
        return {Kind::failed, std::move(failure), std::move(message), 0, tier, {}};
    }
    bool failed() const { return kind == Kind::failed; }
};

/// The failure class of a call that ran into its time limit.
inline constexpr const char* kTimedOut = "timed out";
/// And of one that returned a status other than 0 without more.
inline constexpr const char* kRejectedLegal = "rejected a legal call";

using ExpectedOutputs = std::vector<std::pair<std::string, ref::ExpectedTensor>>;

/// The verdict on a call that did not do its work: crashed, hung, declined, or rejected
/// although legal. nullopt when it returned 0.
std::optional<Verdict> verdict_unless_ok(const CallResult& result);

/// Every output against its expectation; the message shows the worst element. `pair_is_open` (stats=lse): maximum and sum of
/// a row are judged as a pair, and count neither as judged elements nor as others.
Verdict verdict_on_values(const Spec& spec, const Call& call, const CallResult& result,
                          const ExpectedOutputs& expected, bool pair_is_open = false);

/// The expectation of a tensor that both sides of a comparison share, asked for when bits differ.
/// Empty: the candidate promises a fixed order of its sums.
using OpenOrder = std::function<ref::ExpectedTensor()>;

/// Element k of `left` against element k of `right` for one tensor: bit patterns must be equal; NaN
/// payloads and the signs of zeros count as equal. `where(k)` describes element k; elements for
/// which `looked_at(k)` is false are skipped.
///
/// Sums in an open order may leave other bits: then both sides are finite, or neither, and they
/// differ by two bounds at most. Elements that are exact in any order keep equal bits.
Verdict verdict_on_same_bits(const std::string& tensor, ref::Dtype dtype,
                             const std::vector<std::uint32_t>& left,
                             const std::vector<std::uint32_t>& right, const std::string& relation,
                             const std::function<std::string(std::size_t)>& where,
                             const std::function<bool(std::size_t)>& looked_at = {},
                             const OpenOrder& open = {});

/// Equal but for the payload of a NaN and the sign of a zero.
bool are_same(double left, double right);

/// |left - right| <= bound_left + bound_right. A NaN or an infinity must be on both sides: whether it
/// is right, the reference says (agreement), and a relation of two runs cannot.
Verdict verdict_on_difference(const std::string& tensor, const std::vector<double>& left,
                              const std::vector<double>& right, const std::vector<double>& bound,
                              const std::string& relation,
                              const std::function<std::string(std::size_t)>& where);

using ref::decode_all;

std::size_t tensor_index(const Call& call, std::string_view name);

/// "[sequence 0, token 3, head 0, channel 1]" for row-major element k of a tensor of the call.
std::string place_of(const Spec& spec, const Call& call, const std::string& tensor, std::size_t k);

}  // namespace attncheck::properties
