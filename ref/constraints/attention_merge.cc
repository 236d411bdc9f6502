#include "ref/constraints/attention_merge.h"

#include "ref/constraints/examination.h"

namespace attncheck::ref {

Ruling rule_attention_merge(const AttentionMergeArguments& a) {
    Examination e;
    e.present(a.parts.present, "parts", "a tensor [P,R,H,Dv]");
    e.present(a.lses.present, "lses", "a tensor [P,R,H]");
    e.present(a.out.present, "out", "a tensor [R,H,Dv]");
    e.rank(a.parts, "parts", 4);
    e.rank(a.lses, "lses", 3);
    e.rank(a.out, "out", 3);
    e.dtype(a.parts, "parts", {Dtype::fp16, Dtype::bf16, Dtype::fp32});
    e.dtype(a.lses, "lses", {Dtype::fp32});
    e.same_dtype(a.out, "out", a.parts, "parts");
    if (a.lse.present) {
        e.rank(a.lse, "lse", 2);
        e.dtype(a.lse, "lse", {Dtype::fp32});
    }
    if (e.accepted()) {
        const std::int64_t parts = a.parts.shape[0], rows = a.parts.shape[1];
        const std::int64_t heads = a.parts.shape[2], dim = a.parts.shape[3];
        e.extent(parts >= 0, "parts", "P", parts, "P >= 0");
        e.extent(rows >= 0, "parts", "R", rows, "R >= 0");
        e.extent(heads >= 1, "parts", "H", heads, "H >= 1");
        e.extent(dim >= 1, "parts", "Dv", dim, "Dv >= 1");
        e.shape(a.lses, "lses", "[P,R,H]", {parts, rows, heads});
        e.shape(a.out, "out", "[R,H,Dv]", {rows, heads, dim});
        if (a.lse.present) e.shape(a.lse, "lse", "[R,H]", {rows, heads});
    }
    e.ruling.any_status = !e.accepted();
    return e.ruling;
}

}  // namespace attncheck::ref
