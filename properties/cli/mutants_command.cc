#include "properties/cli/mutants_command.h"

#include "properties/cli/command.h"
#include "properties/cli/option_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "properties/grading/mutants.h"
#include "properties/grading/words.h"
#include "properties/operators/catalogue.h"
#include "properties/report/files.h"
#include "properties/judge/rules.h"
#include "properties/candidate/installation.h"

namespace attncheck::properties {
namespace {

bool chosen(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

/// Ids are given as they are or with wildcards: "*-x2*".
bool matches(std::string_view pattern, std::string_view id) {
    if (pattern.empty()) return id.empty();
    if (pattern.front() == '*')
        return matches(pattern.substr(1), id) || (!id.empty() && matches(pattern, id.substr(1)));
    return !id.empty() && (pattern.front() == '?' || pattern.front() == id.front()) &&
           matches(pattern.substr(1), id.substr(1));
}

bool chosen_by_id(const std::vector<std::string>& patterns, const std::string& id) {
    return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
               return matches(pattern, id);
           });
}

std::vector<Mutant> all_mutants(const MutantsArguments& arguments) {
    std::vector<std::string> libraries = arguments.libraries;
    if (libraries.empty()) libraries.push_back(find_mutants_library());
    std::vector<Mutant> all;
    std::vector<std::string> known;
    for (const auto& op : operators()) known.push_back(op->name());
    for (const auto& library : libraries)
        for (auto& mutant : read_mutants(library, known)) all.push_back(std::move(mutant));
    return all;
}

void check_names(const MutantsArguments& arguments, const std::vector<Mutant>& all) {
    const auto check = [&](const char* what, const std::vector<std::string>& given,
                           std::string Mutant::* field, const char* hint) {
        for (const auto& name : given)
            if (std::none_of(all.begin(), all.end(),
                             [&](const Mutant& mutant) { return matches(name, mutant.*field); }))
                throw std::runtime_error(fmt::format("unknown {} '{}', {}", what, name, hint));
    };
    check("mutant", arguments.only, &Mutant::id, "`attncheck mutants --list` prints them");
    check("family", arguments.families, &Mutant::family, "`attncheck mutants --list` prints them");
}

std::vector<Mutant> chosen_mutants(const MutantsArguments& arguments,
                                   const std::vector<Mutant>& all) {
    std::vector<Mutant> mutants;
    for (const auto& mutant : all)
        if (chosen_by_id(arguments.only, mutant.id) && chosen(arguments.families, mutant.family) &&
            (arguments.ids == "all" || mutant.in_catalogue) &&
            (!arguments.counted || mutant.counted()))
            mutants.push_back(mutant);
    if (!arguments.words.empty())  // a rounding class decides nothing about rulings
        std::erase_if(mutants, &Mutant::of_rulings);
    for (std::size_t i = mutants.size(); i-- > 0;)
        if (i % static_cast<std::size_t>(arguments.every) != 0)
            mutants.erase(mutants.begin() + static_cast<std::ptrdiff_t>(i));
    if (mutants.empty()) throw std::runtime_error("no mutant is left to grade");
    return mutants;
}

/// The libraries as they are without a mutant, one for each family: they have to hold.
std::vector<Mutant> without_mutant(const std::vector<Mutant>& mutants) {
    std::vector<Mutant> clean;
    for (const auto& mutant : mutants) {
        if (mutant.operators.empty()) continue;  // a library with a defect it cannot switch off
        auto it = std::find_if(clean.begin(), clean.end(), [&](const Mutant& known) {
            return known.family == mutant.family && known.library == mutant.library;
        });
        if (it == clean.end()) {
            Mutant none = mutant;
            none.id.clear();
            none.profile.clear();
            none.difficulty = "none";
            none.status = "contract-dependent";
            it = clean.insert(clean.end(), none);
        }
        for (const auto& name : mutant.operators)
            if (!chosen(it->operators, name)) it->operators.push_back(name);
    }
    return clean;
}

std::int64_t elements_of(const std::string& case_line) {
    const Spec spec = parse(case_line, schemas());
    std::int64_t all = 0;
    for (const auto& shape : find_operator(spec.schema->op)->shapes(spec))
        all += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies());
    return all;
}

void print_list(const std::vector<Mutant>& mutants) {
    for (const auto& mutant : mutants)
        say("{:<12} {:<26} {:<10} {:<19} {}\n", mutant.id, mutant.label, mutant.difficulty,
                   mutant.status, mutant.description);
}

}  // namespace

CLI::App* add_mutants_command(CLI::App& app, MutantsArguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "mutants", "grade the suite: run it against libraries with known defects");
    command
        ->add_option("library", arguments.libraries,
                     "shared libraries with a table of mutants, or with one defect each; the "
                     "project's own mutants if left out")
        ->type_name("LIB");
    command->add_flag("--list", arguments.list, "print the mutants and run nothing");
    command->add_option("--only", arguments.only, "only these mutants, * and ? as in file names")
        ->type_name("ID")
        ->delimiter(',');
    command->add_option("--family", arguments.families, "only mutants of these families")
        ->type_name("NAME")
        ->delimiter(',');
    command
        ->add_option("--ids", arguments.ids,
                     "all, or those of the catalogue of bug classes (ids without an x)")
        ->check(CLI::IsMember({"all", "catalogue"}))
        ->capture_default_str();
    command->add_flag("--counted", arguments.counted,
                      "leave out mutants that break no promise of the contract");
    command->add_option("--every", arguments.every, "one of so many mutants, for a coarse grading [1]")
        ->type_name("N")
        ->check(CLI::Range(1, 1000));
    command
        ->add_option("--words", arguments.words,
                     "Markdown file whose table of the words of --precision is rewritten: what of the "
                     "mutants is killed under each")
        ->type_name("FILE");
    command
        ->add_option("--cases", arguments.cases,
                     "with --words: cases of each property of the whole suite against one mutant")
        ->type_name("N")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    command->add_flag("--no-clean", arguments.no_clean,
                      "do not check that the libraries hold without a mutant");
    command->add_option("--seed", arguments.seed, "seed of the generated cases")
        ->capture_default_str();
    command->add_option("--shrink", arguments.shrink, "time limit for shrinking one counterexample")
        ->type_name("SECONDS")
        ->check(seconds_between(0, 1e9))
        ->capture_default_str();
    command->add_option("--limit", arguments.limit, "time limit for one mutant")
        ->type_name("SECONDS")
        ->check(seconds_between(0.001, 1e9))
        ->capture_default_str();
    command->add_option("--jobs", arguments.jobs, "mutants graded at once; one for each core")
        ->check(CLI::Range(1, 1024));
    command
        ->add_option("--earlier", arguments.earlier,
                     "JSON of an earlier run: the property that killed a mutant then is tried "
                     "first, the rest only if it does not")
        ->type_name("FILE");
    command
        ->add_option("--rule", arguments.rule,
                     "grade the tolerance of another project in place of the suite, on the cases "
                     "of agreement")
        ->check(CLI::IsMember(rule_names()));
    command
        ->add_option("--json", arguments.json,
                     "write the scores as JSON, those of --earlier where this run has none; it may "
                     "be the same file")
        ->type_name("FILE");
    command
        ->add_option("--counts", arguments.counts,
                     "Markdown file whose tables of counts are rewritten, of graded families; "
                     "mutants that this run left out as in --earlier")
        ->type_name("FILE");
    command
        ->add_option("--details", arguments.details,
                     "Markdown file whose tables of single mutants are rewritten, of graded "
                     "families; mutants that this run left out as in --earlier")
        ->type_name("FILE");
    command
        ->add_option("--minima", arguments.minima,
                     "file of lines 'ID CASE': fail when a mutant's smallest case is another")
        ->type_name("FILE");
    return command;
}

int grade_mutants(const MutantsArguments& arguments) {
    const std::vector<Mutant> all = all_mutants(arguments);
    check_names(arguments, all);
    const std::vector<Mutant> mutants = chosen_mutants(arguments, all);
    if (arguments.list) {
        print_list(mutants);
        return 0;
    }
    if (!arguments.json.empty()) check_writable(arguments.json);
    MutationOptions options;
    options.program = std::filesystem::read_symlink("/proc/self/exe");
    options.seed = arguments.seed;
    options.shrink_seconds = arguments.shrink;
    options.limit_seconds = arguments.limit;
    options.jobs = arguments.jobs > 0
                       ? arguments.jobs
                       : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    options.earlier = arguments.earlier;
    options.elements_of = elements_of;
    options.rule = arguments.rule;

    if (!arguments.words.empty()) {
        const std::vector<WordScore> words =
            grade_words(mutants, options, arguments.cases, std::cout);
        std::cout << "\n" << words_table(words);
        if (words.size() <= graded_words().size()) return kInterrupted;
        rewrite_words(arguments.words, words);
        const bool whole = std::ranges::none_of(words, [](const WordScore& word) {
            return std::ranges::any_of(word.scores, &MutantScore::cut_off);
        });
        if (!whole) say("the limit of time cut off mutants; --limit gives them more\n");
        return whole ? 0 : 1;
    }
    std::vector<Mutant> work;
    if (!arguments.no_clean && arguments.only.empty()) work = without_mutant(mutants);
    work.insert(work.end(), mutants.begin(), mutants.end());
    const Grades grades = grade(work, options, std::cout);
    std::vector<MutantScore> scores;
    int broken = 0;
    for (const MutantScore& score : grades.scores) {
        if (!score.mutant.id.empty()) {
            scores.push_back(score);
            continue;
        }
        if (score.exit_status == 0) continue;
        ++broken;
        say("\n{} without a mutant, {}: exit status {} after {} cases {} {}\n",
                   score.mutant.library, score.mutant.family, score.exit_status, score.cases,
                   score.property, score.smallest);
    }

    const int gaps = print_scores(std::cout, scores);
    if (grades.interrupted) {
        say("interrupted: this is what was graded so far\n");
        return kInterrupted;
    }
    const std::vector<MutantScore> whole = with_earlier(scores, all, arguments.earlier);
    if (!arguments.json.empty()) write_file(arguments.json, scores_json(scores, arguments.earlier));
    if (!arguments.counts.empty()) rewrite_counts(arguments.counts, whole);
    if (!arguments.details.empty()) rewrite_details(arguments.details, whole);
    std::vector<std::string> unexpected;
    if (!arguments.minima.empty()) unexpected = unexpected_minima(arguments.minima, scores);
    for (const auto& one : unexpected) say("\n{}\n", one);
    return gaps == 0 && broken == 0 && unexpected.empty() ? 0 : 1;
}

}  // namespace attncheck::properties
