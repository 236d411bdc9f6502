// The table of defects that the library of mutants can switch on, family by family.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "mutant.h"
#include "mutants_attention_merge.h"
#include "mutants_compress.h"
#include "mutants_compress_attention.h"
#include "mutants_flash.h"
#include "mutants_module.h"
#include "mutants_selected.h"

namespace attncheck::mutants {

inline constexpr auto kMutants = [] {
    std::array<Mutant, std::size(kCompressMutants) + std::size(kSelectedMutants) +
                           std::size(kCompressAttentionMutants) + std::size(kFlashMutants) +
                           std::size(kModuleMutants) + std::size(kAttentionMergeMutants)>
        all{};
    auto* end = std::copy(std::begin(kCompressMutants), std::end(kCompressMutants), all.begin());
    end = std::copy(std::begin(kSelectedMutants), std::end(kSelectedMutants), end);
    end =
        std::copy(std::begin(kCompressAttentionMutants), std::end(kCompressAttentionMutants), end);
    end = std::copy(std::begin(kFlashMutants), std::end(kFlashMutants), end);
    end = std::copy(std::begin(kModuleMutants), std::end(kModuleMutants), end);
    std::copy(std::begin(kAttentionMergeMutants), std::end(kAttentionMergeMutants), end);
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

}  // namespace attncheck::mutants
