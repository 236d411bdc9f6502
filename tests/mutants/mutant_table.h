// The table of defects that the library of mutants can switch on: one line each. Ids without an x
// are those of the catalogue of bug classes; ids with an x are further defects of the same kinds.
#pragma once

#include <cstddef>
#include <string_view>

namespace attncheck::mutants {

enum class Difficulty { easy, medium, hard, fiendish };

/// What a suite may be expected to do with a mutant.
enum class Status {
    counted,            ///< wrong under the contract: a suite that misses it has a gap
    near_equivalent,    ///< wrong, but only by rounding noise: needs a rigorous bound
    contract_dependent  ///< breaks only a promise that candidates need not make
};

struct Mutant {
    std::string_view id, operators;  ///< operators: NsaCompress, NsaCompressGrad or both
    Difficulty difficulty;
    std::string_view description;
    Status status = Status::counted;
    std::string_view reason = {};  ///< why the status is not `counted`
};

inline constexpr std::string_view kForward = "NsaCompress", kGradient = "NsaCompressGrad",
                                  kBoth = "both";
inline constexpr Difficulty kEasy = Difficulty::easy, kMedium = Difficulty::medium,
                            kHard = Difficulty::hard, kFiendish = Difficulty::fiendish;

// l block, d stride, s length of a sequence, C blocks.
inline constexpr Mutant kMutants[] = {
    {"NC-01", kForward, kEasy, "blocks of a sequence counted as floor(s/d)"},
    {"NC-03", kForward, kEasy, "weight row chosen by position in the sequence modulo l"},
    {"NC-06", kForward, kMedium, "weight [l,N] indexed as [N,l]"},
    {"NC-07", kForward, kMedium,
     "channels after the last full vector of 64 neither computed nor written"},
    {"NC-08", kForward, kHard, "bf16 output truncated instead of rounded", Status::near_equivalent,
     "within 1 ulp; caught by a half-ulp bound or exact data"},
    {"NC-11", kForward, kFiendish, "each product rounded to bf16 before it is added (bf16 data)",
     Status::near_equivalent,
     "noise of the size of the output rounding; caught by a rigorous bound or exact data"},
    {"NC-12", kForward, kHard, "ring of floor(l/d) instead of ceil(l/d) open windows"},
    {"NC-17", kForward, kMedium, "heads split as N/parts, remainder dropped (parts = min(N, 4))"},
    {"NC-x01", kForward, kHard, "truncating division: l-d < s < l counted as one block"},
    {"NC-x02", kForward, kHard, "leading zero length counted as one block"},
    {"NC-x03", kForward, kMedium, "first token of a sequence rounded down to a multiple of d"},
    {"NC-x04", kForward, kMedium, "last block of a sequence not written when (s-l) % d == 0"},
    {"NC-x05", kForward, kEasy, "last token of every window omitted"},
    {"NC-x06", kForward, kEasy, "only the last sequence that has blocks is computed"},
    {"NC-x07", kForward, kMedium, "last token of a window weighted with the last row but one"},
    {"NC-x08", kForward, kMedium, "weight head taken modulo 8"},
    {"NC-x09", kForward, kHard, "one element written past the end of the output"},
    {"NC-x10", kForward, kHard, "one element read past the end of the input, and not used"},
    {"NC-x11", kForward, kMedium, "null pointer dereferenced when a sequence is empty"},
    {"NC-x12", kForward, kHard, "endless loop when l == d and a length is no multiple of d"},
    {"NC-x13", kForward, kMedium, "accumulators rounded to the storage type after every addition"},
    {"NC-x14", kForward, kHard, "subnormal fp16 results flushed to zero"},
    {"NC-x15", kForward, kHard, "subnormal fp16 inputs read as zero"},
    {"NC-x16", kForward, kHard, "NaN inputs skipped"},
    {"NC-x17", kForward, kHard, "zero weights skipped, so that 0 * NaN is lost"},
    {"NC-x18", kForward, kHard, "infinite inputs clamped to the largest finite number"},
    {"NC-x19", kForward, kHard, "element offset of the input kept in 16 bits"},
    {"NC-x20", kForward, kFiendish, "fused multiply-add in every second call only",
     Status::contract_dependent,
     "both results are within the bound; only a promise of equal bits in repeated calls is broken"},
    {"NC-x21", kForward, kHard,
     "accumulators of the first window start from the previous call's scratch"},
    {"NC-x22", kForward, kHard, "rows of a window from the 65th on ignored"},
    {"NC-x23", kForward, kMedium, "windows cut where the next worker's first window begins"},
    {"NC-x24", kForward, kHard, "strides of the output ignored"},
    {"NC-x25", kForward, kHard, "channel stride of the input taken as 1"},
    {"NC-x26", kForward, kMedium, "fp16 results pass through bf16"},
    {"NC-x27", kForward, kHard, "at most 4 windows open at a time (l > 4d wrong)"},
    {"NC-x28", kForward, kHard, "results equal to zero not written"},
    {"NC-x29", kForward, kFiendish,
     "8-bit channel count: nothing computed or written for D == 256"},

    {"NCG-02", kGradient, kHard,
     "walk advances by one sequence per block: a short sequence inside a worker's range"},
    {"NCG-04", kGradient, kMedium,
     "input_grad rows inside a sequence that no block covers never written"},
    {"NCG-05", kGradient, kHard, "tree reduction of 5 weight_grad partials forgets the odd one"},
    {"NCG-09", kGradient, kMedium, "plain store instead of addition when l % d == 0"},
    {"NCG-10", kGradient, kHard, "weight_grad partials stored as fp16 before the final sum"},
    {"NCG-x01", kGradient, kHard, "input_grad rows beyond the last length never written"},
    {"NCG-x02", kGradient, kHard, "weight_grad not written when there is no block"},
    {"NCG-x03", kGradient, kMedium, "weight_grad added to what the output buffer held"},
    {"NCG-x04", kGradient, kEasy, "input_grad uses the weight rows in reverse order"},
    {"NCG-x05", kGradient, kMedium, "input_grad keeps only the first window that covers a token"},
    {"NCG-x06", kGradient, kHard, "input_grad sums at most 2 windows per token (l > 2d wrong)"},
    {"NCG-x07", kGradient, kMedium, "weight_grad misses the last channel"},
    {"NCG-x08", kGradient, kHard, "input_grad rounded to the storage type after every addition"},
    {"NCG-x09", kGradient, kFiendish, "input_grad of uncovered tokens is -0"},
    {"NCG-x10", kGradient, kHard,
     "uncovered tokens get 0 * output_grad of their sequence's last block (NaN leaks)"},
    {"NCG-x11", kGradient, kHard, "weight_grad skips output_grad == 0, so that 0 * NaN is lost"},
    {"NCG-x12", kGradient, kHard, "input_grad adds 0 * input (NaN of the input leaks)"},
    {"NCG-x13", kGradient, kHard, "weight_grad rows from the 65th on stay zero"},
    {"NCG-x14", kGradient, kMedium, "weight_grad misses the last block of every sequence"},
    {"NCG-x15", kGradient, kMedium,
     "weight_grad partial cleared when a worker enters another sequence"},
    {"NCG-x16", kGradient, kHard, "absent lengths taken as no sequence at all"},
    {"NCG-x17", kGradient, kHard, "strides of input_grad ignored"},
    {"NCG-x18", kGradient, kFiendish, "weight_grad transposed when N == l"},
    {"NCG-x19", kGradient, kHard,
     "dot product of every block rounded to the storage type before it is added"},
    {"NCG-x20", kGradient, kMedium, "weight_grad sums the first 64 channels only"},
    {"NCG-x21", kGradient, kHard, "fp32 workspace of input_grad not cleared between calls"},
    {"NCG-x22", kGradient, kHard, "integer division by zero when there is no block"},

    {"VAL-03", kGradient, kMedium, "compress_stride 0 and compress_block_size 0 accepted"},
    {"VAL-06", kForward, kMedium, "last cumulative length > T accepted"},
    {"VAL-07", kBoth, kMedium,
     "decreasing cumulative lengths accepted, negative length clipped to 0"},
    {"VAL-35", kBoth, kHard, "negative first cumulative length accepted"},
    {"VAL-x01", kBoth, kMedium, "legal empty sequences rejected"},
    {"VAL-x02", kBoth, kHard, "legal T > last length rejected"},
    {"VAL-x03", kGradient, kHard, "block == stride accepted by the gradient"},
    {"VAL-x04", kBoth, kMedium, "head dimensions that are multiples of 8 only accepted (D = 24)"},
    {"VAL-x05", kBoth, kHard, "N > 128 accepted"},
    {"VAL-x06", kBoth, kMedium, "absent weight reported as 161002"},
    {"VAL-x07", kBoth, kHard, "first output element zeroed before the arguments are checked"},
    {"VAL-x08", kBoth, kMedium, "layout compared without regard to case"},
    {"VAL-x09", kGradient, kMedium, "absent layout rejected by the gradient"},
    {"VAL-x10", kBoth, kHard,
     "dtypes checked before nulls: absent output and wrong dtype give 161002"},
    {"VAL-x11", kBoth, kHard,
     "scratch for T*N*D elements allocated before the check: a huge T aborts"},
    {"VAL-x12", kBoth, kHard, "only the first three characters of the layout compared"},
    {"VAL-x13", kGradient, kMedium, "act_seq_len_type 1 accepted and treated as 0"},
    {"VAL-x14", kBoth, kMedium, "block > 128 accepted"},
    {"VAL-x15", kGradient, kMedium, "absent act_seq_len rejected by the gradient (161001)"},
    {"VAL-x16", kBoth, kMedium, "weight of the other half type accepted"},
    {"VAL-x17", kBoth, kHard, "legal D == 256 rejected"},
    {"VAL-x18", kGradient, kHard, "empty length array taken as absent"},
    {"VAL-x19", kBoth, kMedium, "legal calls without any block rejected"},
    {"VAL-x20", kForward, kMedium, "legal block == stride rejected by the forward"},
    {"VAL-x21", kForward, kHard, "output with more rows than blocks accepted"},
    {"VAL-x22", kGradient, kHard, "length array without values but with a size dereferenced"},
    {"VAL-x23", kBoth, kMedium, "fp32 accepted and read as bf16"},

    {"ALL-02", kBoth, kHard, "strides of weight (forward) or output_grad (gradient) ignored"},
    {"ALL-03", kBoth, kMedium, "address of the input rounded down to 64 bytes"},
    {"ALL-05", kBoth, kHard,
     "row pitch of the input derived from the stride of a head dimension of size 1"},
    {"ALL-09", kBoth, kFiendish, "plan cached by shapes only: lengths of the first call reused"},
    {"ALL-10", kBoth, kHard, "static scratch shared by concurrent calls"},
    {"ALL-11", kBoth, kHard,
     "scratch regions placed without rounding up: they overlap for some shapes"},
    {"ALL-13", kGradient, kHard, "number of weight_grad partials follows OMP_NUM_THREADS",
     Status::contract_dependent,
     "equal bits for any number of threads are promised by the built-in implementation only; near "
     "rounding noise"},
    {"ALL-14", kBoth, kHard, "rows of the input that no block covers zeroed in place"},
};

inline constexpr int kMutantCount = static_cast<int>(sizeof kMutants / sizeof kMutants[0]);

/// Row of the table, or -1.
constexpr int mutant_index(std::string_view id) {
    for (int i = 0; i < kMutantCount; ++i)
        if (kMutants[i].id == id) return i;
    return -1;
}

std::string_view name_of(Difficulty difficulty);
std::string_view name_of(Status status);

}  // namespace attncheck::mutants
