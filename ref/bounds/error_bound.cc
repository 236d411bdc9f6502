#include "ref/bounds/error_bound.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "ref/bounds/probabilistic.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {

constexpr double kOracleRoundoff = 0x1p-53;
constexpr double kMinNormalFp32 = 0x1p-126;  // and of bf16

/// RoundingClass::accumulator_roundoff of acc=half: which half is known only when a sum is
/// finished.
constexpr double kStorageRoundoff = -1;

double power_of_two(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// The arithmetic in which a candidate keeps its partial sums.
struct Accumulator {
    double roundoff;
    double largest;    ///< a partial sum beyond it overflows
    int quantum;       ///< a product that is no multiple of 2^quantum may underflow
    double underflow;  ///< error of one underflow: half a quantum, all of it when the accumulator
                       ///< truncates
};

Accumulator accumulator_of(const Precision& precision) {
    const double u = precision.rounding.accumulator_roundoff;
    const Dtype kind = u < 0 ? precision.dtype : Dtype::fp32;
    if (u >= 0 && u <= kOracleRoundoff) return {u, std::numeric_limits<double>::max(), -1074, 0};
    // The last subnormal bit: 2^-24 for fp16, 2^-133 for bf16, 2^-149 for fp32.
    const int quantum = kind == Dtype::fp16 ? -24 : kind == Dtype::bf16 ? -133 : -149;
    const double roundoff = u < 0 ? unit_roundoff(kind) : u;
    return {roundoff, max_finite(kind), quantum,
            power_of_two(roundoff > unit_roundoff(kind) ? quantum : quantum - 1)};
}

/// Distance of a magnitude to the nearest finite number of the type.
double distance_to_representable(Dtype dtype, double magnitude) {
    const double largest = max_finite(dtype);
    if (magnitude >= largest) return magnitude - largest;
    // Numbers of [2^52 q, 2^53 q) are the multiples of q in binary64, so adding 2^52 q rounds to
    // the quantum q.
    const double shift = half_ulp(dtype, magnitude) * 0x1p53;
    return std::fabs(magnitude - ((magnitude + shift) - shift));
}

/// An exponential or a tanh that errs by more than a rounding to bf16, 2^-8 = 2^16 u, is none: without an end
/// a declaration would widen the bounds until nothing fails.
constexpr double kCoarsestExp = 0x1p16;
constexpr std::int64_t kLargestTile = 1 << 20;  // keys: the longest sequence of a case

/// Reads a number of least..most; false when it is none.
template <class Number>
bool parse_number(std::string_view text, Number least, Number most, Number& number) {
    const char* const end = text.data() + text.size();
    Number read{};
    const auto [stop, error] = std::from_chars(text.data(), end, read);
    if (error != std::errc{} || stop != end || !(read >= least && read <= most))
        return false;
    number = read;
    return true;
}

/// A word of two values: the one that widens the class, and the usual one.
struct Flag {
    std::string_view key, wide, usual;
    bool RoundingClass::*field;
};
constexpr Flag kFlags[] = {
    {"ds", "half", "fp32", &RoundingClass::score_grad_rounded},
    {"sum", "rounded", "fp32", &RoundingClass::row_sum_rounded},
    {"order", "any", "fixed", &RoundingClass::any_order},
    {"stats", "lse", "max", &RoundingClass::lse_statistics},
    {"scores", "half", "fp32", &RoundingClass::scores_rounded},
    {"delta", "half", "fp32", &RoundingClass::delta_rounded},
    {"group", "half", "fp32", &RoundingClass::group_rounded},
    {"hidden", "times_zero", "skipped", &RoundingClass::hidden_times_zero},
    {"forward", "own", "given", &RoundingClass::own_forward},
    {"steps", "half", "fp32", &RoundingClass::steps_rounded},
};

/// P that is kept in the input type is rounded, too.
constexpr std::string_view kProbs[] = {"fp32", "half", "kept"};

/// In the order of Factor, which is that of their roundoffs.
constexpr std::string_view kFactors[] = {"fp32", "bf16x3", "bf16x2", "tf32", "tf32-truncating", "bf16"};

/// Outputs of parts in half are merged by their LSE, too.
constexpr std::string_view kSplits[] = {"none", "lse", "half"};

/// In the order of Scaling.
constexpr std::string_view kScalings[] = {"scores", "fp32", "half"};

/// One word "key=value" of a rounding class; false when it is not known.
bool apply(std::string_view key, std::string_view value, RoundingClass& rounding) {
    if (key == "acc") {
        if (value == "fp32")
            rounding.accumulator_roundoff = 0x1p-24;
        else if (value == "fp32-truncating")
            rounding.accumulator_roundoff = 0x1p-23;
        else if (value == "fp64")
            rounding.accumulator_roundoff = 0x1p-53;
        else if (value == "half")
            rounding.accumulator_roundoff = kStorageRoundoff;
        else
            return false;
        return true;
    }
    if (key == "p") {
        if (std::ranges::find(kProbs, value) == std::end(kProbs)) return false;
        rounding.prob_rounded = value != "fp32";
        rounding.prob_kept = value == "kept";
        return true;
    }
    for (const Flag& flag : kFlags) {
        if (key != flag.key) continue;
        rounding.*flag.field = value == flag.wide;
        return value == flag.wide || value == flag.usual;
    }
    if (key == "in") {
        const auto* const at = std::ranges::find(kFactors, value);
        if (at == std::end(kFactors)) return false;
        rounding.factor = static_cast<Factor>(at - std::begin(kFactors));
        return true;
    }
    if (key == "split") {
        if (std::ranges::find(kSplits, value) == std::end(kSplits)) return false;
        rounding.lse_split = value != "none";
        rounding.parts_rounded = value == "half";
        return true;
    }
    if (key == "scale") {
        const auto* const at = std::ranges::find(kScalings, value);
        if (at == std::end(kScalings)) return false;
        rounding.scaling = static_cast<Scaling>(at - std::begin(kScalings));
        return true;
    }
    if (key == "exp") return parse_number(value, 0.0, kCoarsestExp, rounding.exp_error);
    if (key == "tanh") return parse_number(value, 0.0, kCoarsestExp, rounding.tanh_error);
    if (key == "tile")
        return parse_number<std::int64_t>(value, 1, kLargestTile, rounding.least_tile);
    if (key == "ftz") {
        rounding.flush_subnormals = value == "all";
        rounding.flush_bf16_subnormals = value == "all" || value == "bf16";
        return rounding.flush_bf16_subnormals || value == "none";
    }
    return false;
}

}  // namespace

bool flushes_subnormals(const Precision& precision) {
    const RoundingClass& rounding = precision.rounding;
    return rounding.flush_subnormals || (precision.dtype == Dtype::bf16 && rounding.flush_bf16_subnormals);
}

RoundingClass parse_rounding_class(std::string_view text) {
    RoundingClass rounding;
    std::vector<std::string_view> words;
    constexpr std::string_view kSeparators = " \t\n,";
    for (std::size_t begin = text.find_first_not_of(kSeparators); begin != text.npos;) {
        const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = text.find_first_not_of(kSeparators, end);
    }
    if (words.size() == 1 && words[0] == "default") return rounding;
    if (!words.empty() && words[0] == "fp32") {  // its words, and more
        rounding.prob_rounded = rounding.score_grad_rounded = false;
        words.erase(words.begin());
    }
    std::vector<std::string_view> keys;
    for (const std::string_view word : words) {
        const std::size_t equals = word.find('=');
        if (equals == word.npos ||
            !apply(word.substr(0, equals), word.substr(equals + 1), rounding))
            throw std::invalid_argument(
                "rounding class: '" + std::string(word) +
                "' is not understood; allowed: default, fp32, or a list, which may begin with fp32, of "
                "acc=fp32|fp32-truncating|fp64|half, p=half|kept|fp32, ds=half|fp32, "
                "sum=fp32|rounded, ftz=all|bf16|none, exp=0..65536 (in u), tanh=0..65536 (in u), tile=1..1048576 (keys), "
                "order=any|fixed, stats=lse|max, split=lse|half|none, scores=half|fp32, "
                "delta=half|fp32, group=half|fp32, steps=half|fp32, in=fp32|tf32|tf32-truncating|bf16|bf16x2|bf16x3, "
                "hidden=times_zero|skipped, forward=own|given, scale=scores|fp32|half");
        if (std::ranges::find(keys, word.substr(0, equals)) != keys.end())
            throw std::invalid_argument("rounding class: '" +
                                        std::string(word.substr(0, equals)) +
                                        "' is given twice, allowed: once");
        keys.push_back(word.substr(0, equals));
    }
    return rounding;
}

std::string print_rounding_class(const RoundingClass& rounding) {
    const double u = rounding.accumulator_roundoff;
    std::string text = u < 0          ? "acc=half"
                       : u <= 0x1p-53 ? "acc=fp64"
                       : u <= 0x1p-24 ? "acc=fp32"
                                      : "acc=fp32-truncating";
    text += rounding.prob_kept ? " p=kept" : rounding.prob_rounded ? " p=half" : " p=fp32";
    text += rounding.score_grad_rounded ? " ds=half" : " ds=fp32";
    const RoundingClass usual;
    for (const Flag& flag : kFlags)
        if (flag.key != "ds" && rounding.*flag.field != usual.*flag.field)
            text.append(" ").append(flag.key).append("=").append(
                rounding.*flag.field ? flag.wide : flag.usual);
    if (rounding.lse_split) text += rounding.parts_rounded ? " split=half" : " split=lse";
    if (rounding.factor != usual.factor)
        text.append(" in=").append(kFactors[static_cast<std::size_t>(rounding.factor)]);
    if (rounding.scaling != usual.scaling)
        text.append(" scale=").append(kScalings[static_cast<std::size_t>(rounding.scaling)]);
    if (rounding.flush_bf16_subnormals)
        text += rounding.flush_subnormals ? " ftz=all" : " ftz=bf16";
    const auto add_number = [&](const char* word, double number, double usual_number) {
        char digits[32];
        const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
        if (number != usual_number) text += word + std::string(digits, end);
    };
    add_number(" exp=", rounding.exp_error, usual.exp_error);
    add_number(" tanh=", rounding.tanh_error, usual.tanh_error);
    if (rounding.least_tile != usual.least_tile)
        text += " tile=" + std::to_string(rounding.least_tile);
    return text;
}

RoundingClass weaker(const RoundingClass& a, const RoundingClass& b) {
    // All fields by name: another one does not compile until it is merged here too.
    const auto& [roundoff_a, prob_a, kept_a, score_grad_a, flush_a, row_sum_a, tile_a, exp_a, order_a,
                 statistics_a, split_a, parts_a, scores_a, delta_a, group_a, factor_a, flush_all_a,
                 hidden_a, forward_a, steps_a, tanh_a, scaling_a, cast_a] = a;
    const auto& [roundoff_b, prob_b, kept_b, score_grad_b, flush_b, row_sum_b, tile_b, exp_b, order_b,
                 statistics_b, split_b, parts_b, scores_b, delta_b, group_b, factor_b, flush_all_b,
                 hidden_b, forward_b, steps_b, tanh_b, scaling_b, cast_b] = b;
    const bool half = roundoff_a < 0 || roundoff_b < 0;  // the largest roundoff of all
    return {half ? kStorageRoundoff : std::max(roundoff_a, roundoff_b), prob_a || prob_b, kept_a || kept_b,
            score_grad_a || score_grad_b, flush_a || flush_b, row_sum_a || row_sum_b,
            std::min(tile_a, tile_b), std::max(exp_a, exp_b), order_a || order_b,
            statistics_a || statistics_b, split_a || split_b, parts_a || parts_b, scores_a || scores_b,
            delta_a || delta_b, group_a || group_b, std::max(factor_a, factor_b),
            flush_all_a || flush_all_b, hidden_a || hidden_b, forward_a || forward_b, steps_a || steps_b, std::max(tanh_a, tanh_b),
            std::max(scaling_a, scaling_b), cast_a ? cast_a : cast_b};
}

namespace {

thread_local int probabilistic_bounds = 0;  ///< of this thread, see ProbabilisticGamma

double rigorous_gamma(double terms, double roundoff) {
    const double product = terms * roundoff;
    return product < 1 ? product / (1 - product) : kInfinity;
}

}  // namespace

ProbabilisticGamma::ProbabilisticGamma() { ++probabilistic_bounds; }
ProbabilisticGamma::~ProbabilisticGamma() { --probabilistic_bounds; }

double probabilistic_gamma(double terms, double roundoff) {
    constexpr double kLambda = 6;
    const double growth =
        roundoff < 1 ? std::expm1(kLambda * std::sqrt(std::max(terms, 0.0)) * roundoff +
                                  terms * roundoff * roundoff / (1 - roundoff))
                     : kInfinity;
    return std::min(growth, rigorous_gamma(terms, roundoff));
}

double gamma(double terms, double roundoff) {
    return probabilistic_bounds > 0 ? probabilistic_gamma(terms, roundoff)
                                    : rigorous_gamma(terms, roundoff);
}

int lowest_set_bit(double value) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52 & 0x7ff);
    std::uint64_t significand = bits & ((std::uint64_t{1} << 52) - 1);
    significand |= std::uint64_t{biased != 0} << 52;
    const int lowest = std::max(biased, 1) - 1075 + std::countr_zero(significand);
    return significand == 0 ? kNoSetBit : lowest;
}

void ProductSum::add(double a, double b) {
    const double product = a * b;
    exact += product;
    if (std::isfinite(product)) magnitude += std::fabs(product);
    terms += 1;
    lowest_bit = std::min(lowest_bit, lowest_set_bit(a) + lowest_set_bit(b));
    const auto is_subnormal = [&](double v) { return v != 0 && std::fabs(v) < least; };
    if (is_subnormal(a) || is_subnormal(b)) flushed += std::fabs(product);
}

void finish(const ProductSum& sum, const Precision& precision, ExpectedTensor& out,
            std::size_t index) {
    const auto& [output, rounding] = precision;
    out.value[index] = sum.exact;
    out.bound[index] = 0;
    out.overflow[index] = Overflow::none;
    // No term, only products that are zero or not finite: nothing is rounded.
    if (sum.magnitude == 0 || std::isnan(sum.exact)) return;

    const Accumulator accumulator = accumulator_of(precision);

    // All numbers are multiples of 2^lowest_bit, hence none subnormal in fp32 or bf16 if it is >= -126.
    const double least = min_normal(output);
    const bool flushes = flushes_subnormals(precision) &&
                         (sum.flushed > 0 || sum.lowest_bit < -126 || (sum.exact != 0 && std::fabs(sum.exact) < least));
    const bool exact_in_fp32 = !flushes && accumulator.roundoff <= 0x1p-24 &&
                               sum.lowest_bit >= -149 &&
                               sum.magnitude < power_of_two(sum.lowest_bit + 24);
    double error = 0;
    double peak = sum.magnitude;  // of a partial sum, as computed
    if (!exact_in_fp32) {
        const double growth = gamma(sum.terms, accumulator.roundoff);
        peak *= 1 + growth;
        error = growth * sum.magnitude;
        if (sum.lowest_bit < accumulator.quantum) error += sum.terms * accumulator.underflow;
        // Flushed inputs, then every product and every partial sum, then the result.
        if (flushes) error += sum.flushed + 2 * sum.terms * (rounding.accumulator_roundoff < 0 ? least : kMinNormalFp32);
        // binary64 rounds too, here and in `magnitude`, unless 53 bits hold every partial sum.
        if (!(sum.magnitude < power_of_two(sum.lowest_bit + 53)))
            error += 2 * gamma(sum.terms, kOracleRoundoff) * (sum.magnitude + error);
        if (flushes && std::fabs(sum.exact) < least + error) error += least;
    }
    finish(sum.exact, error, peak, accumulator.largest, output, out, index);
}

void finish(double exact, double error, double peak, double peak_limit, Dtype output,
            ExpectedTensor& out, std::size_t index) {
    out.value[index] = exact;
    out.bound[index] = 0;
    out.overflow[index] = Overflow::none;
    if (!std::isfinite(exact)) {
        if (std::isinf(exact) && std::isfinite(peak) && peak >= peak_limit)
            leave_unjudged(out, index);
        return;
    }
    if (!(error < kInfinity)) return leave_unjudged(out, index);
    const double size = std::fabs(exact), largest = max_finite(output);
    // The number that is narrowed lies within E of the exact one, and its nearest neighbour no
    // farther from it than half an ulp, nor than the exact number's neighbour plus E. 2^-50 pays
    // for the few roundings of this function; it is far below the slack of gamma.
    const double neighbour = distance_to_representable(output, size);
    double bound = error == 0
                       ? neighbour
                       : std::min(error + half_ulp(output, size + error), neighbour + 2 * error) *
                             (1 + 0x1p-50);
    if (peak >= peak_limit || size + error >= largest) {
        // The sign of an overflow is known unless both ends of the interval overflow.
        const double limit = largest + half_ulp(output, largest);
        if (peak >= peak_limit || error - size >= limit) {
            out.overflow[index] = Overflow::any;
        } else if (size + error >= limit) {
            out.overflow[index] = Overflow::signed_infinity;
        }
        // Saturation: the largest finite number is accepted wherever infinity is.
        if (out.overflow[index] != Overflow::none) bound = std::max(bound, size - largest);
    }
    out.bound[index] = bound;
}

void leave_unjudged(ExpectedTensor& out, std::size_t index) {
    if (!std::isfinite(out.value[index])) out.value[index] = 0;
    out.bound[index] = kInfinity;
    out.overflow[index] = Overflow::any;
}

double factor_roundoff(const Precision& precision) {
    const auto& [storage, rounding] = precision;
    if (storage != Dtype::fp32) return 0;
    switch (rounding.factor) {
        case Factor::fp32: return 0;
        // x = h + m + l: |x - h - m - l| <= 2^-24 |x|; the products of m and l, l and m weigh 2^-23.
        case Factor::bf16x3: return 0x1p-23;
        // |x - h - l| <= 2^-16 |x|; the product of l and l weighs 2^-16, half of it per factor.
        case Factor::bf16x2: return 1.5 * 0x1p-16;
        case Factor::tf32: return 0x1p-11;
        case Factor::tf32_truncated: return 0x1p-10;
        case Factor::bf16: return 0x1p-8;
    }
    return 0;
}

double scaling_roundoff(const Precision& precision) {
    const auto& [storage, rounding] = precision;
    switch (rounding.scaling) {
        case Scaling::scores: return 0;
        case Scaling::fp32: return 3 * 0x1p-24;
        case Scaling::half: return unit_roundoff(storage) + 3 * 0x1p-24;
    }
    return 0;
}

bool is_exact(const ExpectedTensor& expected, std::size_t index, Dtype output) {
    // Any error E > 0 makes the bound larger than the distance to the nearest number.
    return std::isfinite(expected.value[index]) && expected.overflow[index] == Overflow::none &&
           expected.bound[index] <=
               distance_to_representable(output, std::fabs(expected.value[index]));
}

double accumulator_roundoff(const Precision& precision) {
    return accumulator_of(precision).roundoff;
}

}  // namespace attncheck::ref
