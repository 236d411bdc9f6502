// A run in text for people: how it ends, which whole runs and merged shards print alike, and single
// counterexamples.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "properties/report/causes.h"
#include "properties/report/results.h"

namespace attncheck::properties {

void print_counterexample(std::ostream& out, const RunReport& report,
                          const PropertyReport& property, const Counterexample& found);
/// One line for a counterexample that is still to be shrunk.
void print_found(std::ostream& out, const PropertyReport& property, const Counterexample& found);
/// One line for a counterexample that joins a cause which was printed already.
void print_another(std::ostream& out, const PropertyReport& property, const Counterexample& found);
/// The end of a run: a line for each operator, see summary.h, or with `verbose` one for each
/// property, and the classes and pairs that were reached; then the causes of failures, the totals and
/// the verdict.
void print_table(std::ostream& out, const RunReport& report, bool verbose);

/// The last part of it: waivers, totals, notes, and the verdict that `status` stands for.
void print_end(std::ostream& out, const RunReport& report, const std::vector<Cause>& causes, int status, bool verbose);

struct ReportRow {
    std::string op, property, status, cases, declined, waived, ratio, note;
};

std::string table_of(const std::vector<ReportRow>& rows);

/// A line for each operator's pairs of classes; empty when there are none.
std::string pairs_table(const std::vector<PairCoverage>& pairs);

/// An error in units of its bound, as the table shows it.
std::string ratio_text(double ratio);

}  // namespace attncheck::properties
