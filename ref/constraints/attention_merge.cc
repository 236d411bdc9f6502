#include "ref/constraints/attention_merge.h"

#include "ref/constraints/examination.h"

namespace attncheck::ref {

Ruling rule_attention_merge(const AttentionMergeArguments& a) {
    Examination e;
    const Operands required{{a.parts, "parts", "[P,R,H,Dv]"},
                            {a.lses, "lses", "[P,R,H]", Stores::fp32},
                            {a.out, "out", "[R,H,Dv]"}},
        optional(a.lse.present, {a.lse, "lse", "[R,H]", Stores::fp32});
    e.present(required);
    e.form({required, optional}, required[0], {Dtype::fp16, Dtype::bf16, Dtype::fp32});
    if (e.accepted()) {
        const auto& shape = a.parts.shape;
        const Letters letters{{"P", shape[0]}, {"R", shape[1]}, {"H", shape[2]}, {"Dv", shape[3]}};
        e.extent(shape[0] >= 0, "parts", "P", shape[0], "P >= 0");
        e.extent(shape[1] >= 0, "parts", "R", shape[1], "R >= 0");
        e.extent(shape[2] >= 1, "parts", "H", shape[2], "H >= 1");
        e.extent(shape[3] >= 1, "parts", "Dv", shape[3], "Dv >= 1");
        e.shapes(required, letters);
        e.shapes(optional, letters);
    }
    e.ruling.any_status = !e.accepted();
    return e.ruling;
}

}  // namespace attncheck::ref
