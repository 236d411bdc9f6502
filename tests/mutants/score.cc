// Grades the suite: runs `attncheck verify` against every mutant and prints which property killed
// it, after how many cases, and the smallest case found. Exit status 1 when the unmutated library
// fails or a counted mutant survives.
//
//   mutant_score ATTNCHECK LIBRARY [--only ID] [--readme README.md]
//
// --readme rewrites the text between the markers "<!-- score:begin -->" and "<!-- score:end -->".
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
};

std::string operator_filter(std::string_view operators) {
    if (operators == attncheck::mutants::kForward) return " --op nsa_compress";
    if (operators == attncheck::mutants::kGradient) return " --op nsa_compress_grad";
    return {};
}

Score run(const Programs& programs, std::string_view id, std::string_view operators) {
    const std::string report =
        fmt::format("mutant_score.{}.{}.json", getpid(), id.empty() ? "none" : id);
    // A mutant that hangs is killed by the suite; the outer limit only guards against a hanging
    // suite.
    const std::string command = fmt::format(
        "ATTNCHECK_MUTANT='{}' timeout 300 '{}' verify --candidate '{}' --stop-at-first --seed 1 "
        "--timeout 2 --json '{}'{} >/dev/null 2>&1",
        id, programs.attncheck, programs.library, report, operator_filter(operators));
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

/// The table by operator and difficulty, and one line for each mutant, as Markdown.
std::string markdown(const std::vector<Mutant>& mutants, const std::vector<Score>& scores) {
    std::string out =
        "| operator | easy | medium | hard | fiendish | all |\n|---|---:|---:|---:|---:|---:|\n";
    for (const char* op : {"NsaCompress", "NsaCompressGrad", "both"}) {
        int killed[5] = {}, total[5] = {};
        for (std::size_t i = 0; i < mutants.size(); ++i) {
            if (mutants[i].operators != op || mutants[i].status == Status::contract_dependent)
                continue;
            const int difficulty = static_cast<int>(mutants[i].difficulty);
            for (const int column : {difficulty, 4}) {
                ++total[column];
                killed[column] += scores[i].killed();
            }
        }
        out += fmt::format("| {} |", op);
        for (int column = 0; column < 5; ++column)
            out += fmt::format(" {}/{} |", killed[column], total[column]);
        out += "\n";
    }
    out += "\n| mutant | killed by | cases | smallest case |\n|---|---|---:|---|\n";
    for (std::size_t i = 0; i < mutants.size(); ++i)
        out +=
            fmt::format("| {} | {} | {} | {} |\n", mutants[i].id,
                        scores[i].killed() ? scores[i].property : verdict_of(mutants[i], scores[i]),
                        scores[i].cases,
                        scores[i].smallest.size() > 170
                            ? fmt::format("`{}...`", scores[i].smallest.substr(0, 167))
                        : scores[i].smallest.empty() ? ""
                                                     : fmt::format("`{}`", scores[i].smallest));
    return out;
}

void rewrite(const std::string& path, const std::string& text) {
    std::ifstream in(path);
    std::stringstream whole;
    whole << in.rdbuf();
    std::string readme = whole.str();
    const std::string begin = "<!-- score:begin -->\n", end = "<!-- score:end -->";
    const auto first = readme.find(begin), last = readme.find(end);
    if (first == std::string::npos || last == std::string::npos || last < first) {
        std::cerr << path << " has no score markers\n";
        std::exit(2);
    }
    readme.replace(first + begin.size(), last - first - begin.size(), text);
    std::ofstream(path) << readme;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: mutant_score ATTNCHECK LIBRARY [--only ID] [--readme FILE]\n";
        return 2;
    }
    const Programs programs{argv[1], argv[2]};
    std::string only, readme;
    for (int i = 3; i + 1 < argc; i += 2) {
        if (std::string_view(argv[i]) == "--only")
            only = argv[i + 1];
        else if (std::string_view(argv[i]) == "--readme")
            readme = argv[i + 1];
    }
    std::vector<Mutant> mutants;
    for (const Mutant& mutant : kMutants)
        if (only.empty() || mutant.id == only) mutants.push_back(mutant);
    if (mutants.empty()) {
        std::cerr << "no mutant " << only << "\n";
        return 2;
    }

    const Score clean = run(programs, "", "both");
    std::cout << fmt::format("without a mutant: exit status {} after {} cases, {:.1f} s\n\n",
                             clean.exit_status, clean.cases, clean.seconds);
    std::cout << fmt::format("{:<8} {:<9} {:<10} {:>6} {:>6}  {:<36} {}\n", "mutant", "",
                             "difficulty", "cases", "s", "killed by", "smallest case");
    std::vector<Score> scores(mutants.size());
    std::atomic<std::size_t> next{0};
    std::mutex printing;
    const auto work = [&] {
        for (std::size_t i = next++; i < mutants.size(); i = next++) {
            scores[i] = run(programs, mutants[i].id, mutants[i].operators);
            const std::lock_guard lock(printing);
            std::cout << fmt::format("{:<8} {:<9} {:<10} {:>6} {:>6.1f}  {:<36} {}\n",
                                     mutants[i].id, scores[i].killed() ? "killed" : "SURVIVED",
                                     attncheck::mutants::name_of(mutants[i].difficulty),
                                     scores[i].cases, scores[i].seconds,
                                     scores[i].killed() ? scores[i].property
                                                        : verdict_of(mutants[i], scores[i]),
                                     scores[i].smallest)
                      << std::flush;
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 2; ++t) threads.emplace_back(work);
    }
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
    if (!readme.empty()) rewrite(readme, markdown(mutants, scores));
    return clean.exit_status == 0 && gaps == 0 ? 0 : 1;
}
