// The table of defects that the library of mutants can switch on, family by family.
#pragma once

#include <string_view>

#include "mutant.h"
#include "mutants_attention.h"
#include "mutants_attention_decode.h"
#include "mutants_attention_merge.h"
#include "mutants_compress.h"
#include "mutants_compress_attention.h"
#include "mutants_flash.h"
#include "mutants_module.h"
#include "mutants_selected.h"

namespace attncheck::mutants {

/// What ids say, read once: VAL is a ruling, x a defect beyond the catalogue, FP8 a type that only
/// one platform has.
constexpr Mutant with_traits(Mutant mutant) {
    const auto says = [&](std::string_view part) {
        return mutant.id.find(part) != std::string_view::npos;
    };
    if (says("VAL")) mutant.kind = Kind::ruling;
    if (says("-x")) mutant.origin = Origin::further;
    if (mutant.id.starts_with("FP8")) mutant.profile = "ascend950";
    return mutant;
}

inline constexpr auto kMutants = [] {
    auto all = joined<kCompressMutants, kSelectedMutants, kCompressAttentionMutants, kFlashMutants,
                      kModuleMutants, kAttentionMergeMutants, kNeutralMutants, kAttentionDecodeMutants>();
    for (Mutant& mutant : all) mutant = with_traits(mutant);
    return all;
}();

inline constexpr int kMutantCount = static_cast<int>(kMutants.size());

/// Row of the table, or -1.
constexpr int mutant_index(std::string_view id) {
    for (int i = 0; i < kMutantCount; ++i)
        if (kMutants[static_cast<std::size_t>(i)].id == id) return i;
    return -1;
}

std::string_view name_of(Difficulty difficulty);
std::string_view name_of(Status status);
std::string_view name_of(Kind kind);
std::string_view name_of(Origin origin);

}  // namespace attncheck::mutants
