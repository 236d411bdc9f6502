// The table of a run, which whole runs and merged shards print alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/search/class_pairs.h"

namespace attncheck::properties {

struct ReportRow {
    std::string op, property, status, cases, declined, waived, ratio, note;
};

std::string table_of(const std::vector<ReportRow>& rows);

/// A line for each operator's pairs of classes; empty when there are none.
std::string pairs_table(const std::vector<PairCoverage>& pairs);

/// An error in units of its bound, as the table shows it.
std::string ratio_text(double ratio);

/// Exit status of a run whose properties have these statuses and that checked so many cases.
int status_code(const std::vector<std::string>& statuses, std::int64_t checked);

}  // namespace attncheck::properties
