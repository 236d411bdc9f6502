// What a grading came to: tables for people, JSON for programs, tables inside Markdown files.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "properties/grading/mutants.h"
#include "properties/report/files.h"

namespace attncheck::properties {
namespace {

constexpr std::array kDifficulties{"easy", "medium", "hard", "fiendish", "unknown"};
constexpr std::array kTiers{"bound",  "deviation", "filter",    "relation",
                            "memory", "crash",     "validation"};

/// Values of the graded mutants in the order in which they first appear.
std::vector<std::string> values_of(const std::vector<MutantScore>& scores,
                                   std::string Mutant::* field) {
    std::vector<std::string> values;
    for (const auto& score : scores)
        if (std::find(values.begin(), values.end(), score.mutant.*field) == values.end())
            values.push_back(score.mutant.*field);
    return values;
}

double quantile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

/// "killed/all" over the counted mutants that `belongs` admits.
std::string share_of(const std::vector<MutantScore>& scores,
                     const std::function<bool(const Mutant&)>& belongs) {
    int killed = 0, all = 0;
    for (const auto& score : scores) {
        if (!score.mutant.counted() || !belongs(score.mutant)) continue;
        ++all;
        killed += score.killed;
    }
    return fmt::format("{}/{}", killed, all);
}

void print_counts(std::ostream& out, const std::vector<MutantScore>& scores) {
    out << fmt::format("\n{:<26}", "operator");
    for (const char* difficulty : kDifficulties) out << fmt::format(" {:>9}", difficulty);
    out << fmt::format(" {:>9} |", "all");
    for (const char* tier : kTiers) out << fmt::format(" {:>10}", tier);
    out << "\n";
    const auto line = [&](const std::string& name,
                          const std::function<bool(const Mutant&)>& belongs) {
        out << fmt::format("{:<26}", name);
        for (const char* difficulty : kDifficulties)
            out << fmt::format(" {:>9}", share_of(scores, [&](const Mutant& mutant) {
                                   return belongs(mutant) && mutant.difficulty == difficulty;
                               }));
        out << fmt::format(" {:>9} |", share_of(scores, belongs));
        for (const char* tier : kTiers)
            out << fmt::format(" {:>10}",
                               std::count_if(scores.begin(), scores.end(), [&](const auto& score) {
                                   return belongs(score.mutant) && score.tier == tier;
                               }));
        out << "\n";
    };
    for (const auto& label : values_of(scores, &Mutant::label))
        line(label, [&](const Mutant& mutant) { return mutant.label == label; });
    line("all", [](const Mutant&) { return true; });
}

/// Text between the family's markers replaced. Returns whether the markers are there.
bool replace_between(std::string& text, const std::string& family, const std::string& inside) {
    const std::string begin = fmt::format("<!-- score:{}:begin -->\n", family),
                      end = fmt::format("<!-- score:{}:end -->", family);
    const auto first = text.find(begin), last = text.find(end);
    if (first == std::string::npos || last == std::string::npos || last < first) return false;
    text.replace(first + begin.size(), last - first - begin.size(), inside);
    return true;
}

using TableOfFamily =
    std::function<std::string(const std::string& family, const std::vector<MutantScore>& scores)>;

/// The markers of a new family, behind those of the last one.
void add_markers(std::string& text, const std::string& family) {
    constexpr std::string_view kEnd = ":end -->\n";
    const auto last = text.rfind(kEnd);
    const auto at = last == std::string::npos ? text.size() : last + kEnd.size();
    text.insert(at, fmt::format("{}<!-- score:{}:begin -->\n<!-- score:{}:end -->\n",
                                at == 0 ? "" : "\n", family, family));
}

/// A family that the page lacks is added to those that it has; a page that is not there begins.
void rewrite(const std::string& path, const std::vector<MutantScore>& scores,
             const TableOfFamily& table) {
    std::ostringstream whole;
    if (std::ifstream in(path); in) whole << in.rdbuf();
    std::string text = whole.str();
    if (!text.empty() && text.find("<!-- score:") == std::string::npos)
        throw std::runtime_error(path + " has no markers <!-- score:FAMILY:begin --> of a family");
    for (const auto& family : values_of(scores, &Mutant::family)) {
        if (replace_between(text, family, table(family, scores))) continue;
        add_markers(text, family);
        replace_between(text, family, table(family, scores));
    }
    write_file(path, text);
}

std::string counts_of(const std::string& family, const std::vector<MutantScore>& scores) {
    std::string text =
        "| operator | easy | medium | hard | fiendish | all |\n|---|---:|---:|---:|---:|---:|\n";
    for (const auto& label : values_of(scores, &Mutant::label)) {
        const auto belongs = [&](const Mutant& mutant) {
            return mutant.family == family && mutant.label == label;
        };
        if (share_of(scores, belongs) == "0/0") continue;
        text += fmt::format("| {} |", label);
        for (const char* difficulty : {"easy", "medium", "hard", "fiendish"})
            text += fmt::format(" {} |", share_of(scores, [&](const Mutant& mutant) {
                                    return belongs(mutant) && mutant.difficulty == difficulty;
                                }));
        text += fmt::format(" {} |\n", share_of(scores, belongs));
    }
    return text;
}

std::string details_of(const std::string& family, const std::vector<MutantScore>& scores) {
    std::string text = fmt::format(
        "\n{}:\n\n| mutant | killed by | tier | cases | smallest case |\n|---|---|---|---:|---|\n",
        family);
    constexpr std::size_t kLongest = 170;
    for (const auto& score : scores) {
        if (score.mutant.family != family) continue;
        std::string smallest = score.smallest;
        if (smallest.size() > kLongest) smallest = smallest.substr(0, kLongest - 3) + "...";
        if (!smallest.empty()) smallest = fmt::format("`{}`", smallest);
        text += fmt::format("| {} | {} | {} | {} | {} |\n", score.mutant.id,
                            score.killed  ? score.property
                            : score.gap() ? std::string("SURVIVED")
                                          : "survived (" + score.mutant.status + ")",
                            score.tier, score.cases, smallest);
    }
    return text;
}

}  // namespace

int print_scores(std::ostream& out, const std::vector<MutantScore>& scores) {
    print_counts(out, scores);
    std::vector<double> seconds, shrinks, sizes;
    int killed = 0, gaps = 0, certified = 0, counted = 0;
    for (const auto& score : scores) {
        gaps += score.gap();
        counted += score.mutant.counted();
        if (!score.killed) continue;
        ++killed;
        certified += score.certified;
        seconds.push_back(score.seconds);
        shrinks.push_back(score.shrink_seconds);
        sizes.push_back(static_cast<double>(score.elements));
    }
    out << fmt::format(
        "\n{} mutants, {} killed; {} of the {} that break the contract survive\n"
        "until killed: median {:.1f} s, longest {:.1f} s; shrinking: median {:.1f} s, longest "
        "{:.1f} s\n"
        "smallest cases: median {:.0f} elements in all tensors, 90 % have at most {:.0f}, largest "
        "{:.0f}\n"
        "{} of {} smallest cases are certified 1-minimal\n",
        scores.size(), killed, gaps, counted, quantile(seconds, 0.5), quantile(seconds, 1),
        quantile(shrinks, 0.5), quantile(shrinks, 1), quantile(sizes, 0.5), quantile(sizes, 0.9),
        quantile(sizes, 1), certified, killed);
    for (const auto& score : scores)
        if (score.killed && !score.certified)
            out << fmt::format("  {:<12} {}\n", score.mutant.id, score.certificate);
    return gaps;
}

nlohmann::ordered_json read_scores(const std::string& path) {
    std::ifstream in(path);
    const auto read = nlohmann::ordered_json::parse(in, nullptr, false);
    if (read.is_discarded() || !read.contains("mutants"))
        throw std::runtime_error(path + " is not the JSON of a grading");
    return read["mutants"];
}

std::string scores_json(const std::vector<MutantScore>& scores, const std::string& earlier) {
    using Json = nlohmann::ordered_json;
    Json list = Json::array();
    std::map<std::string, std::size_t> places;
    if (!earlier.empty()) list = read_scores(earlier);
    for (std::size_t i = 0; i < list.size(); ++i) places.emplace(list[i].value("id", ""), i);
    const auto rounded = [](double seconds) { return std::round(seconds * 100) / 100; };
    for (const auto& score : scores) {
        const std::size_t place = places.emplace(score.mutant.id, list.size()).first->second;
        list[place] = {{"id", score.mutant.id},
                       {"operator", score.mutant.label},
                       {"difficulty", score.mutant.difficulty},
                       {"status", score.mutant.status},
                       {"killed", score.killed},
                       {"tier", score.tier},
                       {"property", score.property},
                       {"failure", score.failure},
                       {"cases", score.cases},
                       {"seconds", rounded(score.seconds)},
                       {"shrink_seconds", rounded(score.shrink_seconds)},
                       {"elements", score.elements},
                       {"certified", score.certified},
                       {"certificate", score.certificate},
                       {"case", score.smallest}};
    }
    // A mutant a line: differences between two runs are readable.
    std::string text = "{\"schema\":1,\"mutants\":[\n";
    for (std::size_t i = 0; i < list.size(); ++i)
        text += list[i].dump(-1, ' ', false, Json::error_handler_t::replace) +
                (i + 1 < list.size() ? ",\n" : "\n");
    return text + "]}\n";
}

std::vector<MutantScore> with_earlier(const std::vector<MutantScore>& scores, const std::vector<Mutant>& all,
                                      const std::string& earlier) {
    if (earlier.empty()) return scores;
    const auto list = read_scores(earlier);
    std::vector<MutantScore> whole;
    for (const Mutant& mutant : all) {
        if (std::ranges::none_of(scores, [&](const auto& score) { return score.mutant.family == mutant.family; }))
            continue;
        if (const auto now = std::ranges::find(scores, mutant.id, [](const auto& score) { return score.mutant.id; });
            now != scores.end()) {
            whole.push_back(*now);
            continue;
        }
        const auto then = std::ranges::find_if(list, [&](const auto& one) { return one.value("id", "") == mutant.id; });
        if (then == list.end()) continue;
        MutantScore score;
        score.mutant = mutant;
        score.killed = then->value("killed", false);
        score.tier = then->value("tier", "");
        score.property = then->value("property", "");
        score.cases = then->value("cases", score.cases);
        score.smallest = then->value("case", "");
        whole.push_back(std::move(score));
    }
    return whole;
}

void rewrite_counts(const std::string& path, const std::vector<MutantScore>& scores) {
    rewrite(path, scores, counts_of);
}

void rewrite_details(const std::string& path, const std::vector<MutantScore>& scores) {
    rewrite(path, scores, details_of);
}

std::vector<std::string> unexpected_minima(const std::string& path,
                                           const std::vector<MutantScore>& scores) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot read " + path);
    std::map<std::string, std::string> expected;
    for (std::string line; std::getline(in, line);) {
        if (line.empty() || line.front() == '#') continue;
        const auto blank = line.find(' ');
        if (blank == std::string::npos)
            throw std::runtime_error(fmt::format("{}: line '{}' is not ID CASE", path, line));
        expected[line.substr(0, blank)] = line.substr(blank + 1);
    }
    std::vector<std::string> unexpected;
    for (const auto& score : scores) {
        const auto it = expected.find(score.mutant.id);
        if (it == expected.end() || it->second == score.smallest) continue;
        unexpected.push_back(fmt::format("{}: smallest case\n  {}\nis not the expected\n  {}",
                                         score.mutant.id, score.smallest, it->second));
    }
    return unexpected;
}

}  // namespace attncheck::properties
