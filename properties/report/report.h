// What a run came to, for people and for programs: the table, counterexamples, JSON, JUnit, HTML,
// and merging shards.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "properties/search/engine.h"

namespace attncheck::properties {

struct RunReport {
    std::string candidate;         ///< its name
    std::string library;           ///< as given on the command line; empty: built-in
    std::string precision_option;  ///< --precision as given on the command line
    std::string precision;         ///< rounding class as declared, in full; empty: not known
    Profile profile = Profile::ascend910b;
    std::uint64_t seed = 1;
    std::int64_t samples = PropertyContext::kSamples;  ///< of verify --large
    double duration_s = 0;
    bool interrupted = false;
    std::vector<PropertyReport> properties;
    /// For compositions: whose operators they were run on. Composition, operator, name.
    struct Source {
        std::string composition, op, implementation;
    };
    std::vector<Source> sources;
    std::vector<PairCoverage> pairs;  ///< of every operator that had cases
};

/// 0 every property held; 1 something was falsified, or a property could not be judged; 3 nothing
/// was checked.
int exit_status(const RunReport& report);

/// The rounding class that the errors of the whole run look like: "p=fp32 ds=half sum=fp32", as far
/// as there is evidence.
std::string observed_precision(const RunReport& report);

/// The command that replays a counterexample.
std::string reproduce_command(const RunReport& report, const PropertyReport& property,
                              const Counterexample& found);

void print_counterexample(std::ostream& out, const RunReport& report,
                          const PropertyReport& property, const Counterexample& found);
void print_table(std::ostream& out, const RunReport& report);

/// Schema 1 of the documented JSON object. Throws std::runtime_error when the text is no such
/// report.
std::string to_json(const RunReport& report);
std::string to_junit(const RunReport& report);
std::string to_html(const RunReport& report);

/// One word of a shell command.
std::string shell_quoted(const std::string& text);

/// Text inside XML and HTML, quotes and line ends included.
std::string xml_escaped(const std::string& text);

/// A property's report as text between processes of one run, and back.
std::string property_to_text(const PropertyReport& report);
PropertyReport property_from_text(const std::string& text);

/// Merges JSON reports of shards of one run: counts add up, the worst ratio is the largest, the
/// first counterexample of each failure class is kept. Throws std::runtime_error naming the file
/// that does not fit and why.
struct MergedReport {
    std::string json;
    int exit_status = 0;
    std::string table;
};
MergedReport merge_json(const std::vector<std::pair<std::string, std::string>>& name_and_text);

/// Writes a file as a whole or not at all. Throws std::runtime_error naming the path.
void write_file(const std::string& path, const std::string& text);

/// Throws std::runtime_error when write_file could not write there; leaves nothing behind.
void check_writable(const std::string& path);

}  // namespace attncheck::properties
