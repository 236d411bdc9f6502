// Grades the suite: runs `attncheck verify` against every mutant and prints which property killed
// it, after how many cases, and the smallest case found. Exit status 1 when the unmutated library
// fails or a counted mutant survives.
//
//   mutant_score ATTNCHECK LIBRARY [--only ID,ID...] [--family NAME] [--ids catalogue]
//                [--shrink SECONDS] [--readme README.md --details FILE.md]
//
// --only grades these alone and leaves out the run of the unmutated library.
// A family is a forward with its gradient and has the forward's name (NsaCompress). --readme
// rewrites the counts between the markers "<!-- score:FAMILY:begin -->" and
// "<!-- score:FAMILY:end -->", --details the lines of the single mutants between the same markers
// of another file; both need all mutants of one family. --shrink limits the search for a smaller
// case, for runs that only ask whether it is killed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "mutant_table.h"

namespace {

using attncheck::mutants::kMutants;
using attncheck::mutants::Mutant;
using attncheck::mutants::Operators;
using attncheck::mutants::Status;

struct Score {
    int exit_status = -1;
    std::string property, failure, smallest, certificate;
    long cases = 0;
    double seconds = 0;
    bool killed() const { return exit_status == 1 && !property.empty(); }
};

struct Programs {
    std::string attncheck, library;
    std::string shrink = "30";
};

/// The options that select the entry points in which a mutant sits, and the platform it needs.
std::string operator_filter(std::string_view id, const Operators& operators) {
    using namespace attncheck::mutants;
    const std::string name = operators.family == kCompress.family   ? "nsa_compress"
                             : operators.family == kSelected.family ? "nsa_selected_attention"
                             : operators.family == kCompressAttention.family
                                 ? "nsa_compress_attention"
                             : operators.family == kModule.family ? "nsa_module"
                                                                  : "flash_attention_score";
    std::string filter = id.starts_with("FP8") ? " --profile ascend950" : "";
    // A case of the module is ten calls of plain loops: a run of the usual hundred takes minutes.
    if (operators.family == kModule.family) filter += " --cases 40";
    if (operators.forward) filter += " --op " + name;
    if (operators.gradient) filter += " --op " + name + "_grad";
    return filter;
}

Score run(const Programs& programs, std::string_view id, const Operators& operators,
          std::string_view properties = {}) {
    const std::string report =
        fmt::format("mutant_score.{}.{}.json", getpid(), id.empty() ? operators.family : id);
    // A mutant that hangs is killed by the suite; the outer limit only guards against a hanging
    // suite. The plain loops take half a second for 2049 queries and keys, and several times that
    // with concurrent calls and two mutants on two cores.
    const int limit_s = operators.family == attncheck::mutants::kFlash.family ? 10 : 2;
    const std::string command = fmt::format(
        "ATTNCHECK_MUTANT='{}' timeout 300 '{}' verify --candidate '{}' --stop-at-first --seed 1 "
        "--timeout {} --shrink {} --json '{}'{}{} >/dev/null 2>&1",
        id, programs.attncheck, programs.library, limit_s, programs.shrink, report,
        operator_filter(id, operators), properties);
    const auto start = std::chrono::steady_clock::now();
    const int status = std::system(command.c_str());
    Score score;
    score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    score.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream in(report);
    const auto json = nlohmann::json::parse(in, nullptr, false);
    in.close();
    std::remove(report.c_str());
    if (json.is_discarded()) return score;
    for (const auto& property : json["properties"]) {
        if (!property.contains("counterexample")) {
            score.cases += property["cases"].get<long>();
            continue;
        }
        const auto& found = property["counterexample"];
        score.cases += found["found_after_cases"].get<long>();
        score.property = fmt::format("{}.{}", property["op"].get<std::string>(),
                                     property["property"].get<std::string>());
        score.failure = found["failure"].get<std::string>();
        score.smallest = found["case"].get<std::string>();
        score.certificate = found["certificate"].get<std::string>();
        break;
    }
    return score;
}

/// A defect of the validation first meets the properties of validation: they come last in a whole
/// run, behind seconds of computing.
Score grade(const Programs& programs, const Mutant& mutant) {
    if (mutant.id.find("VAL") != std::string_view::npos) {
        Score score = run(programs, mutant.id, mutant.operators,
                          " --property validation --property validation_combined");
        if (score.killed()) return score;
    }
    return run(programs, mutant.id, mutant.operators);
}

std::string verdict_of(const Mutant& mutant, const Score& score) {
    if (score.killed()) return "killed";
    return mutant.status == Status::contract_dependent ? "survived (contract-dependent)"
                                                       : "SURVIVED";
}

bool is_gap(const Mutant& mutant, const Score& score) {
    return !score.killed() && mutant.status != Status::contract_dependent;
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Killed mutants by difficulty, and all; contract-dependent ones are left out.
std::string counts_line(const std::vector<Mutant>& mutants, const std::vector<Score>& scores,
                        const Operators& operators) {
    int killed[5] = {}, total[5] = {};
    for (std::size_t i = 0; i < mutants.size(); ++i) {
        if (mutants[i].operators.name != operators.name ||
            mutants[i].status == Status::contract_dependent)
            continue;
        for (const int column : {static_cast<int>(mutants[i].difficulty), 4}) {
            ++total[column];
            killed[column] += scores[i].killed();
        }
    }
    std::string line = fmt::format("| {} |", operators.name);
    for (int column = 0; column < 5; ++column)
        line += fmt::format(" {}/{} |", killed[column], total[column]);
    return line + "\n";
}

std::string mutant_line(const Mutant& mutant, const Score& score) {
    std::string smallest = score.smallest;
    if (smallest.size() > 170) smallest = smallest.substr(0, 167) + "...";
    if (!smallest.empty()) smallest = fmt::format("`{}`", smallest);
    return fmt::format("| {} | {} | {} | {} |\n", mutant.id,
                       score.killed() ? score.property : verdict_of(mutant, score), score.cases,
                       smallest);
}

/// The counts of every operator.
std::string markdown(const std::vector<Mutant>& mutants, const std::vector<Score>& scores) {
    std::string out =
        "| operator | easy | medium | hard | fiendish | all |\n|---|---:|---:|---:|---:|---:|\n";
    for (const Operators& operators : attncheck::mutants::kAllOperators)
        if (operators.family == mutants.front().operators.family)
            out += counts_line(mutants, scores, operators);
    return out;
}

/// One line for each mutant, family by family.
std::string details(const std::vector<Mutant>& mutants, const std::vector<Score>& scores) {
    std::string out;
    std::string_view family;
    for (std::size_t i = 0; i < mutants.size(); ++i) {
        if (mutants[i].operators.family != family) {
            family = mutants[i].operators.family;
            out += fmt::format(
                "\n{}{}:\n\n| mutant | killed by | cases | smallest case |\n|---|---|---:|---|\n",
                family,
                family == attncheck::mutants::kCompressAttention.family ||
                        family == attncheck::mutants::kModule.family
                    ? ""
                    : " and its gradient");
        }
        out += mutant_line(mutants[i], scores[i]);
    }
    return out;
}

/// Replaces what stands between the family's markers.
void rewrite(const std::string& path, const std::string& family, const std::string& text) {
    std::ifstream in(path);
    std::stringstream whole;
    whole << in.rdbuf();
    std::string readme = whole.str();
    const std::string begin = fmt::format("<!-- score:{}:begin -->\n", family),
                      end = fmt::format("<!-- score:{}:end -->", family);
    const auto first = readme.find(begin), last = readme.find(end);
    if (first == std::string::npos || last == std::string::npos || last < first) {
        std::cerr << path << " has no score markers\n";
        std::exit(2);
    }
    readme.replace(first + begin.size(), last - first - begin.size(), text);
    std::ofstream(path) << readme;
}

struct Options {
    Programs programs;
    std::string only, family, readme, details;
    bool catalogue = false;
};

[[noreturn]] void fail_usage(const std::string& message) {
    std::cerr << message
              << "usage: mutant_score ATTNCHECK LIBRARY [--only ID,ID...] [--family NAME] "
                 "[--shrink SECONDS] "
                 "[--ids all|catalogue] [--readme FILE] [--details FILE]\n";
    std::exit(2);
}

Options parse(int argc, char** argv) {
    if (argc < 3 || argc % 2 == 0) fail_usage({});
    Options options;
    options.programs.attncheck = argv[1];
    options.programs.library = argv[2];
    for (int i = 3; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        if (name != "--only" && name != "--family" && name != "--readme" && name != "--details" &&
            name != "--shrink" && name != "--ids")
            fail_usage(fmt::format("unknown option {}\n", name));
        if (name == "--ids") {
            options.catalogue = std::string_view(argv[i + 1]) == "catalogue";
            continue;
        }
        (name == "--only"      ? options.only
         : name == "--family"  ? options.family
         : name == "--readme"  ? options.readme
         : name == "--details" ? options.details
                               : options.programs.shrink) = argv[i + 1];
    }
    if (!(options.readme.empty() && options.details.empty()) &&
        (!options.only.empty() || options.family.empty() || options.catalogue))
        fail_usage("--readme and --details need --family and all of its ids\n");
    return options;
}

bool is_listed(std::string_view id, const std::string& list) {
    return ("," + list + ",").find(fmt::format(",{},", id)) != std::string::npos;
}

std::vector<Mutant> chosen(const Options& options) {
    std::vector<Mutant> mutants;
    for (const Mutant& mutant : kMutants)
        if ((options.only.empty() || is_listed(mutant.id, options.only)) &&
            (options.family.empty() || mutant.operators.family == options.family) &&
            (!options.catalogue || mutant.id.find("-x") == std::string_view::npos))
            mutants.push_back(mutant);
    if (mutants.empty()) fail_usage("no such mutant\n");
    return mutants;
}

/// Runs the library without a mutant, on each family that a chosen mutant belongs to. True if every
/// property held.
bool clean_runs_hold(const Programs& programs, const std::vector<Mutant>& mutants) {
    bool hold = true;
    for (Operators operators : attncheck::mutants::kAllOperators) {
        if (operators.name != operators.family) continue;  // one line of each family is its forward
        for (const Operators& other : attncheck::mutants::kAllOperators)
            operators.gradient |= other.family == operators.family && other.gradient;
        const auto is_member = [&](const Mutant& mutant) {
            return mutant.operators.family == operators.family;
        };
        if (std::none_of(mutants.begin(), mutants.end(), is_member)) continue;
        const Score clean = run(programs, "", operators);
        std::cout << fmt::format("{} without a mutant: exit status {} after {} cases, {:.1f} s\n",
                                 operators.name, clean.exit_status, clean.cases, clean.seconds)
                  << std::flush;
        hold = hold && clean.exit_status == 0;
    }
    return hold;
}

constexpr const char* kLine = "{:<11} {:<9} {:<10} {:>6} {:>6}  {:<44} {}\n";

/// On both cores; prints a line as soon as a mutant is judged.
std::vector<Score> judge(const Programs& programs, const std::vector<Mutant>& mutants) {
    std::vector<Score> scores(mutants.size());
    std::atomic<std::size_t> next{0};
    std::mutex printing;
    const auto work = [&] {
        for (std::size_t i = next++; i < mutants.size(); i = next++) {
            scores[i] = grade(programs, mutants[i]);
            const std::lock_guard lock(printing);
            std::cout << fmt::format(fmt::runtime(kLine), mutants[i].id,
                                     scores[i].killed() ? "killed" : "SURVIVED",
                                     attncheck::mutants::name_of(mutants[i].difficulty),
                                     scores[i].cases, fmt::format("{:.1f}", scores[i].seconds),
                                     scores[i].killed() ? scores[i].property
                                                        : verdict_of(mutants[i], scores[i]),
                                     scores[i].smallest)
                      << std::flush;
        }
    };
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) threads.emplace_back(work);
    threads.clear();
    return scores;
}

/// Prints the totals and returns how many mutants that break the contract survive.
int summarize(const std::vector<Mutant>& mutants, const std::vector<Score>& scores) {
    int killed = 0, gaps = 0, judged = 0;
    std::vector<double> seconds;
    for (std::size_t i = 0; i < mutants.size(); ++i) {
        killed += scores[i].killed();
        gaps += is_gap(mutants[i], scores[i]);
        judged += mutants[i].status != Status::contract_dependent;
        if (scores[i].killed()) seconds.push_back(scores[i].seconds);
    }
    std::cout << fmt::format(
        "\n{} mutants, {} killed; {} of the {} that break the contract survive; median {:.1f} s, "
        "longest {:.1f} s\n",
        mutants.size(), killed, gaps, judged, median(seconds),
        seconds.empty() ? 0.0 : *std::max_element(seconds.begin(), seconds.end()));
    return gaps;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const std::vector<Mutant> mutants = chosen(options);
    const bool clean = !options.only.empty() || clean_runs_hold(options.programs, mutants);
    std::cout << "\n"
              << fmt::format(fmt::runtime(kLine), "mutant", "", "difficulty", "cases", "s",
                             "killed by", "smallest case");
    const std::vector<Score> scores = judge(options.programs, mutants);
    const int gaps = summarize(mutants, scores);
    if (!options.readme.empty()) rewrite(options.readme, options.family, markdown(mutants, scores));
    if (!options.details.empty())
        rewrite(options.details, options.family, details(mutants, scores));
    return clean && gaps == 0 ? 0 : 1;
}
