#include "properties/cli/load_hints.h"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>

namespace attncheck::properties {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;  ///< every run reads the file: it must not notice

std::string architecture(ElfW(Half) machine) {
    switch (machine) {
        case EM_X86_64:
            return "x86-64";
        case EM_AARCH64:
            return "aarch64";
        case EM_386:
            return "x86 (32 bits)";
        case EM_ARM:
            return "arm (32 bits)";
        case EM_RISCV:
            return "riscv";
        case EM_PPC64:
            return "ppc64";
        default:
            return fmt::format("machine {}", machine);
    }
}

constexpr ElfW(Half) kOwnMachine =
#if defined(__x86_64__)
    EM_X86_64;
#elif defined(__aarch64__)
    EM_AARCH64;
#else
    EM_NONE;
#endif

bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }

/// "attncheck_attention" of "_Z19attncheck_attentionPK..." (Itanium C++ ABI 5.1); empty: no such
/// name in the file, which may have hundreds of megabytes.
std::string mangled_name(const std::string& file) {
    constexpr std::string_view kOwn = "attncheck_";
    for (std::size_t at = file.find(kOwn); at != std::string::npos; at = file.find(kOwn, at + 1)) {
        std::size_t digits = at;
        while (digits > 0 && is_digit(file[digits - 1])) --digits;
        // At its beginning: a template of a function names it too.
        const bool is_mangled = digits < at && at - digits <= 3 && digits >= 3 &&
                                file.compare(digits - 3, 3, "\0_Z", 3) == 0;
        if (!is_mangled) continue;
        const std::size_t length = std::stoul(file.substr(digits, at - digits));
        const std::string name = file.substr(at, length);
        const auto is_of_a_name = [](char ch) { return is_digit(ch) || ch == '_' || (ch >= 'a' && ch <= 'z'); };
        if (name.size() == length && std::ranges::all_of(name, is_of_a_name)) return name;
    }
    return {};
}

}  // namespace

std::string load_hint(const std::string& path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in || in.tellg() < 0 || static_cast<std::size_t>(in.tellg()) > kMostBytes) return {};
    std::string file(static_cast<std::size_t>(in.tellg()), '\0');
    in.seekg(0);
    if (!in.read(file.data(), static_cast<std::streamsize>(file.size()))) return {};
    ElfW(Ehdr) header{};
    if (file.size() < sizeof header || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
        const bool is_source = path.ends_with(".c") || path.ends_with(".cc") || path.ends_with(".cpp");
        if (path.ends_with(".py"))
            return "a file with functions in Python is given as python:" + path;
        return is_source ? "it is a source file: compile it with -shared -fPIC"
                         : "it is no shared library: it does not begin as an ELF file does";
    }
    std::memcpy(&header, file.data(), sizeof header);
    if (kOwnMachine != EM_NONE && header.e_machine != kOwnMachine)
        return fmt::format("it is built for {}, this machine is {}", architecture(header.e_machine),
                           architecture(kOwnMachine));
    if (header.e_type == ET_REL) return "it is an object file: link it with -shared";
    const std::string name = mangled_name(file);
    return name.empty() ? ""
                        : fmt::format("the library has {} with a C++ name: declare it extern \"C\", as "
                                      "attncheck/candidate.h does",
                                      name);
}

}  // namespace attncheck::properties
