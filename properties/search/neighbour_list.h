// The neighbours of one case in the order in which shrinking tries them.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "properties/operators/operator.h"
#include "properties/search/shrink.h"

namespace attncheck::properties {

class NeighbourList {
public:
    /// Refers to the operator and to the domain.
    NeighbourList(const Spec& of, const Operator& op,
                  const std::function<bool(const Spec&)>& domain)
        : op_(op), domain_(domain), key_(complexity(of)) {}

    /// A neighbour only where `make` gives a case that is legal, simpler and in the domain.
    void add(std::function<std::optional<Spec>()> make) {
        out_.push_back([make = std::move(make), op = &op_, domain = &domain_,
                        key = key_]() -> std::optional<Spec> {
            std::optional<Spec> spec = make();
            if (!spec || !(complexity(*spec) < key) || op->illegal(*spec)) return std::nullopt;
            if (*domain && !(*domain)(*spec)) return std::nullopt;
            return spec;
        });
    }

    std::vector<Neighbour> take() { return std::move(out_); }

private:
    const Operator& op_;
    const std::function<bool(const Spec&)>& domain_;
    std::vector<std::int64_t> key_;
    std::vector<Neighbour> out_;
};

}  // namespace attncheck::properties
