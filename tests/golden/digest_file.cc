#include "digest_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace attncheck::golden {
namespace {

std::ifstream opened(const std::string& path) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error(fmt::format("cannot read {}", path));
    return in;
}

}  // namespace

std::string text_of(const std::array<std::optional<std::uint64_t>, kKinds>& hashes) {
    std::string out;
    for (int kind = 0; kind < kKinds; ++kind)
        out += fmt::format("{}{}={}", kind == 0 ? "" : " ", kKindTable[kind].name,
                           hashes[kind] ? fmt::format("{:016x}", *hashes[kind]) : "-");
    return out;
}

std::vector<std::string> differing_kinds(const std::string& left, const std::string& right) {
    std::vector<std::string> out;
    std::istringstream of_left(left), of_right(right);
    for (const Kind& kind : kKindTable) {
        std::string a, b;
        of_left >> a, of_right >> b;
        if (a != b) out.push_back(kind.name);
    }
    return out;
}

std::string explanation() {
    std::string out = fmt::format(
        "Golden digests: hashes of what every operator makes of {} generated cases per property\n"
        "(seed 1, sizes 0 to 100). A digest changes only in a commit that says why.\n"
        "Written by:  build/release/bin/attncheck_golden --write tests/golden/digests\n"
        "To see the first case that differs, write the cases of the old build and compare:\n"
        "  OLD/bin/attncheck_golden --cases FILE;  NEW/bin/attncheck_golden --compare FILE\n"
        "Both take --all, which hashes every kind of every case (minutes).\n"
        "\n",
        kCases);
    for (const Kind& kind : kKindTable)
        out += fmt::format("{:10} 1 case of {:<3} {}\n", kind.name, kind.step, kind.meaning);
    return out +
           "\n"
           "`-`: the property has none. Edits are those of validation. Properties for cases of\n"
           "full size have no buffers. Buffers with statistics depend on exp, whose last bit\n"
           "differs between processors. Rounding to fp32 hides that: the digests were the same\n"
           "without FMA (GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA). All NaNs count as one\n"
           "value, for the sign of a computed one depends on the compiler.\n";
}

DigestLines read_digests(const std::string& folder) {
    DigestLines out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".txt") continue;
        std::ifstream in = opened(entry.path());
        for (std::string line; std::getline(in, line);) {
            std::istringstream words(line);
            std::string op, property, rest;
            words >> op >> property >> std::ws;
            std::getline(words, rest);
            out[op + " " + property] = rest;
        }
    }
    return out;
}

std::string text_of(const std::string& property, std::size_t number, const CaseHashes& one) {
    return fmt::format("{} {} | {} | {}\n", property, number, text_of(one.hashes), one.line);
}

std::map<std::string, std::vector<CaseRecord>> read_cases(const std::string& path) {
    std::ifstream in = opened(path);
    std::map<std::string, std::vector<CaseRecord>> out;
    for (std::string line; std::getline(in, line);) {
        const auto hashes = line.find(" | "), text = line.find(" | ", hashes + 3);
        if (hashes == std::string::npos || text == std::string::npos)
            throw std::runtime_error(fmt::format("{}: not a line of --cases: {}", path, line));
        const std::string key = line.substr(0, line.rfind(' ', hashes - 1));
        out[key].push_back({line.substr(hashes + 3, text - hashes - 3), line.substr(text + 3)});
    }
    return out;
}

}  // namespace attncheck::golden
