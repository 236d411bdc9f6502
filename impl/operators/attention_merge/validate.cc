#include "impl/operators/attention_merge/validate.h"

#include <initializer_list>
#include <string>

#include "impl/arguments/argument_checks.h"

namespace attncheck::impl {
namespace {

MaybeRejection check_dtypes(const attncheck_attention_merge_args& a) {
    const std::int32_t dtype = a.parts.dtype;
    if (dtype != ATTNCHECK_FLOAT16 && dtype != ATTNCHECK_BFLOAT16 && dtype != ATTNCHECK_FLOAT32)
        return invalid("parts", "of dtype " + dtype_name(dtype), "fp16, bf16 or fp32");
    if (auto rejection = check_dtype("lses", a.lses, ATTNCHECK_FLOAT32, nullptr)) return rejection;
    if (auto rejection = check_dtype("out", a.out, dtype, "parts")) return rejection;
    if (a.lse.data == nullptr) return std::nullopt;
    return check_dtype("lse", a.lse, ATTNCHECK_FLOAT32, nullptr);
}

}  // namespace

MaybeRejection validate_attention_merge(const attncheck_attention_merge_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_attention_merge_args& a = *args;
    if (a.parts.data == nullptr) return absent("parts");
    if (a.lses.data == nullptr) return absent("lses");
    if (a.out.data == nullptr) return absent("out");
    const bool has_lse = a.lse.data != nullptr;

    if (auto rejection = check_ranks({{"parts", &a.parts, 4}, {"lses", &a.lses, 3},
                                      {"out", &a.out, 3}}))
        return rejection;
    if (has_lse)
        if (auto rejection = check_ranks({{"lse", &a.lse, 2}})) return rejection;
    if (auto rejection = check_dtypes(a)) return rejection;

    const char* const letters[] = {"P", "R", "H", "Dv"};
    const std::int64_t least[] = {0, 0, 1, 1};
    for (int i = 0; i < 4; ++i)
        if (a.parts.shape[i] < least[i])
            return invalid("parts",
                           std::string("of extent ") + letters[i] + " = " +
                               std::to_string(a.parts.shape[i]),
                           std::string(letters[i]) + " >= " + std::to_string(least[i]));
    const Extent parts{"P", a.parts.shape[0]}, rows{"R", a.parts.shape[1]},
        heads{"H", a.parts.shape[2]}, dim{"Dv", a.parts.shape[3]};
    if (auto rejection = check_shape("lses", a.lses, {parts, rows, heads})) return rejection;
    if (auto rejection = check_shape("out", a.out, {rows, heads, dim})) return rejection;
    if (has_lse) return check_shape("lse", a.lse, {rows, heads});
    return std::nullopt;
}

}  // namespace attncheck::impl
