// The only file that sees rapidcheck: its headers and instantiations cost seconds of build time
// each.
#include "properties/search/draws.h"

#include <rapidcheck.h>

#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

namespace attncheck::properties {

/// rapidcheck prints counterexamples through this; they are case lines here.
void showValue(const Spec& spec, std::ostream& os);
void showValue(const Spec& spec, std::ostream& os) { os << print(spec); }

namespace {

class NoListener : public rc::detail::TestListener {
public:
    void onTestCaseFinished(const rc::detail::CaseDescription&) override {}
    void onShrinkTried(const rc::detail::CaseDescription&, bool) override {}
    void onTestFinished(const rc::detail::TestMetadata&, const rc::detail::TestResult&) override {}
};

/// Neighbours as a lazy rapidcheck sequence: each is built only when rapidcheck asks for it, and
/// none when there is no time left (a case that is still large has thousands, each with its data).
struct NeighbourSequence {
    std::vector<Neighbour> list;
    std::function<bool()> stopped;
    std::size_t next = 0;
    rc::Maybe<Spec> operator()() {
        while (next < list.size() && !stopped())
            if (std::optional<Spec> spec = list[next++]()) return *spec;
        return rc::Nothing;
    }
};

void check(const std::string& id, std::uint64_t seed, int cases, const std::function<void()>& test) {
    rc::detail::TestParams params;
    params.seed = seed;
    params.maxSuccess = cases;
    params.maxSize = 100;
    rc::detail::TestMetadata metadata;
    metadata.id = metadata.description = id;
    NoListener listener;
    (void)rc::detail::checkTestable([&] { test(); }, metadata, params, listener,
                                    std::unordered_map<std::string, rc::detail::Reproduce>{});
}

}  // namespace

std::vector<Drawn> draws_of_round(const std::string& id, std::uint64_t seed, int cases) {
    std::vector<Drawn> round;
    const rc::Gen<Drawn> generator([&round](const rc::Random& random, int size) {
        rc::Random copy = random;
        round.push_back({copy.next(), size});
        return rc::shrinkable::just(round.back());
    });
    check(id, seed, cases, [&] { (void)*generator; });
    return round;
}

void walk_down(Walk& walk, KnownMinima& known, std::uint64_t seed, const std::string& id) {
    const rc::Gen<Spec> generator([&](const rc::Random&, int) {
        return rc::shrinkable::shrinkRecur(walk.found().original, [&](const Spec& spec) {
            return rc::makeSeq<NeighbourSequence>(walk.neighbours_of(spec, known),
                                                  [&walk] { return walk.is_over(); });
        });
    });
    bool is_first = true;
    check(id, seed, 2, [&] {
        const Spec spec = *generator;
        const std::string failure =
            std::exchange(is_first, false) ? walk.found().failure : walk.step(spec);
        if (!failure.empty()) RC_FAIL(failure);
    });
}

}  // namespace attncheck::properties
