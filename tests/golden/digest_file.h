// Text forms of the hashes: digests/OPERATOR.txt, with one line for each property, and files of
// single cases that compare two builds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cases.h"

namespace attncheck::golden {

/// "case=0123456789abcdef labels=..."; a kind that was not taken is "-".
std::string text_of(const std::array<std::optional<std::uint64_t>, kKinds>& hashes);

/// Names of the kinds that differ between two such texts.
std::vector<std::string> differing_kinds(const std::string& left, const std::string& right);

/// What digests/README says.
std::string explanation();

/// Text of the hashes by "operator property".
using DigestLines = std::map<std::string, std::string>;
DigestLines read_digests(const std::string& folder);

/// One line of a file of cases: "operator property number | hashes | case line".
struct CaseRecord {
    std::string hashes, line;
};
std::string text_of(const std::string& property, std::size_t number, const CaseHashes& one);

/// Records by "operator property", in order.
std::map<std::string, std::vector<CaseRecord>> read_cases(const std::string& path);

}  // namespace attncheck::golden
