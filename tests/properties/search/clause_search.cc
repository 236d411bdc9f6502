#include "tests/properties/search/clause_search.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "properties/case/derived.h"
#include "tests/properties/search/pair_search.h"

namespace attncheck::properties {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
    return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

std::string argument_of(const Edit& edit) {
    Edit bare = edit;
    bare.value = std::monostate{};
    return print(bare);
}

/// The value that an edited argument has without the edit, where it is a number.
std::optional<Edit> unchanged(const Call& call, Edit edit) {
    const auto named = [&](const auto& item) { return item.name == edit.name; };
    const auto k = edit.index.empty() ? 0 : static_cast<std::size_t>(edit.index[0]);
    if (const auto t = std::ranges::find_if(call.tensors, named); t != call.tensors.end()) {
        if (edit.attribute == "rank")
            edit.value = std::int64_t{t->rank};
        else if (edit.attribute == "shape" && k < t->shape.size())
            edit.value = t->shape[k];
        else
            return std::nullopt;
    } else if (const auto a = std::ranges::find_if(call.arrays, named); a != call.arrays.end()) {
        if (edit.attribute == "size")
            edit.value = a->size;
        else if (edit.attribute.empty() && k < a->values.size())
            edit.value = a->values[k];
        else
            return std::nullopt;
    } else if (const auto n = std::ranges::find_if(call.numbers, named); n != call.numbers.end()) {
        edit.value = n->value;
    } else if (const auto r = std::ranges::find_if(call.reals, named); r != call.reals.end()) {
        edit.value = r->value;
    } else {
        return std::nullopt;
    }
    return edit;
}

class ClauseSearch {
public:
    explicit ClauseSearch(const Operator& op) : op_(op), property_(*op.property("validation")) {}

    std::vector<FoundClause> run(double seconds) {
        const auto start = SteadyClock::now();
        for (std::uint64_t number = 0; seconds_since(start) < seconds; ++number) {
            auto spec = drawn_case(op_, property_, number);
            if (!spec) continue;
            spec->edits.clear();
            if (!op_.illegal(*spec)) look_at(*spec, number < kFully);
        }
        std::vector<FoundClause> out;
        for (auto& [name, one] : found_) out.push_back(edges_of(name, one));
        std::ranges::stable_sort(out, std::less<>(), &FoundClause::decided);
        return out;
    }

private:
    struct Witness {
        Spec spec;  ///< without edits
        std::vector<Edit> broken, legal;
        std::int64_t cost = INT64_MAX;
    };
    struct Found {
        std::int64_t decided = 0;
        bool by_one_edit = false;
        std::map<std::string, Witness> best;  ///< by the argument that was edited
    };

    static constexpr std::uint64_t kFully = 100;  ///< cases of which every edit is tried
    static constexpr int kShare = 25;             ///< percent of the edits of later ones

    void look_at(const Spec& spec, bool fully) {
        const Call call = op_.build(spec);
        const std::int64_t elements = elements_in(call);
        EditGroups groups = property_.edits(spec);
        std::map<std::string, std::vector<Edit>> by_argument;
        std::set<std::string> seen;
        for (const auto& group : groups)
            for (const Edit& edit : group)
                if (seen.insert(print(edit)).second) by_argument[argument_of(edit)].push_back(edit);
        std::vector<Edit> all;
        for (auto& [argument, edits] : by_argument) {
            if (!fully && !random_.chance(kShare)) continue;
            struct Tried {
                const Edit* edit;
                std::string clause;
            };
            std::vector<Tried> rejected;
            std::vector<Edit> accepted;
            if (const auto now = unchanged(call, edits.front())) accepted.push_back(*now);
            for (const Edit& edit : edits) {
                all.push_back(edit);
                const auto ruling = ruling_on(spec, call, {edit});
                if (!ruling) continue;
                if (ruling->accepted())
                    accepted.push_back(edit);
                else
                    rejected.push_back({&edit, ruling->clause});
            }
            for (const Tried& one : rejected)
                note(one.clause, spec, elements, {*one.edit}, nearest(accepted, *one.edit));
        }
        for (int k = 0; k < (fully ? kPairs : kPairs / 2) && all.size() > 1; ++k) {
            const std::vector<Edit> two{random_.pick(all), random_.pick(all)};
            const auto ruling = ruling_on(spec, call, two);
            if (ruling && !ruling->accepted() &&
                (!found_.contains(ruling->clause) || !found_.at(ruling->clause).by_one_edit))
                note(ruling->clause, spec, elements, two, std::nullopt);
        }
    }

    static constexpr int kPairs = 40;

    static std::optional<Edit> nearest(const std::vector<Edit>& accepted, const Edit& edit) {
        const auto distance = [&](const Edit& other) {
            try {
                return std::abs(other.real() - edit.real());
            } catch (const std::invalid_argument&) {
                return 0.0;
            }
        };
        const auto at = std::ranges::min_element(accepted, std::less<>(), distance);
        return at == accepted.end() ? std::nullopt : std::optional(*at);
    }

    /// An edit that lays out other buffers is slow: tried now and then.
    std::optional<ref::Ruling> ruling_on(const Spec& spec, const Call& call,
                                         const std::vector<Edit>& edits) {
        const bool claims = std::ranges::any_of(
            edits, [&](const Edit& edit) { return spec.schema->claim_of(edit) != nullptr; });
        try {
            if (!claims) {
                Call edited = call;
                for (const Edit& edit : edits) apply_edit(edited, edit);
                return rule(edited);
            }
            double& cost = slow_[print(edits.front())];
            if (cost > 0.002 && !random_.chance(2)) return std::nullopt;
            const auto start = SteadyClock::now();
            Spec edited = spec;
            edited.edits = edits;
            const auto ruling = ruling_of(edited);
            cost = seconds_since(start);
            return ruling;
        } catch (const std::invalid_argument&) {
            return std::nullopt;
        }
    }

    static std::int64_t elements_in(const Call& call) {
        std::int64_t sum = 0;
        for (const Tensor& tensor : call.tensors)
            if (tensor.present) sum += static_cast<std::int64_t>(tensor.elements());
        return sum;
    }

    void note(const std::string& clause, const Spec& spec, std::int64_t elements,
              const std::vector<Edit>& broken, const std::optional<Edit>& legal) {
        Found& found = found_[clause];
        ++found.decided;
        std::int64_t cost = elements + 1000 * std::ssize(broken) + (legal ? 0 : 500) +
                            20 * static_cast<std::int64_t>(print(spec).size());
        for (const Edit& edit : broken)  // an extreme says less than a value beside the edge
            if (const auto* value = std::get_if<std::int64_t>(&edit.value))
                cost += std::abs(static_cast<double>(*value)) > 1e9 ? 400 : 0;
        if (broken.size() == 1 && !found.by_one_edit) {
            found.by_one_edit = true;
            found.best.clear();
        }
        Witness& best = found.best[broken.size() > 1 ? "" : broken.front().name];
        if (cost >= best.cost) return;
        best = {spec, broken, {}, cost};
        if (legal) best.legal = {*legal};
    }

    FoundClause edges_of(const std::string& name, const Found& found) {
        FoundClause out{name, found.decided, {}};
        std::vector<Witness> cheapest;
        for (const auto& [argument, witness] : found.best) cheapest.push_back(witness);
        std::ranges::stable_sort(cheapest, std::less<>(), &Witness::cost);
        cheapest.resize(std::min(cheapest.size(), kArguments));
        for (const Witness& witness : cheapest) add_edges(witness, out);
        return out;
    }

    void add_edges(const Witness& witness, FoundClause& out) {
        Spec broken = witness.spec, legal = witness.spec;
        broken.edits = witness.broken;
        legal.edits = witness.legal;
        const auto add = [&](const Spec& rejected, const std::optional<Spec>& accepted) {
            FoundEdge edge{rejected, std::nullopt};
            if (accepted && !accepted->edits.empty()) {
                const auto ruling = ruling_of(*accepted);
                if (ruling && ruling->accepted() && elements_of(*accepted) <= kSmall)
                    edge.legal = accepted;
            }
            if (std::ranges::none_of(out.edges, [&](const FoundEdge& known) {
                    return known.broken == edge.broken;
                }))
                out.edges.push_back(std::move(edge));
        };
        if (legal.edits.empty()) return add(broken, std::nullopt);
        for (const std::int64_t step : {1, 8, 16}) {
            const Edge near = nearest_edge({broken, legal}, out.name, step);
            const auto ruling = ruling_of(near.broken);
            if (ruling && ruling->clause == out.name) add(near.broken, near.legal);
        }
    }

    static constexpr std::size_t kArguments = 3;  ///< that break a clause, cheapest first
    static constexpr std::int64_t kSmall = std::int64_t{1} << 20;

    const Operator& op_;
    const Property& property_;
    std::map<std::string, Found> found_;
    std::map<std::string, double> slow_;
    Random random_{1};
};

}  // namespace

std::vector<FoundClause> search_clauses(const Operator& op, double seconds) {
    return ClauseSearch(op).run(seconds);
}

std::vector<Spec> search_limits(const Operator& op, int draws) {
    constexpr std::int64_t kSmall = std::int64_t{1} << 18;
    constexpr std::int64_t kLargest = 4096;  // other fields are numbers of rows
    const Property& property = *op.property("validation");
    std::map<std::pair<std::size_t, std::int64_t>, std::pair<std::int64_t, Spec>> best;
    for (int number = 0; number < draws; ++number) {
        const auto drawn = drawn_case(op, property, static_cast<std::uint64_t>(number));
        if (!drawn) continue;
        for (std::size_t i = 0; i < drawn->numbers.size(); ++i) {
            const NumberField& field = op.schema().numbers[i];
            if (!field.names.empty() || field.max > kLargest) continue;
            for (const std::int64_t value : {field.min, field.max}) {
                Spec spec = *drawn;
                spec.edits.clear();
                const std::int64_t now = std::max<std::int64_t>(1, spec.numbers[i]);
                spec.numbers[i] = value;
                if (op.illegal(spec))  // lengths may have to grow with it
                    for (auto& list : spec.lists)
                        for (auto& length : list) length *= (value + now - 1) / now;
                if (op.illegal(spec)) continue;
                std::int64_t cost = 0;
                for (const auto& shape : op.shapes(spec))
                    cost += std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                                            std::multiplies<>());
                auto& [least, kept] = best.try_emplace({i, value}, kSmall, spec).first->second;
                if (cost < least) least = cost, kept = spec;
            }
        }
    }
    std::vector<Spec> out;
    for (auto& [limit, found] : best) {
        auto& [cost, spec] = found;
        const Call call = op.build(spec);
        const auto same = call.numbers.empty()
                              ? std::nullopt
                              : unchanged(call, Edit(call.numbers.front().name));
        if (cost >= kSmall || !same) continue;
        spec.edits = {*same};
        out.push_back(spec);
    }
    return out;
}

std::int64_t elements_of(const Spec& spec) {
    std::int64_t sum = 0;
    for (const Tensor& tensor : spec.schema->build(spec).tensors)
        if (tensor.present) sum += static_cast<std::int64_t>(tensor.elements());
    return sum;
}

}  // namespace attncheck::properties
