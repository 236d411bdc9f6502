#include "properties/report/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "properties/case/number_text.h"
#include "properties/judge/bound_evidence.h"
#include "properties/judge/tier_text.h"
#include "properties/report/exit_status.h"

namespace attncheck::properties {

void PairSet::add(std::size_t pair) {
    if (words.size() <= pair / 64) words.resize(pair / 64 + 1);
    words[pair / 64] |= std::uint64_t{1} << pair % 64;
}

bool PairSet::has(std::size_t pair) const {
    return pair / 64 < words.size() && (words[pair / 64] >> pair % 64 & 1) != 0;
}

void PairSet::add_all(const PairSet& other) {
    if (words.size() < other.words.size()) words.resize(other.words.size());
    for (std::size_t i = 0; i < other.words.size(); ++i) words[i] |= other.words[i];
}

std::string to_text(const PairSet& set) {
    std::string text;
    for (const std::uint64_t word : set.words) text += fmt::format("{:016x}", word);
    return text;
}

PairSet pair_set_from(std::string_view text) {
    constexpr std::size_t kDigits = 16;
    PairSet set;
    for (; !text.empty(); text.remove_prefix(kDigits)) {
        std::uint64_t word = 0;
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + std::min(kDigits, text.size()), word, 16);
        if (error != std::errc{} || end != text.data() + kDigits)
            throw std::invalid_argument("pairs hold something that is no hexadecimal number");
        set.words.push_back(word);
    }
    return set;
}

std::string pairs_text(std::int64_t reached, std::int64_t possible) {
    return fmt::format("pairs {} of {}", reached, possible);
}

std::string_view name_of(PropertyReport::Status status) {
    constexpr std::string_view kNames[] = {"held", "falsified", "declined", "not_implemented",
                                           "error", "inconclusive", "not_applicable"};
    return kNames[static_cast<std::size_t>(status)];
}

namespace {

/// Of a run with fewer parts than shards.
bool is_idle_shard(const RunReport& report) {
    return report.shards > 1 && std::ranges::all_of(report.properties, [](const PropertyReport& p) {
               return p.status == PropertyReport::Status::not_implemented;
           });
}

}  // namespace

int exit_status(const RunReport& report) {
    const auto any = [&](PropertyReport::Status status) {
        return std::ranges::any_of(report.properties,
                                   [&](const auto& p) { return p.status == status; });
    };
    return exit_status_of(any(PropertyReport::Status::falsified), report.interrupted,
                          any(PropertyReport::Status::error),
                          any(PropertyReport::Status::inconclusive) ||
                              (!is_idle_shard(report) && std::ranges::all_of(report.properties, [](const auto& p) {
                                  return p.cases + p.replayed == 0;
                              })));
}

std::string observed_precision(const RunReport& report) {
    std::vector<CastEvidence> all;
    for (const auto& p : report.properties)
        for (const CastEvidence& cast : p.casts) add_evidence(all, cast);
    return words_of(all);
}

std::vector<BoundEvidence> observed_bounds(const RunReport& report) {
    std::vector<BoundEvidence> all;
    for (const auto& p : report.properties)
        for (const BoundEvidence& one : p.bounds) add_evidence(all, one);
    return all;
}

std::string wider_than_seen(const std::string& declared, const std::vector<BoundEvidence>& seen) {
    try {
        return narrower_words(ref::parse_rounding_class(declared), seen);
    } catch (const std::invalid_argument&) {  // of a report that something else wrote
        return {};
    }
}

bool is_of_numbers(Tier tier) { return tier != Tier::crash && tier != Tier::memory && tier != Tier::validation; }

std::string wider_than_seen(const RunReport& report) {
    const bool has_wrong_numbers = std::ranges::any_of(report.properties, [](const PropertyReport& p) {
        return std::ranges::any_of(p.counterexamples, is_of_numbers, &Counterexample::tier);
    });
    return has_wrong_numbers ? std::string() : wider_than_seen(report.precision, observed_bounds(report));
}

std::string order_text(std::int64_t cases) {
    if (cases == 0) return {};
    return fmt::format("bits differed in {}, within the bounds of sums in any order", counted(cases, "case"));
}

std::string reproduce_command(const RunReport& report, const PropertyReport& property,
                              const Counterexample& found) {
    std::string command = "attncheck reproduce " + shell_quoted(print(found.spec)) +
                          " --property " + property.property;
    if (report.samples != kSampledRows && property.property == "sampled")
        command += fmt::format(" --samples {}", report.samples);
    if (report.profile != Profile{})
        command += fmt::format(" --profile {}", name_of(report.profile));
    if (!report.precision_option.empty())
        command += " --precision " + shell_quoted(report.precision_option);
    if (!report.library.empty()) command += " --candidate " + shell_quoted(report.library);
    if (!report.python_option.empty() && report.library.starts_with("python:"))
        command += " --python " + shell_quoted(report.python_option);
    return command + report.replay_options;
}

std::string shell_quoted(const std::string& text) {
    std::string out = "'";
    for (const char ch : text) out += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
    return out + "'";
}

}  // namespace attncheck::properties
