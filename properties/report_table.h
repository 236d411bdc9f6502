// The table of a run, which whole runs and merged shards print alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attncheck::properties {

struct ReportRow {
    std::string op, property, status, cases, declined, waived, ratio, note;
};

std::string table_of(const std::vector<ReportRow>& rows);

/// An error in units of its bound, as the table shows it.
std::string ratio_text(double ratio);

/// Exit status of a run whose properties have these statuses and that checked so many cases.
int status_code(const std::vector<std::string>& statuses, std::int64_t checked);

}  // namespace attncheck::properties
