// The built-in flash attention with defects that only long sequences show, each the consequence of
// a bug that kernels have had. ATTNCHECK_SCALE_DEFECT names the one; without it nothing is wrong.
//
//   short_tail      keys behind the last whole tile of 64 are left out of sequences above 1024
//   pair_32         i * S2 in 32 bits: rows of the output that start beyond it are zero
//   row_16          positions in 16 bits, signed: row 32768 + p holds what row p should
//   past_end        one element is written behind the last one of the output
//   key_tail        dk and dv of the last partial tile of 64 keys are those of the tile before
//   first_queries   dv of a query's share is lost: dy beyond query 2048 counts as zero
#include <attncheck/candidate.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

using Int = std::int64_t;

template <class Args>
int run_builtin(const char* entry, const Args* args) {
    static void* const library = dlopen(BUILTIN_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!library) return ATTNCHECK_ERR_INTERNAL;
    return reinterpret_cast<int (*)(const Args*)>(dlsym(library, entry))(args);
}

bool on(std::string_view defect) {
    const char* name = std::getenv("ATTNCHECK_SCALE_DEFECT");
    return name && name == defect;
}

/// Row t of a TND tensor of 16-bit numbers with dense rows.
char* row_of(const attncheck_tensor& tensor, Int t) {
    return static_cast<char*>(tensor.data) + 2 * t * tensor.strides[0];
}
std::size_t row_bytes(const attncheck_tensor& tensor) {
    return static_cast<std::size_t>(2 * tensor.shape[1] * tensor.shape[2]);
}

/// Calls work(first query, queries, first key, keys) for every sequence.
template <class Args, class Work>
void for_each_sequence(const Args& args, const Work& work) {
    Int query = 0, key = 0;
    for (Int b = 0; b < args.actual_seq_q_len.size; ++b) {
        const Int query_end = args.actual_seq_q_len.values[b],
                  key_end = args.actual_seq_kv_len.values[b];
        work(query, query_end - query, key, key_end - key);
        query = query_end;
        key = key_end;
    }
}

bool is_packed(const char* layout) { return layout && std::string_view(layout) == "TND"; }

/// One sequence without the keys behind its last whole tile; top-left aligned masks stay as they
/// are.
std::vector<Int> cut_lengths(const attncheck_int_array& ends) {
    std::vector<Int> out(ends.values, ends.values + ends.size);
    if (out.size() == 1 && out[0] > 1024) out[0] = out[0] / 64 * 64;
    return out;
}

}  // namespace

extern "C" {

ATTNCHECK_EXPORT std::uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
ATTNCHECK_EXPORT const char* attncheck_candidate_name(void) { return "defects at scale"; }

#ifndef GRADIENT_ONLY
ATTNCHECK_EXPORT int attncheck_flash_attention_score(
    const attncheck_flash_attention_score_args* given) {
    attncheck_flash_attention_score_args args = *given;
    const bool packed = is_packed(args.input_layout);
    std::vector<Int> cut;
    if (packed && on("short_tail")) {
        cut = cut_lengths(args.actual_seq_kv_len);
        args.actual_seq_kv_len.values = cut.data();
    }
    const int status = run_builtin("attncheck_flash_attention_score", &args);
    if (status != ATTNCHECK_OK || !packed) return status;
    const attncheck_tensor& out = args.attention_out;
    if (on("past_end")) *row_of(out, out.shape[0]) = 1;
    for_each_sequence(args, [&](Int first, Int queries, Int, Int keys) {
        for (Int i = 0; i < queries; ++i) {
            if (on("pair_32") && i * keys > INT32_MAX)
                std::memset(row_of(out, first + i), 0, row_bytes(out));
            if (on("row_16") && i >= 32'768)
                std::memcpy(row_of(out, first + i), row_of(out, first + i - 32'768),
                            row_bytes(out));
        }
    });
    return status;
}
#endif

ATTNCHECK_EXPORT int attncheck_flash_attention_score_grad(
    const attncheck_flash_attention_score_grad_args* given) {
    attncheck_flash_attention_score_grad_args args = *given;
    const bool packed = is_packed(args.input_layout);
    const int status = run_builtin("attncheck_flash_attention_score_grad", &args);
    if (status != ATTNCHECK_OK || !packed) return status;
    if (on("first_queries") && args.dy.shape[0] > 2048) {
        std::vector<char> dy(static_cast<std::size_t>(2 * args.dy.shape[0] * args.dy.strides[0])),
            dq(dy.size()), dk(static_cast<std::size_t>(2 * args.dk.shape[0] * args.dk.strides[0]));
        std::memcpy(dy.data(), args.dy.data,
                    static_cast<std::size_t>(2 * 2048 * args.dy.strides[0]));
        args.dy.data = dy.data();
        args.dq.data = dq.data();  // right already
        args.dk.data = dk.data();
        return run_builtin("attncheck_flash_attention_score_grad", &args);
    }
    if (on("key_tail"))
        for_each_sequence(args, [&](Int, Int, Int first, Int keys) {
            if (keys > 1024)
                for (const attncheck_tensor* out : {&args.dk, &args.dv})
                    for (Int j = keys / 64 * 64; j < keys; ++j)
                        std::memcpy(row_of(*out, first + j), row_of(*out, first + j - 64),
                                    row_bytes(*out));
        });
    return status;
}

}  // extern "C"
