// Correct implementations with every rounding of a class spelled out: what the second and third
// tier must never accuse. One thread, no tiling beyond what the class says, nothing of impl/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/judge/attention_tiers.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::tiers {

enum class Sums {
    fp32,        ///< product rounded, then added
    fused,       ///< one rounding for both
    fp64,        ///< binary64 throughout
    truncating,  ///< fused, towards zero
    pairwise     ///< fp32, sixteen partial sums
};

struct Emulation {
    Sums sums = Sums::fp32;
    std::int64_t tile = 64;          ///< keys per step of the online softmax
    bool prob_cast = true;           ///< P to the storage type before P V
    bool score_grad_cast = true;     ///< dS likewise
    bool sum_of_cast = false;        ///< the row sum adds up the cast P
    bool normalised_first = false;   ///< P divided by the row sum before its cast
    bool base_two = false;           ///< exp2 of logits times log2 e
    bool scale_before_cast = false;  ///< scale applied to dS rather than to dQ and dK
    bool lse_statistics = false;     ///< returns (LSE, 1)
    std::int64_t stale = 0;          ///< or keeps a maximum until a logit exceeds it by so much
    std::int64_t parts = 1;          ///< parts of the keys, merged by their LSE as stored
    bool parts_cast = false;         ///< and their outputs to the storage type
    bool sink_first = true;          ///< a sink begins the row sum; false: ends it
    bool scores_cast = false;        ///< S to the storage type
    bool delta_cast = false;         ///< <dO, O> likewise
    bool keeps_prob = false;         ///< dS is made of the cast P
    bool steps_cast = false;         ///< every result of an operation of a composition likewise
    bool sink_cast = false;          ///< and a sink
    double tanh_units = 0;           ///< a tanh is off by up to so many units of 2^-24
    bool group_cast = false;         ///< dK and dV of each query head likewise
    ref::Factor factor = ref::Factor::fp32;  ///< of fp32 factors
    ref::Scaling scaling = ref::Scaling::scores;
    bool root_scale = false;  ///< scaling: the root of the scale into q and k rather than all into one of them
    bool scale_key = false;   ///< and that one is k
    bool scale_has_log = false;  ///< log2 e is multiplied into the first of them, too
    double exp_units = 0;  ///< an exponential is off by up to so many units of 2^-24, exp(0) by most
    bool own_forward = false;  ///< a gradient goes by an output and statistics that it forms itself
    bool flush = false;              ///< subnormals of the storage type are zero when read or written

    /// The class this is an instance of.
    ref::RoundingClass rounding() const;
    std::string name() const;
};

/// Factors that make it wrong, for tests of power.
struct Planted {
    double output = 1, query_grad = 1, key_grad = 1, value_grad = 1;
    double delta = 1;      ///< of delta in the gradient
    double scale = 1;      ///< of the logits, where P is made
    double last_tile = 1;  ///< of P of the last tile of 32 keys, in its product with V
};

using Outputs = std::map<std::string, std::vector<double>>;

/// The outputs of the problem in packed order, one number of every statistic.
Outputs emulate(const properties::AttentionProblem& problem, const Emulation& emulation,
                const Planted& planted = {});
Outputs emulate(const properties::CompressProblem& problem, const Emulation& emulation);

}  // namespace attncheck::tiers
