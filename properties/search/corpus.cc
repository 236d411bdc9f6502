#include "properties/search/corpus.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

/// Whether the case is legal under some profile.
bool is_legal_elsewhere(const Operator& op, Spec spec) {
    for (std::size_t k = 0; k < kProfileNames.size(); ++k) {
        spec.profile = static_cast<Profile>(k);
        if (!op.illegal(spec)) return true;
    }
    return false;
}

}  // namespace

Corpus::Corpus(std::string folder, Profile profile) : folder_(std::move(folder)) {
    if (std::filesystem::exists(folder_) && !std::filesystem::is_directory(folder_))
        throw std::runtime_error(fmt::format("--corpus is '{}', expected a folder", folder_));
    for (const auto& op : operators())
        if (std::filesystem::exists(path_of(op->name()))) read(*op, profile);
}

void Corpus::read(const Operator& op, Profile profile) {
    const std::string path = path_of(op.name());
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot read " + path);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.empty() || line.front() == '#') continue;
        const auto refuse = [&](const std::string& why) {
            throw std::runtime_error(fmt::format("{}:{}: {}", path, number, why));
        };
        const auto blank = line.find(' ');
        if (blank == std::string::npos) refuse("expected PROPERTY CASE");
        Entry entry{op.name(), line.substr(0, blank), {}};
        if (entry.property != "*" && op.property(entry.property) == nullptr)
            refuse(fmt::format("{} has no property '{}'", op.name(), entry.property));
        try {
            entry.spec = parse(line.substr(blank + 1), schemas());
        } catch (const std::invalid_argument& e) {
            refuse(e.what());
        }
        if (entry.spec.schema->op != op.name())
            refuse("is a case of " + entry.spec.schema->op + ", expected one of " + op.name());
        entry.spec.profile = profile;
        if (const auto why = op.illegal(entry.spec)) {
            if (!is_legal_elsewhere(op, entry.spec)) refuse(*why);
            continue;
        }
        entries_.push_back(std::move(entry));
    }
}

std::vector<Spec> Corpus::cases_of(const Operator& op, const Property& property) const {
    std::vector<Spec> cases;
    for (const Entry& entry : entries_)
        if (entry.op == op.name() && (entry.property == "*" || entry.property == property.name) &&
            property.validation == !entry.spec.edits.empty() &&
            (!property.domain || property.domain(entry.spec)))
            cases.push_back(entry.spec);
    return cases;
}

void Corpus::add(const Operator& op, const std::string& property, const Spec& spec) {
    const std::string text = print(spec);
    if (std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
            return (entry.property == property || entry.property == "*") &&
                   print(entry.spec) == text;
        }))
        return;
    std::filesystem::create_directories(folder_);
    const std::string path = path_of(op.name()), line = property + " " + text + "\n";
    // One write at the end of the file: runs that share the folder do not mix their lines.
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    const bool written =
        file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    if (file >= 0) close(file);
    if (!written) throw std::runtime_error("cannot write " + path);
    entries_.push_back({op.name(), property, spec});
}

}  // namespace attncheck::properties
