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

/// A line for each mutant, tab-separated: id, family, label, entry points, kind, origin, difficulty,
/// status, platform it shows on (- for the default one), description.
std::string table_text() {
    std::string text;
    for (const Mutant& mutant : kMutants) {
        const Operators& operators = mutant.operators;
        std::string entries;
        if (operators.forward) entries += operators.op;
        if (operators.forward && operators.gradient) entries += ',';
        if (operators.gradient) entries.append(operators.op).append("_grad");
        std::string description(mutant.description);
        if (!mutant.reason.empty()) description.append(" [").append(mutant.reason).append("]");
        for (const std::string_view field :
             {mutant.id, operators.family, operators.name, std::string_view(entries),
              name_of(mutant.kind), name_of(mutant.origin), name_of(mutant.difficulty),
              name_of(mutant.status), mutant.profile})
            text.append(field).append("\t");
        text.append(description).append("\n");
    }
    return text;
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

const char* attncheck_mutant_table() {
    static const std::string text = table_text();
    return text.c_str();
}

int attncheck_mutants_is_used(int index) {
    return index >= 0 && index < kMutantCount && used[index];
}

uint32_t attncheck_abi_version() {
    return active_mutant == kUnknownMutant ? 0 : ATTNCHECK_ABI_VERSION;
}

const char* attncheck_candidate_name() { return candidate_name.c_str(); }

const char* attncheck_precision() { return "order=fixed"; }
