#include "validity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "properties/case/attention_data.h"
#include "properties/operators/catalogue.h"
#include "properties/laws/attention_operator.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::tiers {
namespace {

using namespace properties;

Emulation random_emulation(Random& random) {
    Emulation e;
    e.sums = static_cast<Sums>(random.between(0, 4));
    e.tile = random.pick<std::int64_t>({16, 32, 64, 128, 1 << 20});
    e.prob_cast = random.chance(60);
    e.score_grad_cast = random.chance(60);
    e.sum_of_cast = e.prob_cast && random.chance(25);
    e.normalised_first = random.chance(30) && !e.sum_of_cast;
    e.base_two = random.chance(30);
    e.scale_before_cast = random.chance(30);
    e.sink_first = random.chance(60);
    return e;
}

/// One word, or several with a space between them.
std::vector<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
}

/// Gives an emulation the roundings of a word.
void take_word(const std::string& word, Emulation& e, Random& random) {
    if (word == "stats=lse") {
        if (random.chance(50))
            e.lse_statistics = true;
        else
            e.stale = random.between(1, 8);
    } else if (word == "split=lse" || word == "split=half") {
        e.parts_cast = word == "split=half";
        e.parts = random.pick<std::int64_t>({2, 3, 4, 8});
        e.normalised_first = false;
    } else if (word == "scores=half") {
        e.scores_cast = true;
    } else if (word == "p=kept") {
        e.keeps_prob = e.prob_cast = true;
    } else if (word == "steps=half") {
        e.steps_cast = true;
        e.sink_cast = random.chance(50);
        e.base_two = false;
    } else if (word.starts_with("tanh=")) {
        e.tanh_units = ref::parse_rounding_class(word).tanh_error;
    } else if (word == "delta=half") {
        e.delta_cast = true;
    } else if (word == "group=half") {
        e.group_cast = true;
    } else if (word.starts_with("exp=")) {
        e.exp_units = ref::parse_rounding_class(word).exp_error - 4;  // 4 are those of a good one
    } else if (word == "ftz=all") {
        e.flush = true;
    } else if (word == "tile=1") {
        e.tile = random.between(1, 15);
    } else if (word == "forward=own") {
        e.own_forward = true;
    } else if (word.starts_with("in=")) {
        e.factor = ref::parse_rounding_class(word).factor;
    } else if (word.starts_with("scale=")) {
        e.scaling = ref::parse_rounding_class(word).scaling;
        e.root_scale = random.chance(50);
        e.scale_key = random.chance(30);
        e.scale_has_log = random.chance(50);
        e.scale_before_cast = false;
    } else {
        throw std::invalid_argument("no emulation has the word '" + word + "'");
    }
}

/// Whether the word may say anything about cases of this operator.
bool may_concern(const std::string& word, const Schema& schema) {
    const bool gradient = schema.tensor("dq") >= 0;
    if (word == "group=half" || word == "delta=half" || word == "p=kept" || word == "forward=own") return gradient;
    if (word.starts_with("tanh=")) return schema.number("softcap") >= 0;
    if (word == "stats=lse" || word.starts_with("split=") || word == "tile=1") return !gradient;
    return true;
}
bool all_may_concern(const std::vector<std::string>& words, const Schema& schema) {
    return std::ranges::all_of(words, [&](const std::string& word) { return may_concern(word, schema); });
}

/// And whether all of them say anything about this one.
bool all_concern(const std::vector<std::string>& words, const Spec& spec) {
    return std::ranges::all_of(words, [&](const std::string& word) {
        if (word.starts_with("in=") && spec.number("dtype") != dtype_field(ref::Dtype::fp32)) return false;
        if (word == "group=half" && spec.number("group") < 2) return false;
        if (word.starts_with("tanh=") && (!may_concern(word, *spec.schema) || spec.number("softcap") == 0)) return false;
        return may_concern(word, *spec.schema);
    });
}

/// The case in the type, or with the heads, that the words are about, where that is legal.
Spec concerned(const std::vector<std::string>& words, const Operator& op, Spec spec) {
    Spec next = spec;
    for (const std::string& word : words) {
        if (word.starts_with("in=")) next.set("dtype", dtype_field(ref::Dtype::fp32));
        if (word == "group=half" && spec.number("group") == 1) next.set("group", 2);
        if (word.starts_with("tanh=") && spec.number("softcap") == 0) next.set("softcap", 20);
    }
    return next == spec || op.illegal(next) ? spec : next;
}

/// Whether the emulated kernels compute it: a gradient is given its statistics.
bool is_emulated(const AttentionProblem& problem) {
    return !(problem.gradient && problem.statistics == Statistics::none);
}

/// The class itself, or a coarser one that it belongs to as well.
ref::RoundingClass declared_for(const Emulation& emulation, Random& random) {
    ref::RoundingClass declared = emulation.rounding();
    if (random.chance(30)) declared.prob_rounded = declared.score_grad_rounded = true;
    return declared;
}

/// Multiplications of one product of all pairs, and elements of all inputs: about what a case costs.
std::int64_t cost_of(const Spec& spec) {
    const auto number = [&](const char* field, std::int64_t otherwise) {
        return spec.schema->number(field) < 0 ? otherwise : spec.number(field);
    };
    const std::int64_t chosen = number("count", 0) * number("block", 0);
    std::int64_t rows = 0;
    for (std::size_t b = 0; b < spec.lists[0].size() && spec.lists.size() > 1; ++b) {
        const std::int64_t q = spec.lists[0][b], kv = spec.lists[1][b];
        rows += q * (chosen > 0 ? std::min(kv, chosen) : kv) + q + kv;
    }
    return rows * number("kv_heads", 1) * number("group", 1) * (number("dim", 1) + number("value_dim", 0));
}

/// The case with shorter lengths and narrower heads; without some of that where it would be illegal.
Spec cut_down(const Operator& op, const Property& property, const Spec& spec, bool further) {
    constexpr std::int64_t kLong = 128, kFewest = 6;
    Spec small = spec;
    const auto take_if_legal = [&](auto&& change) {
        Spec next = small;
        change(next);
        if (!op.illegal(next) && property.domain(next)) small = std::move(next);
    };
    const auto shorten = [&](Spec& to, std::size_t list) {
        for (auto& length : to.lists[list])
            length = std::max(std::min(length, kFewest), (length + 3) / (further && length > kLong ? 12 : 4));
    };
    const auto narrow = [](Spec& to) {
        for (const char* field : {"dim", "value_dim"})
            if (to.schema->number(field) >= 0 && to.number(field) > 40)
                to.set(field, to.number("dim") % 3 == 0 ? 32 : 16);
    };
    take_if_legal([&](Spec& to) {
        for (std::size_t list = 0; list < to.lists.size(); ++list) shorten(to, list);
        narrow(to);
    });
    if (!further || small != spec) return small;
    take_if_legal(narrow);
    for (std::size_t list = 0; list < small.lists.size(); ++list)
        take_if_legal([&](Spec& to) { shorten(to, list); });
    return small;
}

/// The case with 1 to 12 queries, keys or both in each sequence, up to 1500 of the other, 1 to 8 channels, and
/// in two of three cases a sink: sums of few terms, and sums of many numbers that lie close together. nullopt where that is illegal.
std::optional<Spec> with_few(const Operator& op, const Property& property, Spec spec, Random& random) {
    constexpr std::int64_t kFew = 12, kMany = 1500, kChannels = 8;
    const auto side = random.between(0, 2);  // queries, keys, both
    const std::int64_t many = random.between(kFew, random.chance(30) ? kMany : 4 * kFew);
    for (std::size_t list = 0; list < spec.lists.size(); ++list) {
        const bool is_few = side == 2 || side == static_cast<std::int64_t>(list);
        const std::int64_t length = is_few ? random.between(1, kFew) : many;
        for (auto& one : spec.lists[list])
            if (one > 0) one = length;
    }
    for (const char* field : {"dim", "value_dim"})
        if (spec.schema->number(field) >= 0) spec.set(field, random.between(1, kChannels));
    if (spec.schema->number("sink") >= 0 && random.chance(67)) spec.set("sink", random.between(1, 2));
    if (op.illegal(spec) || !property.domain(spec)) return std::nullopt;
    return spec;
}

/// A case of the property's own generator. Nine in ten are cut down to a few thousand pairs; or all of them,
/// and what stays dear is left out. few: those that take with_few().
Spec draw(const Operator& op, Random& random, bool always_small, bool few) {
    constexpr std::int64_t kDear = 100'000;
    constexpr int kTries = 40;  // selected blocks are never so short, nor heads of some operators so narrow
    const Property& property = *op.property("deviation");
    for (int tries = 0;; ++tries) {
        const int size = static_cast<int>(random.between(0, 99));
        Spec spec = op.sample(random, always_small ? size / 4 : size);
        property.adapt(spec, random);
        if (op.illegal(spec) || !property.domain(spec)) continue;
        if (!always_small && !random.chance(90)) return spec;
        spec = cut_down(op, property, spec, always_small);
        if (few && tries < kTries) {
            const std::optional<Spec> changed = with_few(op, property, spec, random);
            if (!changed) continue;
            spec = *changed;
        }
        if (!always_small || cost_of(spec) <= kDear) return spec;
    }
}

/// The operators whose noise the suite predicts.
std::vector<const Operator*> operators_with_tiers() {
    std::vector<const Operator*> out;
    for (const auto& op : operators())
        if (op->property("deviation") != nullptr) out.push_back(op.get());
    return out;
}

/// The last three, with the smallest heads and the most features, four times as often.
const Operator& operator_of(std::uint64_t turn) {
    static const std::vector<const Operator*> all = operators_with_tiers();
    const std::size_t most = std::min<std::size_t>(all.size(), 3), at = turn % (all.size() + 3 * most);
    return *all[at < all.size() ? at : all.size() - most + (at - all.size()) % most];
}

double worst_ratio(const ref::ExpectedTensor& expected, const std::vector<double>& got) {
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i] != expected.value[i])  // -infinity is the LSE of a row that sees nothing
            worst = std::max(
                worst, error_ratio(std::fabs(got[i] - expected.value[i]), expected.bound[i]));
    return worst;
}

double bound_ratio(const AttentionProblem& p, const Outputs& got,
                   const ref::RoundingClass& declared) {
    double worst = 0;
    if (p.gradient) {
        for (const auto& [name, expected] : expected_of(p, declared))
            worst = std::max(worst, worst_ratio(expected, got.at(name)));
        return worst;
    }
    const AttentionNumbers numbers(p);
    const auto e = ref::expected_attention(p.forward(numbers), {p.dtype, declared});
    worst = worst_ratio(e.output, got.at(p.output_name));
    if (p.gives("lse")) worst = std::max(worst, worst_ratio(e.stored_lse, got.at("lse")));
    if (!p.gives("softmax_max")) return worst;
    std::vector<double> lse = got.at("softmax_max");
    for (std::size_t i = 0; i < lse.size(); ++i)
        lse[i] = e.lse.overflow[i] == ref::Overflow::none && e.row_sum.value[i] > 0
                     ? lse[i] + std::log(got.at("softmax_sum")[i])
                     : e.lse.value[i];
    return std::max({worst, worst_ratio(e.lse, lse),
                     worst_ratio(e.row_max, got.at("softmax_max")),
                     worst_ratio(e.row_sum, got.at("softmax_sum"))});
}

void join(ValidityLine& to, const ValidityLine& from) {
    to.cases += from.cases;
    to.elements += from.elements;
    to.alarms += from.alarms;
    to.scores.join(from.scores);
    to.worst_bound = std::max(to.worst_bound, from.worst_bound);
}

std::string text_of(const std::string& name, const ValidityLine& line) {
    return fmt::format("| {} | {} | {:.3g} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {} |\n",
                       name, line.cases, static_cast<double>(line.elements), line.worst_bound,
                       line.scores.element, line.scores.slice, line.scores.filter,
                       line.scores.worst_z, line.alarms);
}

}  // namespace

std::string validity_head(const std::string& what) {
    return fmt::format(
        "| {} | cases | elements | error / bound | element | slice | filter | largest z | "
        "alarms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        what);
}

const std::vector<std::string>& emulated_words() {
    static const std::vector<std::string> words = {
        "stats=lse",  "split=lse",  "split=half", "p=kept", "scores=half", "delta=half", "group=half",
        "exp=34",     "exp=1600",   "in=bf16x3",  "in=bf16x2",  "in=tf32",     "in=tf32-truncating", "in=bf16",    "ftz=all",
        "steps=half", "tanh=16",   "tanh=8192",
        "scale=fp32", "scale=half", "tile=1",     "forward=own"};
    return words;
}

std::string Validity::row(const std::string& name) const {
    ValidityLine whole;
    for (const auto& [key, line] : lines_) join(whole, line);
    return text_of(name, whole);
}

Validity::Validity(WordOfClass word) : word_(std::move(word)), words_(words_of(word_.word)) {
    Random random(0);
    Emulation ignored;
    for (const std::string& one : words_) take_word(one, ignored, random);  // throws
    if (words_.empty() || std::ranges::any_of(operators_with_tiers(), [&](const Operator* op) {
            return op->attention() && all_may_concern(words_, op->schema());
        }))
        return;
    throw std::invalid_argument("no operator has all of '" + word_.word + "'");
}

void Validity::run_case(std::uint64_t seed, std::uint64_t index) {
    Random random(mix(seed) + index);
    std::uint64_t turn = index;
    const Operator* op = nullptr;
    std::optional<Spec> drawn;
    while (!drawn || !(words_.empty() || (op->attention() && all_concern(words_, *drawn))) ||
           (op->attention() && !is_emulated(op->attention()->problem(*drawn)))) {
        op = &operator_of(turn);
        if (!words_.empty()) turn = random.next();
        drawn.reset();
        if (!words_.empty() && !(op->attention() && all_may_concern(words_, op->schema()))) continue;
        drawn = concerned(words_, *op, draw(*op, random, word_.small, word_.few));
    }
    const Spec& spec = *drawn;
    const auto [emulation, declared] = emulation_of(random);
    const bool with_bound = random.chance(words_.empty() ? 12 : 100);
    judge(*op, spec, emulation, declared, with_bound);
}

void Validity::run_line(const Spec& spec, std::uint64_t seed, std::uint64_t index) {
    Random random(mix(seed) + index);
    const auto [emulation, declared] = emulation_of(random);
    judge(*find_operator(spec.schema->op), spec, emulation, declared, random.chance(12));
}

std::pair<Emulation, ref::RoundingClass> Validity::emulation_of(Random& random) const {
    Emulation emulation = random_emulation(random);
    ref::RoundingClass declared = declared_for(emulation, random);
    for (const std::string& word : words_) take_word(word, emulation, random);
    if (word_.declared && !words_.empty()) declared = ref::weaker(declared, emulation.rounding());
    return {emulation, declared};
}

void Validity::judge(const Operator& op, const Spec& spec, const Emulation& emulation,
                     const ref::RoundingClass& declared, bool with_bound) {
    Outputs got;
    Verdict verdict;
    ValidityLine one;
    if (const AttentionOperator* const attention = op.attention()) {
        const AttentionProblem problem = attention->problem(spec);
        got = emulate(problem, emulation);
        verdict = judge_attention(
            problem, declared, [&](const std::string& name) { return got.at(name); }, &one.scores);
        if (with_bound) one.worst_bound = bound_ratio(problem, got, declared);
    } else if (!words_.empty()) {
        return;
    } else {
        const CompressProblem compress(spec);
        got = emulate(compress, emulation);
        verdict = judge_compress(
            compress, declared, [&](const std::string& name) { return got.at(name); }, &one.scores);
        if (with_bound)
            for (const auto& [name, expected] : compress.expected(declared))
                one.worst_bound = std::max(one.worst_bound, worst_ratio(expected, got.at(name)));
    }
    for (const auto& [name, values] : got) one.elements += std::ssize(values);
    const bool alarm = verdict.failed() || !(one.worst_bound <= 1);
    const std::lock_guard lock(mutex_);
    ValidityLine& line = lines_[{op.name(), emulation.name()}];
    ++line.cases;
    line.elements += one.elements;
    line.scores.join(one.scores);
    line.worst_bound = std::max(line.worst_bound, one.worst_bound);
    line.alarms += alarm;
    if (!alarm) return;
    const std::string text =
        fmt::format("{}, tile {}{}{}{}, declared '{}':\n  {}\n  {}", emulation.name(),
                    emulation.tile, emulation.normalised_first ? ", normalised" : "",
                    emulation.base_two ? ", base 2" : "",
                    emulation.scale_before_cast ? ", scaled first" : "",
                    ref::print_rounding_class(declared), properties::print(spec),
                    verdict.failed() ? verdict.message : "bound broken");
    if (line.alarm.empty()) line.alarm = text;
    if (alarm_log_ != nullptr) *alarm_log_ << "ALARM " << op.name() << ": " << text << std::endl;
}

void Validity::print(std::ostream& out) const {
    std::map<std::string, ValidityLine> by_operator, by_class;
    ValidityLine whole;
    for (const auto& [key, line] : lines_) {
        join(by_operator[key.first], line);
        join(by_class[key.second], line);
        join(whole, line);
    }
    out << "\n" << validity_head("operator");
    for (const auto& [name, line] : by_operator) out << text_of(name, line);
    out << "\n" << validity_head("class emulated");
    for (const auto& [name, line] : by_class) out << text_of(name, line);
    out << text_of("all", whole);
    print_alarms(out);
}

void Validity::print_alarms(std::ostream& out) const {
    for (const auto& [key, line] : lines_)
        if (!line.alarm.empty()) out << "\nALARM " << key.first << ": " << line.alarm << "\n";
}

std::int64_t Validity::alarms() const {
    const std::lock_guard lock(mutex_);
    std::int64_t sum = 0;
    for (const auto& [key, line] : lines_) sum += line.alarms;
    return sum;
}

std::int64_t Validity::cases() const {
    const std::lock_guard lock(mutex_);
    std::int64_t sum = 0;
    for (const auto& [key, line] : lines_) sum += line.cases;
    return sum;
}

}  // namespace attncheck::tiers
