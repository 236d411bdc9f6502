// Grading the suite: libraries with named defects ("mutants"), a verification run against each, and
// what killed it.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace attncheck::properties {

/// One defect of a library. The library switches it on when the environment variable
/// ATTNCHECK_MUTANT holds its id.
struct Mutant {
    std::string library;
    std::string id;
    std::string family;                  ///< groups operators in tables: a forward and its gradient
    std::string label;                   ///< the operators it sits in, as tables print them
    std::vector<std::string> operators;  ///< the same as names for --op; empty: all of them
    bool of_rulings = false;             ///< accepts or rejects the wrong arguments
    bool in_catalogue = true;            ///< of bug classes; otherwise one more of the same kinds
    std::string difficulty = "unknown";
    std::string status = "counted";  ///< "contract-dependent" ones may survive
    std::string profile;             ///< the platform it shows on; empty: the default one
    std::string description;

    bool counted() const { return status != "contract-dependent"; }
};

/// Reads the text that the library's `const char* attncheck_mutant_table(void)` returns: a line for
/// each mutant, tab-separated: id, family, label, operators (comma-separated), kind ("ruling" or
/// "result"), origin ("catalogue" or "further"), difficulty, status, profile (- for the default
/// one), description. A library without that function is one mutant,
/// named after its file. Throws std::runtime_error when it cannot be loaded, a line does not fit or
/// names an operator that is not known.
std::vector<Mutant> read_mutants(const std::string& library,
                                 const std::vector<std::string>& known_operators);

/// What a run of the suite against one mutant came to.
struct MutantScore {
    Mutant mutant;
    bool killed = false;
    bool repeatable = false;  ///< by a case that fails alone in a fresh process
    bool certified = false;   ///< every neighbour of the smallest case was tried and holds
    int exit_status = -1;     ///< of the program
    std::string tier;         ///< what judged it (Counterexample)
    std::string property, failure, smallest, certificate;
    std::int64_t cases = 0;     ///< run before it was killed, that case included
    double seconds = 0;         ///< until it was killed, or of the whole run
    double shrink_seconds = 0;  ///< from the first failing case to the smallest
    std::int64_t elements = 0;  ///< of all tensors of the smallest case

    /// The limit of time ended the program: it is not known whether the mutant survives.
    bool cut_off() const { return !killed && exit_status == kCutOff; }
    static constexpr int kCutOff = 124;  ///< of timeout(1)

    /// A defect that the suite should have seen and did not.
    bool gap() const { return !killed && mutant.counted(); }
};

struct MutationOptions {
    std::string program;  ///< the attncheck program that is run against each mutant
    std::uint64_t seed = 1;
    double shrink_seconds = 30;  ///< limit for one counterexample
    double limit_seconds = 300;  ///< limit for one mutant
    int jobs = 2;
    std::function<std::int64_t(const std::string& case_line)> elements_of;
    std::string precision;   ///< what the candidate declares; empty: what its library does
    int run_cases = 0;       ///< of each property in a whole run, which is all then; 0: the usual number
    std::string rule;     ///< tolerance_rules(): it is graded in place of the suite
    std::string earlier;  ///< JSON of an earlier run: what killed a mutant then is tried first
};

struct Grades {
    std::vector<MutantScore> scores;  ///< in the order of the mutants; of those that were judged
    bool interrupted = false;         ///< by SIGINT, before all were
};

/// Runs the suite against every mutant and prints a line as soon as one is judged. Throws
/// std::runtime_error when the earlier run cannot be read.
Grades grade(const std::vector<Mutant>& mutants, const MutationOptions& options, std::ostream& out);

/// Operator by difficulty by tier, times, sizes, certificates. Returns the number of gaps.
int print_scores(std::ostream& out, const std::vector<MutantScore>& scores);

/// The list of mutants in the JSON of a grading. Throws std::runtime_error when it cannot be read.
nlohmann::ordered_json read_scores(const std::string& path);

/// Mutants that `earlier`, the JSON of another run, has and this one did not grade stay as they
/// are. Throws std::runtime_error when it cannot be read.
std::string scores_json(const std::vector<MutantScore>& scores, const std::string& earlier = {});

/// The scores of this run and, of the other mutants of its families, those of `earlier`, in the order of `all`; without
/// `earlier`, this run alone. Throws std::runtime_error when it cannot be read.
std::vector<MutantScore> with_earlier(const std::vector<MutantScore>& scores, const std::vector<Mutant>& all,
                                      const std::string& earlier);

/// Rewrites what stands between "<!-- score:FAMILY:begin -->" and "<!-- score:FAMILY:end -->" for
/// every family that was graded and has these markers: the counts by difficulty, or the single
/// mutants. Throws std::runtime_error when the file cannot be read or written or has no marker.
void rewrite_counts(const std::string& path, const std::vector<MutantScore>& scores);
void rewrite_details(const std::string& path, const std::vector<MutantScore>& scores);

/// Mutants whose smallest case is another than the one that `path` gives for their id (lines
/// "ID CASE", # starts a comment), a text for each; ids that were not graded are left out. Throws
/// std::runtime_error when the file cannot be read.
std::vector<std::string> unexpected_minima(const std::string& path,
                                           const std::vector<MutantScore>& scores);

}  // namespace attncheck::properties
