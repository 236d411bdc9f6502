// The gradient, one row at a time, from the given output and statistics:
//
//   P_ij  = exp(Z_ij - row_max_i) / row_sum_i          over visible keys
//   delta_i = <dO_i, O_i>,  dP_ij = kept ? <dO_i, V_j> / keep_prob : 0
//   dS_ij = P_ij * (dP_ij - delta_i)
//   dQ_i  = scale * sum_j dS_ij K_j,  dK_j = scale * sum_i dS_ij Q_i,  and for the ropes
//   dV_j  = sum_i (kept ? P_ij / keep_prob : 0) dO_i
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "active_mutant.h"
#include "flash_rows.h"
#include "selected_rows.h"
#include "storage.h"
#include "subtle.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kTile = 64;

std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

/// The sums of one output that is indexed by keys; rows are padded to the lanes.
class Sums {
public:
    Sums(const FlashView& view, bool keeps_old)
        : heads_(view.extent[1]), rows_(view.extent[2]), pitch_(padded(view.extent[3])) {
        const std::size_t total = size(view.extent[0] * heads_ * rows_ * pitch_);
        if (keeps_old) {
            thread_local std::vector<float> kept;
            if (kept.size() < total) kept.resize(total);
            sums_ = kept.data();
        } else {
            own_.resize(total);
            sums_ = own_.data();
        }
        is_touched_.resize(size(view.extent[0] * heads_ * rows_));
    }

    float* row(std::int64_t batch, std::int64_t head, std::int64_t index) {
        return sums_ + number(batch, head, index) * pitch_;
    }
    void touch(std::int64_t batch, std::int64_t head, std::int64_t index) {
        is_touched_[size(number(batch, head, index))] = true;
    }
    bool is_touched(std::int64_t batch, std::int64_t head, std::int64_t index) const {
        return is_touched_[size(number(batch, head, index))];
    }
    void add(const Sums& other) {
        for (std::size_t k = 0; k < own_.size(); ++k) sums_[k] += other.sums_[k];
        for (std::size_t k = 0; k < is_touched_.size(); ++k)
            if (other.is_touched_[k]) is_touched_[k] = true;
    }

private:
    std::int64_t number(std::int64_t batch, std::int64_t head, std::int64_t index) const {
        return (batch * heads_ + head) * rows_ + std::min(index, rows_ - 1);
    }

    std::int64_t heads_, rows_, pitch_;
    std::vector<float> own_;
    std::vector<bool> is_touched_;
    float* sums_ = nullptr;
};

struct Workspace {
    Sums dk, dv;
    std::unique_ptr<Sums> dk_rope;

    explicit Workspace(const FlashProblem& problem)
        : dk(problem.dk, on<"FAG-x100">()), dv(problem.dv, false) {
        if (problem.rope_dim > 0) dk_rope = std::make_unique<Sums>(problem.dk_rope, false);
    }
    void add(const Workspace& other) {
        dk.add(other.dk);
        dv.add(other.dv);
        if (dk_rope != nullptr) dk_rope->add(*other.dk_rope);
    }
};

/// A defect: delta of a tile of queries, not cleared between tiles, heads and calls.
thread_local std::array<float, kTile> tile_deltas;

class Backward {
public:
    Backward(const FlashProblem& problem, const FlashPlan& plan)
        : problem_(problem),
          plan_(plan),
          logits_of_(problem, plan),
          values_(problem.value, flash_row_defects(problem)),
          outputs_(problem.output, flash_row_defects(problem)),
          output_grads_(problem.output_grad, flash_row_defects(problem)),
          scratch_({size(plan.longest_kv), size(plan.longest_kv), size(padded(problem.head_dim)),
                    size(padded(problem.rope_dim))},
                   flash_scratch_defects()),
          probs_(scratch_.region(0)),
          ds_(scratch_.region(1)),
          dq_(scratch_.region(2)),
          dq_rope_(scratch_.region(3)) {}

    /// Stores dq of the row and adds its part of dk and dv.
    void run(const FlashRow& row, Workspace& workspace) {
        const std::int64_t kv_len = row.sequence->kv_len;
        clear_dq();
        logits_of_.load(row, probs_);
        if (row.head == 0) widen_race(on<"FA-ALL-10">() || on<"FA-ALL-x301">());
        if (logits_of_.sees_any()) {
            compute_probs(row);
            compute_ds(row);
            add_to_dq(row);
            add_to_keys(row, workspace);
            if (on<"FAG-14">()) add_pad_rows(row, workspace);
        } else {
            if (on<"FAG-x101">() && kv_len > 0) return;
            if (on<"FAG-x102">() && kv_len > 0) std::fill_n(dq_, problem_.head_dim, std::nanf(""));
        }
        if (on<"FAG-19">() && kv_len == 0) return;
        store_dq(row.sequence->batch, row.head, row.query_index());
    }

    void store_beyond() {
        clear_dq();
        for (std::int64_t t = plan_.queries_end; t < problem_.query_rows; ++t)
            for (std::int64_t head = 0; head < problem_.num_query_heads; ++head)
                store_dq(0, head, t);
    }

    void store_keys(Workspace& workspace) {
        for (const FlashSequence& sequence : plan_.sequences)
            if (sequence.query_len > 0 || !on<"FAG-18">())
                store_key_rows(workspace, sequence.batch, sequence.first_key,
                               sequence.first_key + sequence.kv_len);
        if (problem_.is_tnd() && !on<"FAG-x103">())
            store_key_rows(workspace, 0, plan_.keys_end, problem_.key_rows);
    }

    FlashLogits& logits() { return logits_of_; }

private:
    void clear_dq() {
        std::fill_n(dq_, padded(problem_.head_dim), 0.0f);
        std::fill_n(dq_rope_, padded(problem_.rope_dim), 0.0f);
    }

    const float* value(const FlashRow& row, std::int64_t j) {
        return values_.row(row.sequence->batch, row.kv_head, row.key_index(j));
    }
    const float* output_grad(const FlashRow& row) {
        return output_grads_.row(row.sequence->batch, row.head, row.query_index());
    }

    /// probs_ holds the logits.
    void compute_probs(const FlashRow& row) {
        FlashRow source = row;
        if (on<"FAG-13">()) source.i %= kTile;
        if (on<"FAG-x104">()) source.head = row.kv_head;
        const std::int64_t number = statistics_number(problem_, source);
        float row_max = *problem_.row_max.at(number, 0), row_sum = *problem_.row_sum.at(number, 0);
        if (on<"FAG-x105">()) recompute_statistics(row, row_max, row_sum);
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j) {
            if (!logits_of_.sees(j)) continue;
            const float z = probs_[j];
            probs_[j] = std::exp(z - row_max) / row_sum;
            if (on<"FAG-x106">()) probs_[j] = std::exp(z) * std::exp(-row_max) / row_sum;
            if (on<"FAG-x107">()) probs_[j] = std::exp(z - (row_max - std::log(row_sum)));
            if (on<"FAG-x108">()) probs_[j] = std::exp(z - row_max);
        }
    }

    void recompute_statistics(const FlashRow& row, float& row_max, float& row_sum) const {
        row_max = -INFINITY;
        row_sum = 0.0f;
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
            if (logits_of_.sees(j)) row_max = std::max(row_max, probs_[j]);
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
            if (logits_of_.sees(j)) row_sum += std::exp(probs_[j] - row_max);
    }

    float delta(const FlashRow& row) {
        FlashRow source = row;
        const bool is_fp8 = problem_.query.tensor.dtype == ATTNCHECK_FLOAT8_E5M2 ||
                            problem_.query.tensor.dtype == ATTNCHECK_FLOAT8_E4M3FN;
        if (on<"FAG-x109">() || (on<"FP8-04">() && is_fp8)) return 0.0f;
        if (on<"FAG-13">()) source.i %= kTile;
        if (on<"FAG-x110">()) source.i = std::max<std::int64_t>(row.i - 1, 0);
        if (on<"FAG-x111">()) source.head -= source.head % problem_.group_size();
        const float* output = outputs_.row(row.sequence->batch, source.head, source.query_index());
        std::vector<float> recomputed;
        if (on<"FAG-x112">()) {
            recomputed.resize(size(values_.padded_channels()));
            for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
                if (logits_of_.sees(j) && logits_of_.keeps(row, j))
                    add_product(probs_[j] * plan_.keep_factor, value(row, j), recomputed.data(),
                                values_.padded_channels());
            output = recomputed.data();
        }
        const float sum = dot(output_grad(source), output, values_.padded_channels());
        return on<"FAG-x113">() ? round_to_dtype(problem_.dtype, sum) : sum;
    }

    float keep_factor() const {
        if (!problem_.has_drop_mask) return 1.0f;
        return on<"FAG-08">() ? static_cast<float>(problem_.keep_prob) : plan_.keep_factor;
    }

    bool keeps(const FlashRow& row, std::int64_t j) const {
        if (on<"FAG-x114">()) return true;
        if (on<"FAG-x115">() && static_cast<float>(problem_.keep_prob) == 1.0f) return true;
        return logits_of_.keeps(row, j);
    }

    float dp(const FlashRow& row, std::int64_t j) {
        const bool is_kept = on<"FAG-x116">() || keeps(row, j);
        const float factor = on<"FAG-x117">() || on<"FAG-x116">() ? 1.0f : keep_factor();
        if (!is_kept && !on<"FAG-x118">()) return 0.0f;
        const float product = dot(output_grad(row), value(row, j), values_.padded_channels());
        const float kept = (is_kept ? factor : 0.0f) * product;
        return on<"FAG-x119">() ? round_to_dtype(problem_.dtype, kept) : kept;
    }

    void compute_ds(const FlashRow& row) {
        const float row_delta = delta(row);
        tile_deltas[size(row.i % kTile)] = row_delta;
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j) {
            if (!logits_of_.sees(j)) continue;
            float p = probs_[j];
            if (on<"FAG-x120">()) p = keeps(row, j) ? p * keep_factor() : 0.0f;
            ds_[j] = p * (dp(row, j) - row_delta);
            const bool flushes = on<"FAG-x121">() && problem_.dtype == ATTNCHECK_FLOAT16;
            if (flushes && std::fabs(ds_[j]) < 0x1p-14f) ds_[j] = 0.0f;
            if (on<"FAG-x205">()) ds_[j] = cut_to(problem_.dtype, ds_[j]);
            if (on<"FAG-x206">() && row.i >= row.sequence->query_len / 32 * 32)
                ds_[j] *= subtle_gain(problem_.dtype);
        }
        if (!on<"FAG-42">()) return;
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
            if (!logits_of_.sees(j)) ds_[j] = 0.0f * (dp(row, j) - row_delta);
    }

    /// Keys that a defect leaves out of dq, dk and dv.
    bool counts(std::int64_t j) const {
        if (on<"FAG-36">() && problem_.head_dim == 64) return j / kTile % 2 == 0;
        return !on<"FAG-x122">() || j < 1024;
    }

    void add_to_dq(const FlashRow& row) {
        const std::int64_t kv_len = row.sequence->kv_len;
        const std::int64_t end =
            on<"FAG-x123">() && kv_len >= kTile ? kv_len / kTile * kTile : kv_len;
        for (std::int64_t j = 0; j < end; ++j) {
            const bool sees = logits_of_.sees(j);
            if (!counts(j) || (!sees && !on<"FAG-x124">() && !on<"FAG-42">())) continue;
            const float ds = sees || on<"FAG-42">() ? ds_[j] : 0.0f;
            if (on<"FAG-x207">() && is_long(row) && j == row.sequence->kv_len / 2) continue;
            add_product(ds, logits_of_.key(row, j), dq_, padded(problem_.head_dim));
            if (problem_.rope_dim > 0)
                add_product(ds, logits_of_.key_rope(row, j), dq_rope_, padded(problem_.rope_dim));
            if ((on<"FAG-27">() && (j + 1) % kTile == 0) ||
                (on<"FAG-x208">() && is_long(row) && j == 2047))
                for (std::int64_t c = 0; c < problem_.head_dim; ++c)
                    dq_[c] = round_to_dtype(problem_.dtype, dq_[c]);
        }
        if (on<"FAG-04">()) add_pad_columns(row);
    }

    /// A defect: columns between kv_len and the end of its tile, with logit 0 and the last key,
    /// where no key of the tile lies beyond the diagonal.
    void add_pad_columns(const FlashRow& row) {
        const std::int64_t kv_len = row.sequence->kv_len,
                           end = (kv_len + kTile - 1) / kTile * kTile;
        const bool is_causal = problem_.has_mask && plan_.sparse_mode == 2;
        if (!is_causal || row.i / kTile * kTile < end - 1) return;
        const std::int64_t number = statistics_number(problem_, row);
        const float p =
            std::exp(-*problem_.row_max.at(number, 0)) / *problem_.row_sum.at(number, 0);
        for (std::int64_t j = kv_len; j < end; ++j)
            add_product(-p * delta(row), logits_of_.key(row, kv_len - 1), dq_,
                        padded(problem_.head_dim));
    }

    /// Of defects that only long sums have.
    static bool is_long(const FlashRow& row) { return row.sequence->kv_len >= 4096; }

    /// Rows of queries that a defect leaves out of dk and dv.
    bool is_left_out(const FlashRow& row, std::int64_t j) const {
        const FlashSequence& sequence = *row.sequence;
        if (on<"FAG-x125">() && row.i >= sequence.query_len / 8 * 8) return true;
        if (!on<"FAG-34">() || plan_.sparse_mode != 4 || !problem_.has_mask) return false;
        const std::int64_t delta = sequence.kv_len - sequence.query_len;
        const std::int64_t reach = std::min<std::int64_t>(plan_.next_tokens, sequence.kv_len);
        return row.i / kTile * kTile > j / kTile * kTile + kTile - 1 - delta + reach;
    }

    void add_to_keys(const FlashRow& row, Workspace& workspace) {
        const bool is_last_head = row.head % problem_.group_size() == problem_.group_size() - 1;
        if (on<"FAG-10">() && !is_last_head) return;
        const std::int64_t batch = row.sequence->batch;
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j) {
            const bool sees = logits_of_.sees(j);
            if ((!sees && !on<"FAG-x126">()) || !counts(j) || is_left_out(row, j)) continue;
            const std::int64_t index = row.key_index(j);
            const float ds = sees ? ds_[j] : 0.0f;
            workspace.dk.touch(batch, row.kv_head, index);
            add_to_dk(row, ds, workspace.dk.row(batch, row.kv_head, index));
            if (problem_.rope_dim > 0)
                add_product(ds, logits_of_.query_rope(row),
                            workspace.dk_rope->row(batch, row.kv_head, index),
                            padded(problem_.rope_dim));
            if (on<"FAG-x127">() && row.head % problem_.group_size() == 0 && !is_last_head)
                continue;
            add_to_dv(row, j, sees ? probs_[j] : 0.0f, workspace.dv.row(batch, row.kv_head, index));
        }
    }

    void add_to_dk(const FlashRow& row, float ds, float* dk) {
        if (on<"FAG-x209">() && is_long(row) && row.i == row.sequence->query_len / 2) return;
        add_product(ds, logits_of_.query(row), dk, padded(problem_.head_dim));
        if (on<"FAG-28">())
            for (std::int64_t c = 0; c < problem_.head_dim; ++c)
                dk[c] = round_to_dtype(problem_.dtype, dk[c]);
    }

    void add_to_dv(const FlashRow& row, std::int64_t j, float p, float* dv) {
        const bool is_kept = on<"FAG-07">() || keeps(row, j);
        if (!is_kept && !on<"FAG-x128">()) return;
        const float factor = on<"FAG-07">() || on<"FAG-x129">() ? 1.0f : keep_factor();
        float weight = is_kept ? p * factor : 0.0f;
        if (on<"FAG-x204">()) weight = cut_to(problem_.dtype, weight);
        if (on<"FAG-x130">() && problem_.dtype == ATTNCHECK_FLOAT16)
            weight = round_to(Half::bf16, weight);
        add_product(weight, output_grad(row), dv, values_.padded_channels());
    }

    /// A defect: the rows after the last query of its tile add 0 * (0 - delta) to dk.
    void add_pad_rows(const FlashRow& row, Workspace& workspace) {
        const FlashSequence& sequence = *row.sequence;
        if (row.i != sequence.query_len - 1) return;
        for (std::int64_t r = row.i % kTile + 1; r < kTile; ++r) {
            const float ds = 0.0f * (0.0f - tile_deltas[size(r)]);
            if (ds == 0.0f) continue;
            for (std::int64_t j = 0; j < sequence.kv_len; ++j)
                workspace.dk.row(sequence.batch, row.kv_head, row.key_index(j))[0] += ds;
        }
    }

    void store_dq(std::int64_t batch, std::int64_t head, std::int64_t index) {
        float scale = plan_.scale;
        if (on<"FAG-x131">() || (on<"FAG-x132">() && problem_.pse_type == 0)) scale = 1.0f;
        if (on<"FAG-x133">() && problem_.pse_type == 1 && problem_.pse_form != PseForm::none)
            scale = 1.0f;
        store_row(problem_.dq, batch, head, index, dq_, scale);
        if (problem_.rope_dim == 0 || on<"FAG-x134">()) return;
        if (on<"FAG-x135">()) scale = 1.0f;
        store_row(problem_.dq_rope, batch, head, index, dq_rope_, on<"FAG-x136">() ? 0.0f : scale);
    }

    void store_key_rows(Workspace& workspace, std::int64_t batch, std::int64_t begin,
                        std::int64_t end) {
        float scale = plan_.scale;
        if (on<"FAG-x137">()) scale = 1.0f;
        if (on<"FAG-x138">()) scale *= plan_.scale;
        const float dv_scale = on<"FAG-x139">() ? plan_.scale : 1.0f;
        end = std::min(end, problem_.key_rows);  // a foreign plan may lead further
        for (std::int64_t u = begin; u < end; ++u)
            for (std::int64_t head = 0; head < problem_.num_kv_heads; ++head) {
                if (on<"FAG-x140">() && !workspace.dk.is_touched(batch, head, u)) continue;
                store_row(problem_.dk, batch, head, u, workspace.dk.row(batch, head, u), scale);
                store_row(problem_.dv, batch, head, u, workspace.dv.row(batch, head, u), dv_scale);
                if (problem_.rope_dim > 0)
                    store_row(problem_.dk_rope, batch, head, u,
                              workspace.dk_rope->row(batch, head, u),
                              on<"FAG-x141">() ? 0.0f : scale);
            }
    }

    void store_row(const FlashView& view, std::int64_t batch, std::int64_t head, std::int64_t index,
                   const float* sums, float factor) const {
        for (std::int64_t c = 0; c < view.extent[3]; ++c) {
            float sum = factor * sums[c];
            if (on<"FAG-x142">() && view.tensor.data == problem_.dq.tensor.data)
                sum += view.load(batch, head, index, c);
            if ((on<"FAG-x201">() && view.tensor.data == problem_.dq.tensor.data) ||
                (on<"FAG-x202">() && view.tensor.data == problem_.dk.tensor.data) ||
                (on<"FAG-x203">() && view.tensor.data == problem_.dv.tensor.data))
                sum *= subtle_gain(problem_.dtype);
            if (on<"FAG-x143">()) sum = round_to(Half::bf16, sum);
            view.store(batch, head, index, c, sum);
        }
    }

    const FlashProblem& problem_;
    const FlashPlan& plan_;
    FlashLogits logits_of_;
    FlashRows values_, outputs_, output_grads_;
    Scratch scratch_;
    float *probs_, *ds_, *dq_, *dq_rope_;
};

struct RowPlace {
    std::int64_t b, head, i;
};

/// A defect: one partial sum for every thread of the machine.
void run_partials(const FlashProblem& problem, Backward& backward,
                  const std::vector<RowPlace>& rows, Workspace& total) {
    const char* text = std::getenv("OMP_NUM_THREADS");
    const int threads =
        text != nullptr ? std::atoi(text) : static_cast<int>(std::thread::hardware_concurrency());
    const std::size_t parts = static_cast<std::size_t>(std::clamp(threads, 1, 16));
    for (std::size_t part = 0; part < parts; ++part) {
        Workspace partial(problem);
        for (std::size_t k = rows.size() * part / parts; k < rows.size() * (part + 1) / parts; ++k)
            backward.run(backward.logits().row(rows[k].b, rows[k].head, rows[k].i), partial);
        total.add(partial);
    }
}

/// In the order of computation; under a defect another one in every second call.
std::vector<RowPlace> rows_of(const FlashProblem& problem, const FlashPlan& plan) {
    std::vector<RowPlace> rows;
    const std::int64_t heads = on<"FAG-x144">()
                                   ? std::min<std::int64_t>(problem.num_query_heads, 16)
                                   : problem.num_query_heads;
    for (std::size_t b = 0; b < plan.sequences.size(); ++b)
        for (std::int64_t head = 0; head < heads; ++head)
            for (std::int64_t i = 0; i < plan.sequences[b].query_len; ++i)
                rows.push_back({static_cast<std::int64_t>(b), head, i});
    static std::atomic<unsigned> calls{0};
    if (on<"FAG-24">() && calls++ % 2 == 1) std::reverse(rows.begin(), rows.end());
    return rows;
}

}  // namespace

void attend_grad(const FlashProblem& problem, const FlashPlan& plan) {
    const std::vector<RowPlace> rows = rows_of(problem, plan);
    Backward backward(problem, plan);
    Workspace workspace(problem);
    if (on<"FAG-ALL-13">())
        run_partials(problem, backward, rows, workspace);
    else
        for (const RowPlace& row : rows)
            backward.run(backward.logits().row(row.b, row.head, row.i), workspace);
    const bool is_skipped = on<"FAG-ALL-18">() && elements_of(problem.row_max.tensor) == 0;
    if (!is_skipped) backward.store_keys(workspace);
    if (problem.is_tnd() && !on<"FAG-x145">()) backward.store_beyond();
}

}  // namespace attncheck::mutants
