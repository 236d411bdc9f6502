// AttentionMerge: accept, then one online pass over the parts for every row and head.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "active_mutant.h"
#include "element.h"
#include "ruling.h"

namespace attncheck::mutants {

namespace {

using Args = attncheck_attention_merge_args;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Any status but 0 and -1 is a rejection.
int accept(const Args& a) {
    const attncheck_tensor &parts = a.parts, &lses = a.lses, &out = a.out, &lse = a.lse;
    if (!parts.data || !lses.data || !out.data) return ATTNCHECK_ERR_NULLPTR;
    Ruling ruling;
    ruling.require(parts.rank == 4 && lses.rank == 3 && out.rank == 3);
    ruling.require(!lse.data || lse.rank == 2);
    ruling.require(is_half_type(parts.dtype) || parts.dtype == ATTNCHECK_FLOAT32);
    ruling.require(out.dtype == parts.dtype);
    ruling.require(!lse.data || lse.dtype == ATTNCHECK_FLOAT32);
    if (ruling.is_settled()) return ATTNCHECK_ERR_INVALID;
    ruling.require(lses.dtype == ATTNCHECK_FLOAT32, on<"AM-VAL-01">());
    const std::int64_t *p = parts.shape, rows = p[1], heads = p[2], dim = p[3];
    ruling.require(p[0] >= 0 && rows >= 0 && heads >= 1 && dim >= 1);
    ruling.refuse(on<"AM-VAL-03">() && p[0] == 0);
    ruling.require(has_extents(lses, {p[0], rows, heads}));
    ruling.require(has_extents(out, {rows, heads, dim}));
    ruling.require(!lse.data || has_extents(lse, {rows, heads}), on<"AM-VAL-02">());
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    return ruling.is_undefined ? 1 : ATTNCHECK_OK;
}

std::int64_t offset(const attncheck_tensor& t, std::int64_t i, std::int64_t j, std::int64_t k,
                    std::int64_t l = 0) {
    const std::int64_t index[] = {i, j, k, l};
    std::int64_t sum = 0;
    for (int dim = 0; dim < std::min(t.rank, 4); ++dim) sum += index[dim] * t.strides[dim];
    return sum;
}

float kept(const attncheck_tensor& t, float sum) { return on<"AM-09">() ? rounded(t, sum) : sum; }

class Row {
public:
    Row(const Args& a, std::int64_t row, std::int64_t head)
        : a_(a), row_(row), head_(head), sums_(static_cast<std::size_t>(a.out.shape[2])) {
        std::int64_t parts = a.parts.shape[0];
        if (on<"AM-05">() && parts > 1) parts -= parts % 2;
        for (std::int64_t p = 0; p < (on<"AM-10">() ? std::min<std::int64_t>(parts, 32) : parts);
             ++p)
            max_ = std::max(max_, lse(p));
        if (on<"AM-01">()) max_ = 0;
        for (std::int64_t p = 0; p < parts; ++p) add(p);
        count_ = static_cast<float>(parts);
    }

    void write() const {
        const bool empty = !has_live_ && !on<"AM-03">();
        const float by = on<"AM-08">() ? count_ : weight_;
        for (std::size_t d = 0; d < sums_.size(); ++d)
            store(a_.out, offset(a_.out, row_, head_, static_cast<std::int64_t>(d)),
                  empty ? 0 : sums_[d] / by);
        if (!a_.lse.data && !on<"AM-13">()) return;
        float lse = on<"AM-11">() ? max_ : max_ + std::log(weight_);
        if (on<"AM-04">()) lse *= 1.44269504f;
        *(static_cast<float*>(a_.lse.data) + offset(a_.lse, row_, head_, 0)) =
            empty ? -kInfinity : lse;
    }

private:
    float lse(std::int64_t part) const {
        const std::int64_t head = on<"AM-06">() ? 0 : head_;
        const std::int64_t* shape = a_.lses.shape;
        const std::int64_t at = on<"AM-07">() ? (part * shape[1] + row_) * shape[2] + head
                                              : offset(a_.lses, part, row_, head);
        return static_cast<const float*>(a_.lses.data)[at];
    }

    void add(std::int64_t part) {
        const float own = lse(part);
        if (own == -kInfinity && !on<"AM-02">() && !on<"AM-03">()) return;
        if (own == -kInfinity && max_ == -kInfinity && !on<"AM-03">()) return;
        has_live_ = has_live_ || own != -kInfinity;
        if (on<"AM-12">() && own < max_ - 88) return;
        const float weight = std::exp(own - max_);
        weight_ += weight;
        if (on<"AM-03">() && own == -kInfinity && max_ != -kInfinity) return;
        for (std::size_t d = 0; d < sums_.size(); ++d)
            sums_[d] = kept(a_.parts,
                            sums_[d] + weight * load(a_.parts,
                                                     offset(a_.parts, part, row_, head_,
                                                            static_cast<std::int64_t>(d))));
    }

    const Args& a_;
    std::int64_t row_, head_;
    float max_ = -kInfinity, weight_ = 0, count_ = 0;
    bool has_live_ = false;
    std::vector<float> sums_;
};

}  // namespace

}  // namespace attncheck::mutants

int attncheck_attention_merge(const attncheck_attention_merge_args* args) {
    using namespace attncheck::mutants;
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    if (const int status = accept(*args)) return status == 1 ? int{ATTNCHECK_OK} : status;
    if (on<"AM-14">() && args->parts.shape[0] == 0) return ATTNCHECK_OK;
    for (std::int64_t row = 0; row < args->out.shape[0]; ++row)
        for (std::int64_t head = 0; head < args->out.shape[1]; ++head)
            Row(*args, row, head).write();
    return ATTNCHECK_OK;
}
