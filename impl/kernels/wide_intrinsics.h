#ifndef ATTNCHECK_IMPL_WIDE_INTRINSICS_H
#define ATTNCHECK_IMPL_WIDE_INTRINSICS_H

/// Intrinsics of instructions that Highway does not have, in files that are compiled for any
/// x86-64: the code that uses them stands between HWY_PUSH_ATTRIBUTES(<instruction sets>) and
/// HWY_POP_ATTRIBUTES, and runs only where instruction_set.h finds them. Nothing of the standard
/// library may be included between the two.
#if defined(__x86_64__) && defined(__GNUC__)

#include <hwy/base.h>

#define ATTNCHECK_IMPL_HAVE_BF16_DOT 1
#define ATTNCHECK_IMPL_AVX512_BF16 "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"
#if defined(__linux__)  // which grants the tiles to a process
#define ATTNCHECK_IMPL_HAVE_AMX 1
#endif

// GCC takes the undefined operands inside some of its own intrinsics for a mistake.
HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wuninitialized")
#if !defined(__clang__)
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wmaybe-uninitialized")
#endif
#include <immintrin.h>
HWY_DIAGNOSTICS(pop)

#endif

#endif  // ATTNCHECK_IMPL_WIDE_INTRINSICS_H
