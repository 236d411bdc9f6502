// Computes, writes and checks the golden digests; see digests/README.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "digest_file.h"
#include "properties/cli/heap.h"

using namespace attncheck::golden;
using namespace attncheck::properties;

namespace {

struct Options {
    std::vector<std::string> operators;
    std::string check, check_names, write, cases, compare;
    bool all = false;

    bool chosen(const std::string& op) const {
        return operators.empty() ||
               std::find(operators.begin(), operators.end(), op) != operators.end();
    }
};

std::ofstream created(const std::string& path) {
    std::ofstream out(path);
    if (!out) throw std::runtime_error(fmt::format("cannot write {}", path));
    return out;
}

struct Entry {
    std::string key;  ///< "operator property"
    const Operator& op;
    const Property& property;
};

std::vector<Entry> entries(const Options& options) {
    std::vector<Entry> out;
    for (const auto& op : operators())
        if (options.chosen(op->name()))
            for (const Property& property : op->properties())
                out.push_back({op->name() + " " + property.name, *op, property});
    return out;
}

std::string digests_of(const Entry& entry, const Options& options) {
    return text_of(summary(hash_cases(entry.op, entry.property, options.all)));
}

void print(const Options& options) {
    for (const Entry& entry : entries(options))
        fmt::print("{} {}\n", entry.key, digests_of(entry, options));
}

/// A file for each operator, so that a new one adds a file and touches no other.
void write(const Options& options) {
    created(options.write + "/README") << explanation();
    std::map<std::string, std::string> files;
    for (const Entry& entry : entries(options))
        files[entry.op.name()] += fmt::format("{} {}\n", entry.key, digests_of(entry, options));
    for (const auto& [op, text] : files)
        created(fmt::format("{}/{}.txt", options.write, op)) << text;
}

void write_cases(const Options& options) {
    std::ofstream out = created(options.cases);
    for (const Entry& entry : entries(options)) {
        std::size_t number = 0;
        for (const CaseHashes& one : hash_cases(entry.op, entry.property, options.all))
            out << text_of(entry.key, number++, one);
    }
}

/// How many properties are in the file or in the suite alone; only names are compared.
int check_names(const Options& options, const DigestLines& wanted) {
    int differences = 0;
    std::set<std::string> present;
    for (const Entry& entry : entries(options)) present.insert(entry.key);
    for (const auto& [key, hashes] : wanted)
        if (options.chosen(key.substr(0, key.find(' '))) && !present.contains(key)) {
            fmt::print("{}: in the file, not in the suite\n", key);
            ++differences;
        }
    for (const std::string& key : present)
        if (!wanted.contains(key)) {
            fmt::print("{}: in the suite, not in the file\n", key);
            ++differences;
        }
    return differences;
}

int check(const Options& options) {
    const DigestLines wanted = read_digests(options.check);
    int differences = check_names(options, wanted);
    for (const Entry& entry : entries(options)) {
        const auto it = wanted.find(entry.key);
        if (it == wanted.end()) continue;
        const auto kinds = differing_kinds(it->second, digests_of(entry, options));
        if (kinds.empty()) continue;
        fmt::print("{}: {}\n", entry.key, fmt::join(kinds, " "));
        ++differences;
    }
    return differences;
}

/// For each kind the first case whose hash differs from that of the file; how many kinds do.
int compare_property(const Entry& entry, const std::vector<CaseRecord>& wanted, bool all) {
    const std::vector<CaseHashes> found = hash_cases(entry.op, entry.property, all);
    std::set<std::string> reported;
    if (found.size() != wanted.size()) {
        fmt::print("{}: {} cases, {} in the file\n", entry.key, found.size(), wanted.size());
        reported.insert("number of cases");
    }
    for (std::size_t k = 0; k < std::min(found.size(), wanted.size()); ++k)
        for (const auto& kind : differing_kinds(wanted[k].hashes, text_of(found[k].hashes)))
            if (reported.insert(kind).second)
                fmt::print("{}: {} of case {}\n  old {}\n  new {}\n", entry.key, kind, k,
                           wanted[k].line, found[k].line);
    return static_cast<int>(reported.size());
}

int compare(const Options& options) {
    const auto wanted = read_cases(options.compare);
    int differences = 0;
    for (const Entry& entry : entries(options)) {
        const auto it = wanted.find(entry.key);
        if (it != wanted.end()) {
            differences += compare_property(entry, it->second, options.all);
        } else {
            fmt::print("{}: not in {}\n", entry.key, options.compare);
            ++differences;
        }
    }
    return differences;
}

int run(const Options& options) {
    if (!options.cases.empty()) return write_cases(options), 0;
    if (!options.write.empty()) return write(options), 0;
    if (!options.compare.empty()) return compare(options) == 0 ? 0 : 1;
    if (options.check.empty() && options.check_names.empty()) return print(options), 0;
    const int differences = options.check.empty()
                                ? check_names(options, read_digests(options.check_names))
                                : check(options);
    if (differences == 0) return 0;
    fmt::print(
        "{} properties differ from the golden digests. A digest changes only in a commit that says "
        "why;\nwrite new ones with: attncheck_golden --write tests/golden/digests\n",
        differences);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    keep_freed_memory();
    Options options;
    CLI::App app{"Hashes of what every operator makes of generated cases; prints them by default"};
    app.add_option("--operator", options.operators, "operators [all]");
    auto* modes = app.add_option_group("mode");
    modes->add_option("--check", options.check, "folder of digests to compare with");
    modes->add_option("--check-names", options.check_names,
                      "folder of digests to compare with, by names of properties only");
    modes->add_option("--write", options.write, "folder of digests to write");
    modes->add_option("--cases", options.cases, "file to write, with the hashes of every case");
    modes->add_option("--compare", options.compare, "file of --cases; prints cases that differ");
    modes->require_option(0, 1);
    app.add_flag("--all", options.all,
                 "every kind of hash of every case; for --cases and --compare");
    CLI11_PARSE(app, argc, argv);
    for (const std::string& name : options.operators)
        if (find_operator(name) == nullptr) {
            fmt::print(stderr, "there is no operator {}\n", name);
            return 2;
        }
    try {
        return run(options);
    } catch (const std::exception& e) {
        fmt::print(stderr, "{}\n", e.what());
        return 2;
    }
}
