#include "properties/grading/mutants.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "properties/report/results.h"

namespace attncheck::properties {
namespace {

using Json = nlohmann::json;

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
    return parts;
}

Mutant mutant_of_line(const std::string& library, const std::string& line,
                      const std::vector<std::string>& known_operators) {
    const auto fields = split(line, '\t');
    constexpr std::size_t kFields = 10;
    if (fields.size() != kFields)
        throw std::runtime_error(
            fmt::format("{}: line '{}' of its table of mutants has {} fields, expected {}", library,
                        line, fields.size(), kFields));
    const auto is = [&](std::size_t field, std::string_view word, std::string_view other) {
        if (fields[field] == word) return true;
        if (fields[field] == other) return false;
        throw std::runtime_error(fmt::format("{}: mutant {} is neither '{}' nor '{}', but '{}'",
                                             library, fields[0], word, other, fields[field]));
    };
    Mutant mutant{.library = library,
                  .id = fields[0],
                  .family = fields[1],
                  .label = fields[2],
                  .operators = split(fields[3], ','),
                  .of_rulings = is(4, "ruling", "result"),
                  .in_catalogue = is(5, "catalogue", "further"),
                  .difficulty = fields[6],
                  .status = fields[7],
                  .profile = {},
                  .description = fields[9]};
    if (fields[8] != "-") mutant.profile = fields[8];
    for (const auto& name : mutant.operators)
        if (std::ranges::find(known_operators, name) == known_operators.end())
            throw std::runtime_error(fmt::format("{}: mutant {} names the unknown operator '{}'",
                                                 library, mutant.id, name));
    return mutant;
}

/// The report of one run, read and removed.
Json take_report(const std::string& path) {
    std::ifstream in(path);
    Json report = Json::parse(in, nullptr, false);
    in.close();
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return report;
}

/// The first counterexample says what killed the mutant; its smallest case is that of the first one
/// that is repeatable in a fresh process.
void read_outcome(const Json& report, MutantScore& score) {
    for (const auto& property : report.at("properties")) {
        if (!property.contains("counterexample")) {
            if (!score.killed) score.cases += property.at("cases").get<std::int64_t>();
            continue;
        }
        const Json& found = property["counterexample"];
        const auto name = property.at("property").get<std::string>();
        score.shrink_seconds += found.at("shrink_seconds").get<double>();
        if (!score.killed) {
            score.cases += found.at("found_after_cases").get<std::int64_t>();
            score.property = property.at("op").get<std::string>() + "." + name;
            score.failure = found.at("failure").get<std::string>();
            score.tier = found.at("tier").get<std::string>();
        }
        const bool repeatable = found.value("repeatable", true);
        if (!score.killed || (repeatable && !score.repeatable)) {
            score.smallest = found.at("case").get<std::string>();
            score.certificate = found.at("certificate").get<std::string>();
            score.certified = found.at("certified").get<bool>();
        }
        score.killed = true;
        score.repeatable = score.repeatable || repeatable;
    }
    score.seconds -= score.shrink_seconds;
}

constexpr const char* kSampled = "sampled";  ///< the property of a run of full size
constexpr const char* kLarge = " --large 4096";

/// The state of one grading, shared by its threads.
class Grading {
public:
    Grading(const std::vector<Mutant>& mutants, const MutationOptions& options, std::ostream& out)
        : mutants_(mutants), options_(options), out_(out), scores_(mutants.size()) {
        order_.resize(mutants.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        if (options.earlier.empty()) return;
        read_earlier();
        // The longest first: one at the end would be alone.
        std::ranges::stable_sort(order_, std::greater<>(), [&](std::size_t i) { return seconds_[mutants[i].id]; });
    }

    Grades run() {
        std::vector<std::jthread> threads;
        for (int t = 0; t < std::max(options_.jobs, 1); ++t)
            threads.emplace_back([this] { work(); });
        threads.clear();
        Grades grades;
        grades.interrupted = interrupted_;
        for (auto& score : scores_)
            if (score) grades.scores.push_back(std::move(*score));
        return grades;
    }

private:
    void work() {
        for (std::size_t k = next_++; k < mutants_.size() && !interrupted_; k = next_++) {
            const std::size_t i = order_[k];
            MutantScore score = judge(mutants_[i], i);
            if (interrupted_) return;
            const std::lock_guard lock(printing_);
            print(score);
            scores_[i] = std::move(score);
        }
    }

    void read_earlier() {
        for (const auto& one : read_scores(options_.earlier)) {
            seconds_[one.value("id", "")] = one.value("seconds", 0.0);
            if (const std::string property = one.value("property", ""); !property.empty())
                killer_[one.value("id", "")] = property.substr(property.find('.') + 1);
        }
    }

    MutantScore judge(const Mutant& mutant, std::size_t number) {
        std::string first;
        if (!options_.rule.empty()) return run_one(mutant, number, " --thorough --rule " + options_.rule);
        if (const auto it = killer_.find(mutant.id); it != killer_.end())
            first = it->second == kSampled ? kLarge : " --thorough --property " + shell_quoted(it->second);
        else if (mutant.of_rulings)
            // A defect of the rulings meets them last in a whole run, behind seconds of computing.
            first = " --thorough --property validation --property validation_combined";
        // What only fails after other calls is for the properties that make them.
        if (!first.empty())
            if (MutantScore score = run_one(mutant, number, first); score.killed && score.repeatable)
                return score;
        MutantScore score =
            run_one(mutant, number,
                    options_.run_cases > 0 ? fmt::format(" --cases {}", options_.run_cases)
                                           : std::string(" --thorough"));
        if (score.killed || interrupted_ || mutant.of_rulings || options_.run_cases > 0) return score;
        // What needs sums that a run of many cases has no time for.
        MutantScore large = run_one(mutant, number, kLarge);
        return large.killed ? large : score;
    }

    MutantScore run_one(const Mutant& mutant, std::size_t number, const std::string& more) {
        const std::string path = (std::filesystem::temp_directory_path() /
                                  fmt::format("attncheck.mutants.{}.{}.json", getpid(), number))
                                     .string();
        std::string command = fmt::format(
            "ATTNCHECK_MUTANT={} timeout --foreground {} {} verify --candidate {} --stop-at-first "
            "--seed {} --shrink {} --json {}",
            shell_quoted(mutant.id), options_.limit_seconds, shell_quoted(options_.program),
            shell_quoted(mutant.library), options_.seed, options_.shrink_seconds,
            shell_quoted(path));
        if (!mutant.profile.empty()) command += " --profile " + shell_quoted(mutant.profile);
        if (!options_.precision.empty())
            command += " --precision " + shell_quoted(options_.precision);
        for (const auto& name : mutant.operators) command += " --op " + name;
        command += more + " >/dev/null 2>&1";
        MutantScore score;
        score.mutant = mutant;
        const auto start = std::chrono::steady_clock::now();
        const int status = std::system(command.c_str());
        score.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (WIFEXITED(status)) score.exit_status = WEXITSTATUS(status);
        constexpr int kInterrupted = 130;
        if (score.exit_status == kInterrupted ||
            (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT))
            interrupted_ = true;
        const Json report = take_report(path);
        if (!report.is_discarded()) read_outcome(report, score);
        if (score.killed) score.elements = options_.elements_of(score.smallest);
        return score;
    }

    void print(const MutantScore& score) {
        out_ << fmt::format("{:<12} {:<9} {:<10} {:<10} {:>6} {:>6.1f} {:>7.1f}  {:<42} {}\n",
                            score.mutant.id,
                            score.killed  ? "killed"
                            : score.gap() ? "SURVIVED"
                                          : "survived",
                            score.tier, score.mutant.difficulty, score.cases, score.seconds,
                            score.shrink_seconds,
                            score.killed  ? score.property
                            : score.gap() ? std::string("nothing")
                                          : score.mutant.status,
                            score.smallest)
             << std::flush;
    }

    const std::vector<Mutant>& mutants_;
    const MutationOptions& options_;
    std::ostream& out_;
    std::vector<std::optional<MutantScore>> scores_;
    std::map<std::string, std::string>
        killer_;  ///< property that killed a mutant in an earlier run
    std::map<std::string, double> seconds_;  ///< of that run
    std::vector<std::size_t> order_;         ///< in which the mutants are judged
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> interrupted_{false};
    std::mutex printing_;
};

}  // namespace

std::vector<Mutant> read_mutants(const std::string& library,
                                 const std::vector<std::string>& known_operators) {
    const std::string path =
        library.find('/') == std::string::npos && std::filesystem::exists(library) ? "./" + library
                                                                                   : library;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(fmt::format("cannot load {}", dlerror()));
    const auto table = reinterpret_cast<const char* (*)()>(dlsym(handle, "attncheck_mutant_table"));
    std::vector<Mutant> mutants;
    if (table == nullptr) {
        Mutant one;
        one.library = path;
        one.id = one.label = one.family = std::filesystem::path(path).stem();
        mutants.push_back(std::move(one));
    } else {
        for (const auto& line : split(table(), '\n'))
            if (!line.empty()) mutants.push_back(mutant_of_line(path, line, known_operators));
    }
    dlclose(handle);
    return mutants;
}

Grades grade(const std::vector<Mutant>& mutants, const MutationOptions& options,
             std::ostream& out) {
    Grading grading(mutants, options, out);
    out << fmt::format("{:<12} {:<9} {:<10} {:<10} {:>6} {:>6} {:>7}  {:<42} {}\n", "mutant", "",
                       "tier", "difficulty", "cases", "s", "shrink", "killed by", "smallest case");
    return grading.run();
}

}  // namespace attncheck::properties
