#include "active_mutant.h"

#include <cstdlib>
#include <string>

namespace attncheck::mutants {

namespace {

bool used[kMutantCount];  // zero before any dynamic initialisation

int index_named(const char* id) {
    if (id == nullptr || *id == '\0') return kNoMutant;
    const int index = mutant_index(id);
    return index < 0 ? kUnknownMutant : index;
}

std::string name_for(const char* id) {
    const int index = index_named(id);
    if (index == kNoMutant) return "attncheck mutants (correct)";
    if (index == kUnknownMutant) return std::string("unknown mutant ") + id;
    return "attncheck mutant " + std::string(kMutants[static_cast<std::size_t>(index)].id);
}

std::string candidate_name = name_for(std::getenv("ATTNCHECK_MUTANT"));

}  // namespace

int active_mutant = index_named(std::getenv("ATTNCHECK_MUTANT"));

bool mark_used(int index) { return used[index] = true; }

}  // namespace attncheck::mutants

using namespace attncheck::mutants;

void attncheck_mutants_select(const char* id) {
    active_mutant = index_named(id);
    candidate_name = name_for(id);
}

int attncheck_mutants_is_used(int index) {
    return index >= 0 && index < kMutantCount && used[index];
}

uint32_t attncheck_abi_version() {
    return active_mutant == kUnknownMutant ? 0 : ATTNCHECK_ABI_VERSION;
}

const char* attncheck_candidate_name() { return candidate_name.c_str(); }

const char* attncheck_precision() { return "default"; }
