#include "properties/search/corpus.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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

/// Runs that share the folder take turns, each for a moment. Whoever can read the file can lock it, a
/// library in its sandbox too: the line is then written without a lock, which one write at the end bears.
void take_turn(int file) {
    constexpr int kMostTries = 200, kPauseUs = 5000;
    for (int k = 0; k < kMostTries && flock(file, LOCK_EX | LOCK_NB) != 0; ++k) usleep(kPauseUs);
}

/// Whether the file has the line: another run of the same folder may have added it since it was read.
bool has_line(const std::string& path, const std::string& text) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        if (line == text) return true;
    return false;
}

/// Adds a separate line unless it is there, or leaves the file as it was.
bool append_line(const std::string& path, const std::string& text) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return false;
    take_turn(file);
    if (has_line(path, text)) return close(file) == 0;
    const off_t end = lseek(file, 0, SEEK_END);
    char last = '\n';
    const bool is_readable = end <= 0 || pread(file, &last, 1, end - 1) == 1;
    const std::string line = (last == '\n' ? "" : "\n") + text + "\n";
    const bool written = end >= 0 && is_readable &&
                         write(file, line.data(), line.size()) == std::ssize(line);
    if (!written && end >= 0) (void)!ftruncate(file, end);
    return close(file) == 0 && written;
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
    if (!std::filesystem::is_regular_file(path))
        throw std::runtime_error(path + " is no regular file");
    std::ifstream in(path);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.empty() || line.front() == '#') continue;
        try {
            if (std::optional<Entry> entry = entry_of(line, op, profile))
                entries_.push_back(std::move(*entry));
        } catch (const std::invalid_argument& e) {
            const std::string why = fmt::format("{}:{}: {}", path, number, e.what());
            if (!in.eof()) throw std::runtime_error(why);
            warnings_.push_back(why + "; this last line has no end and was left out");
        }
    }
    if (in.bad() || !in.eof()) throw std::runtime_error("cannot read " + path);
}

std::optional<Corpus::Entry> Corpus::entry_of(const std::string& line, const Operator& op,
                                              Profile profile) {
    const auto blank = line.find(' ');
    if (blank == std::string::npos) throw std::invalid_argument("expected PROPERTY CASE");
    Entry entry{op.name(), line.substr(0, blank), {}};
    if (entry.property != "*" && op.property(entry.property) == nullptr)
        throw std::invalid_argument(
            fmt::format("{} has no property '{}'", op.name(), entry.property));
    entry.spec = parse(line.substr(blank + 1), schemas());
    if (entry.spec.schema->op != op.name())
        throw std::invalid_argument("is a case of " + entry.spec.schema->op +
                                    ", expected one of " + op.name());
    entry.spec.profile = profile;
    const auto why = op.illegal(entry.spec);
    if (!why) return entry;
    if (!is_legal_elsewhere(op, entry.spec)) throw std::invalid_argument(*why);
    return std::nullopt;
}

bool is_case_of(const Property& property, const Spec& spec) {
    return property.validation == !spec.edits.empty() && (!property.domain || property.domain(spec));
}

std::vector<Spec> Corpus::cases_of(const Operator& op, const Property& property) const {
    std::vector<Spec> cases;
    for (const Entry& entry : entries_)
        if (entry.op == op.name() && (entry.property == "*" || entry.property == property.name) && is_case_of(property, entry.spec))
            cases.push_back(entry.spec);
    return cases;
}

void Corpus::check_writable() const {
    namespace fs = std::filesystem;
    const auto check = [&](const fs::path& path) {
        if (access(path.c_str(), W_OK) != 0)
            throw std::runtime_error(
                fmt::format("cannot write {} of --corpus {}", path.string(), folder_));
    };
    fs::path existing = fs::absolute(folder_);
    while (!fs::exists(existing) && existing.has_relative_path())
        existing = existing.parent_path();
    if (!fs::is_directory(existing))
        throw std::runtime_error(
            fmt::format("--corpus is '{}', but {} is no folder", folder_, existing.string()));
    check(existing);
    for (const auto& op : operators())
        if (fs::exists(path_of(op->name()))) check(path_of(op->name()));
}

void Corpus::add(const Operator& op, const std::string& property, const Spec& spec) {
    const std::string text = print(spec);
    if (std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
            return (entry.property == property || entry.property == "*") &&
                   print(entry.spec) == text;
        }))
        return;
    std::filesystem::create_directories(folder_);
    const std::string path = path_of(op.name());
    if (!append_line(path, property + " " + text)) throw std::runtime_error("cannot write " + path);
    entries_.push_back({op.name(), property, spec});
}

}  // namespace attncheck::properties
