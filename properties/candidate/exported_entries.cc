#include "properties/candidate/exported_entries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>

#include "properties/candidate/protocol.h"

namespace attncheck::properties {
namespace {

constexpr std::string_view kPrefix = "attncheck_";
/// Symbols of candidate.h and protocol.h that are no operator.
constexpr std::string_view kOthers[] = {"attncheck_abi_version", "attncheck_candidate_name",
                                        "attncheck_precision", "attncheck_features", kAdapterOpen, kAdapterImplements};

/// What the dynamic section of one library points to.
struct Dynamic {
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    const std::uint32_t* hash = nullptr;
    const std::uint32_t* gnu_hash = nullptr;

    explicit Dynamic(const link_map& map) {
        for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
            // The loader of glibc has added the base address already, others have not.
            const ElfW(Addr) address =
                entry->d_un.d_ptr < map.l_addr ? entry->d_un.d_ptr + map.l_addr : entry->d_un.d_ptr;
            const auto* const at = reinterpret_cast<const void*>(address);
            if (entry->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym)*>(at);
            if (entry->d_tag == DT_STRTAB) names = static_cast<const char*>(at);
            if (entry->d_tag == DT_HASH) hash = static_cast<const std::uint32_t*>(at);
            if (entry->d_tag == DT_GNU_HASH) gnu_hash = static_cast<const std::uint32_t*>(at);
        }
    }

    /// How many symbols there are: no entry says so, but both tables of hashes list all of them.
    std::uint32_t count() const {
        if (hash) return hash[1];
        if (!gnu_hash) return 0;
        const std::uint32_t buckets = gnu_hash[0], first = gnu_hash[1], words = gnu_hash[2];
        const std::uint32_t* const bucket = gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / 4);
        const std::uint32_t* const chain = bucket + buckets;
        std::uint32_t last = *std::max_element(bucket, bucket + buckets);
        if (last < first) return first;
        while ((chain[last - first] & 1) == 0) ++last;
        return last + 1;
    }
};

void add_entries(const link_map& map, std::set<std::string>& out) {
    const Dynamic dynamic(map);
    if (!dynamic.symbols || !dynamic.names) return;
    for (std::uint32_t i = 0; i < dynamic.count(); ++i) {
        const ElfW(Sym)& symbol = dynamic.symbols[i];
        // The low four bits of st_info are the type, for 32 and 64 bits alike.
        if (symbol.st_shndx == SHN_UNDEF || (symbol.st_info & 0xf) != STT_FUNC) continue;
        const std::string_view name = dynamic.names + symbol.st_name;
        if (name.starts_with(kPrefix) &&
            std::find(std::begin(kOthers), std::end(kOthers), name) == std::end(kOthers))
            out.emplace(name.substr(kPrefix.size()));
    }
}

}  // namespace

std::vector<std::string> exported_entries(void* library) {
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
    std::set<std::string> names;
    // Libraries behind this one in the list were loaded for it.
    for (; map != nullptr; map = map->l_next) add_entries(*map, names);
    std::erase_if(names, [&](const std::string& name) { return !entry_named(library, name); });
    return {names.begin(), names.end()};
}

void* entry_named(void* library, const std::string& name) {
    return dlsym(library, (std::string(kPrefix) + name).c_str());
}

}  // namespace attncheck::properties
