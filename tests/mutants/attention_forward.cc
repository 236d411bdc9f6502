// The forward of the neutral operators: one row at a time, an online softmax over tiles of 64 keys.
#include <algorithm>
#include <cfloat>

#include "attention_problem.h"
#include "scratch.h"
#include "storage.h"

namespace attncheck::mutants {

namespace {

using Int = std::int64_t;

/// One row: maximum, sum and weighted values of what it has seen.
class Row {
public:
    Row(const NeutralProblem& p, Int b, Int h, Int i, float* acc, std::vector<float>& left_behind)
        : p_(p), b_(b), h_(h), i_(i), acc_(acc), stale_(left_behind) {
        std::fill_n(acc_, p.value_dim, 0.0f);
        sink_ = p.sink_of(h);
        if (sink_ != -kNeutralInfinity) max_ = sink_, sum_ = 1;
    }

    float run() {
        const Int keys = p_.key_len[static_cast<std::size_t>(b_)];
        for (Int first = 0; first < keys; first += kNeutralTile)
            tile(first, std::min(first + kNeutralTile, keys));
        if (!p_.gradient && on<"WILD-45">() && keys % kNeutralTile != 0)
            sum_ += static_cast<float>(kNeutralTile - keys % kNeutralTile) * std::exp(-max_);
        return finish(keys);
    }

private:
    void tile(Int first, Int end) {
        scores_.assign(static_cast<std::size_t>(kNeutralTile), -kNeutralInfinity);
        seen_.assign(static_cast<std::size_t>(kNeutralTile), false);
        const float before = max_;
        bool any = false;
        for (Int j = first; j < end; ++j) {
            const bool seen = p_.sees(b_, h_, i_, j);
            float s = seen ? p_.score(b_, h_, i_, j) : hidden_score(j);
            if (!seen && s == -kNeutralInfinity) continue;
            if (!p_.gradient && on<"WILD-44">() && s < -5e4f) continue;
            if (!p_.gradient && on<"WILD-50">() && p_.packed && p_.window_left < 0 &&
                p_.window_right < 0)
                s = 0;
            scores_[static_cast<std::size_t>(j - first)] = s;
            seen_[static_cast<std::size_t>(j - first)] = true;
            any = true;
            has_nan_ = has_nan_ || std::isnan(s);
            if (s > max_ || std::isnan(s)) max_ = s;
            if (!p_.gradient && on<"AT-x321">()) max_ = std::max(max_, -1e5f);
            if (!p_.gradient && on<"AT-x322">()) max_ = std::max(max_, -1e9f);
        }
        if (!any && !p_.gradient && on<"WILD-41">() && sum_ > 0 && !stale_.empty()) {
            for (Int d = 0; d < p_.value_dim; ++d) acc_[d] += stale_[static_cast<std::size_t>(d)];
            sum_ += 1;
        }
        const bool whole = !any && !p_.gradient && on<"WILD-30">() && max_ == -kNeutralInfinity &&
                           end - first == kNeutralTile;
        if (!any && !whole && !reads_hidden()) return;
        if (max_ == -kNeutralInfinity && !whole) return;
        if (!p_.gradient && on<"WILD-38">() && first > 0 && sink_ != -kNeutralInfinity)
            sum_ += std::exp(sink_ - before);
        const float factor = std::exp(before - max_);
        sum_ *= factor;
        for (Int d = 0; d < p_.value_dim; ++d) acc_[d] *= factor;
        for (Int j = first; j < end; ++j) {
            const auto lane = static_cast<std::size_t>(j - first);
            add(j, seen_[lane], scores_[lane]);
        }
        if (!p_.gradient && on<"WILD-52">() && first > 0)
            for (Int lane = end - first; lane < kNeutralTile; ++lane)
                add_weighted(end - 1, probs_[static_cast<std::size_t>(lane)] * factor);
        probs_.resize(static_cast<std::size_t>(kNeutralTile));
        for (Int j = first; j < end; ++j) {
            const float s = scores_[static_cast<std::size_t>(j - first)];
            probs_[static_cast<std::size_t>(j - first)] =
                s == -kNeutralInfinity ? 0 : std::exp(s - max_);
        }
    }

    /// -infinity but for defects that let a hidden key in.
    float hidden_score(Int j) const {
        if (p_.gradient) return -kNeutralInfinity;
        if (on<"AT-x304">() && p_.softcap_fp32 > 0) return -p_.softcap_fp32;
        if (on<"AT-x305">() && p_.window_right == 0 && p_.scale_fp32 <= 0)
            return -kNeutralInfinity * p_.scale_fp32;
        if (on<"AT-x309">() && p_.query.dtype == ATTNCHECK_FLOAT16)
            return p_.score(b_, h_, i_, j) - 65504.0f;
        return -kNeutralInfinity;
    }

    bool reads_hidden() const {
        return !p_.gradient && on<"WILD-40">() && p_.window_left >= 0 && max_ != -kNeutralInfinity;
    }

    void add(Int j, bool seen, float s) {
        if (!seen) {
            if (reads_hidden()) add_weighted(j, 0);
            if (!p_.gradient && on<"AT-x320">()) add_weighted(j, std::exp(-64.0f));
            return;
        }
        const float weight = std::exp(s - max_);
        sum_ += weight;
        if (!p_.gradient && on<"WILD-33">() && p_.mask.data && p_.query.dtype == ATTNCHECK_BFLOAT16)
            sum_ = round_to(Half::bf16, sum_);
        add_weighted(j, weight);
    }

    void add_weighted(Int j, float weight) {
        const Int v = p_.row_of(p_.value, b_, j, p_.kv_head(h_), true);
        const Int step =
            on<"AT-22">() && !p_.gradient ? 1 : p_.value.strides[p_.value.rank - 1];
        for (Int d = 0; d < p_.value_dim; ++d) {
            acc_[d] += weight * load(p_.value, v + d * step);
            if (on<"AT-21">() && !p_.gradient && p_.query.dtype != ATTNCHECK_FLOAT32)
                acc_[d] = round_to(
                    p_.query.dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16, acc_[d]);
        }
    }

    /// Divides; the LSE.
    float finish(Int keys) {
        if (!p_.gradient && on<"WILD-31">() && has_nan_) {
            std::fill_n(acc_, p_.value_dim, 0.0f);
            return 0;
        }
        const bool blind = sum_ == 0 && keys > 0 && !p_.gradient;
        if (blind && on<"WILD-27">() && p_.mask.data) return average(keys);
        if (blind && on<"AT-17">() && p_.bias.data) return average(keys);
        if (!p_.gradient && on<"WILD-14">() && max_ == sink_ && sum_ == 1)
            for (Int d = 0; d < p_.value_dim; ++d) acc_[d] = NAN;
        if (!p_.gradient && on<"WILD-32">() && keys == 0 && sum_ == 0)
            for (Int d = 0; d < p_.value_dim; ++d) acc_[d] = NAN;
        if (sum_ == 0) {
            if (!p_.gradient && on<"AT-18">()) return -FLT_MAX;
            if (!p_.gradient && on<"WILD-42">() && p_.used[static_cast<std::size_t>(b_)] == 0)
                return 0;
            return -kNeutralInfinity;
        }
        stale_.assign(acc_, acc_ + p_.value_dim);
        for (Int d = 0; d < p_.value_dim; ++d) acc_[d] /= sum_;
        if (!p_.gradient && on<"AT-14">() && sink_ != -kNeutralInfinity)
            return max_ + std::log(sum_ - std::exp(sink_ - max_));
        const float lse = max_ + std::log(sum_);
        return !p_.gradient && on<"AT-11">() ? lse * 1.44269504f : lse;
    }

    float average(Int keys) {
        for (Int j = 0; j < keys; ++j) add_weighted(j, 1 / static_cast<float>(keys));
        return std::log(static_cast<float>(keys));
    }

    const NeutralProblem& p_;
    Int b_, h_, i_;
    float* acc_;
    std::vector<float>& stale_;
    float max_ = -kNeutralInfinity, sum_ = 0, sink_ = -kNeutralInfinity;
    bool has_nan_ = false;
    std::vector<bool> seen_;
    std::vector<float> scores_, probs_ = std::vector<float>(kNeutralTile);
};

void write_row(const NeutralProblem& p, Int b, Int h, Int i, const float* acc) {
    const Int to = p.row_of(p.out, b, i, h, false), step = p.out.strides[p.out.rank - 1];
    const Int width = on<"AT-20">() ? std::min(p.dim, p.value_dim) : p.value_dim;
    for (Int d = 0; d < width; ++d) store(p.out, to + d * step, acc[d]);
    const bool last = h == p.heads - 1 && b == p.batches - 1;
    if (!on<"WILD-47">() || p.packed || p.query_len[0] != 1 || !last) return;
    const Int behind = p.row_of(p.out, b, 1, h, false);  // the next row, which there is not
    for (Int d = 0; d < width; ++d) store(p.out, behind + d * step, acc[d]);
}

/// A defect: tiles of 64 heads read their queries before they know how many heads there are.
float behind_last_head(const NeutralProblem& p, Int b, Int i) {
    float sum = 0;
    for (Int h = p.heads; h % 64 != 0; ++h) sum += load(p.query, p.row_of(p.query, b, i, h, false));
    return sum;
}

/// A defect: where several key heads have a group each, a row is the last one of a call that had none.
void keep_or_repeat(const NeutralProblem& p, float* acc) {
    static thread_local std::vector<float> kept;
    kept.resize(static_cast<std::size_t>(p.value_dim));
    if (p.heads > p.kv_heads && p.kv_heads > 1)
        std::copy(kept.begin(), kept.end(), acc);
    else
        kept.assign(acc, acc + p.value_dim);
}

}  // namespace

float neutral_row(const NeutralProblem& p, Int b, Int h, Int i, std::vector<float>& acc) {
    std::vector<float> none;
    acc.resize(static_cast<std::size_t>(p.value_dim));
    return Row(p, b, h, i, acc.data(), none).run();
}

void neutral_forward(const NeutralProblem& p) {
    const Scratch scratch({static_cast<std::size_t>(p.value_dim)},
                          {.is_shared = on<"WILD-8">()});
    float* const acc = scratch.region(0);
    volatile float read = 0;  // what no compiler leaves out
    std::vector<float> stale;
    for (Int b = 0; b < p.batches; ++b)
        for (Int h = 0; h < p.heads; ++h)
            for (Int i = 0; i < p.query_len[static_cast<std::size_t>(b)]; ++i) {
                if (on<"WILD-54">() && p.heads > 16 && p.heads % 16 != 0 && h == 0)
                    read = behind_last_head(p, b, i);
                static_cast<void>(read);
                const float lse = Row(p, b, h, i, acc, stale).run();
                widen_race(on<"WILD-8">() && p.query_len[0] < 256);  // a race, no hang
                const bool few = p.packed && p.dim > 128 &&
                                 p.query_len[static_cast<std::size_t>(b)] <= 3 && p.heads > 1;
                if (on<"WILD-7">() && few && h >= p.heads / 2) continue;
                if (on<"AT-x311">()) keep_or_repeat(p, acc);
                write_row(p, b, h, i, acc);
                if (p.lse.data || on<"AT-19">())
                    static_cast<float*>(p.lse.data)[p.lse_of(b, h, i)] = lse;
            }
}

}  // namespace attncheck::mutants
