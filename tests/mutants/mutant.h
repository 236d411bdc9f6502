// One line of the table of mutants.
#pragma once

#include <string_view>

namespace attncheck::mutants {

enum class Difficulty { easy, medium, hard, fiendish };

/// What a suite may be expected to do with a mutant.
enum class Status {
    counted,            ///< wrong under the contract: a suite that misses it has a gap
    near_equivalent,    ///< wrong, but only by rounding noise: needs a rigorous bound
    contract_dependent  ///< breaks only a promise that candidates need not make
};

/// What a defect makes wrong.
enum class Kind {
    result,  ///< what a call computes, reads or writes
    ruling   ///< which arguments are accepted
};

enum class Origin {
    catalogue,  ///< bugs that shipped or nearly did
    further     ///< more of the same kinds
};

/// The entry points that a defect sits in: a forward, its gradient, or both.
struct Operators {
    std::string_view name, family;  ///< the family has the name of its forward
    bool forward, gradient;
    std::string_view op;  ///< the forward's entry point without its prefix
};

struct Mutant {
    std::string_view id;
    Operators operators;
    Difficulty difficulty;
    std::string_view description;
    Status status = Status::counted;
    std::string_view reason = {};  ///< why the status is not `counted`
    // The table sets these (mutant_table.h).
    Kind kind = Kind::result;
    Origin origin = Origin::catalogue;
    std::string_view profile = "-";  ///< the platform that it shows on; -: the default one
};

inline constexpr Operators kCompress{"NsaCompress", "NsaCompress", true, false, "nsa_compress"};
inline constexpr Operators kCompressGrad{"NsaCompressGrad", "NsaCompress", false, true,
                                         "nsa_compress"};
inline constexpr Operators kCompressBoth{"NsaCompress(Grad)", "NsaCompress", true, true,
                                         "nsa_compress"};
inline constexpr Operators kSelected{"NsaSelectedAttention", "NsaSelectedAttention", true, false,
                                     "nsa_selected_attention"};
inline constexpr Operators kSelectedGrad{"NsaSelectedAttentionGrad", "NsaSelectedAttention", false,
                                         true, "nsa_selected_attention"};
inline constexpr Operators kSelectedBoth{"NsaSelectedAttention(Grad)", "NsaSelectedAttention", true,
                                         true, "nsa_selected_attention"};

/// A forward without a gradient of its own.
inline constexpr Operators kCompressAttention{"NsaCompressAttention", "NsaCompressAttention", true,
                                              false, "nsa_compress_attention"};

inline constexpr Operators kFlash{"FlashAttentionScore", "FlashAttentionScore", true, false,
                                  "flash_attention_score"};
inline constexpr Operators kFlashGrad{"FlashAttentionScoreGrad", "FlashAttentionScore", false, true,
                                      "flash_attention_score"};
inline constexpr Operators kFlashBoth{"FlashAttentionScore(Grad)", "FlashAttentionScore", true,
                                      true, "flash_attention_score"};

/// The composition of all of the above: its defects sit in what the operators hand each other.
inline constexpr Operators kModule{"NsaModule", "NsaModule", true, false, "nsa_module"};

/// Every value of the column, in the order of the table.
inline constexpr Operators kAllOperators[] = {
    kCompress,          kCompressGrad, kCompressBoth, kSelected,  kSelectedGrad, kSelectedBoth,
    kCompressAttention, kFlash,        kFlashGrad,    kFlashBoth, kModule};

inline constexpr Difficulty kEasy = Difficulty::easy, kMedium = Difficulty::medium,
                            kHard = Difficulty::hard, kFiendish = Difficulty::fiendish;

}  // namespace attncheck::mutants
