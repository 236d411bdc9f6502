// The gradient, one row at a time. dk and dv are summed in fp32 workspaces [T2, N2, D] and
// [T2, N2, Dv].
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "active_mutant.h"
#include "selected_columns.h"
#include "selected_kernels.h"
#include "selected_rows.h"
#include "subtle.h"

namespace attncheck::mutants {

namespace {

std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

/// The sums of dk and dv before scaling, and which rows somebody added to.
class Workspace {
public:
    explicit Workspace(const SelectedProblem& problem)
        : head_dim_(problem.head_dim),
          value_pitch_(on<"NSG-x31">() ? problem.head_dim : problem.value_dim),
          value_dim_(problem.value_dim),
          rows_(problem.key_tokens * problem.num_kv_heads),
          is_touched_(size(rows_)) {
        const std::int64_t dk_floats = rows_ * head_dim_;
        const std::int64_t dv_begin =
            on<"NSG-17">() ? dk_floats / kAlignment * kAlignment : dk_floats;
        own_.resize(size(dv_begin + rows_ * std::max(head_dim_, value_dim_)));
        dk_ = own_.data();
        dv_ = own_.data() + dv_begin;
        if (!on<"NSG-x33">()) return;
        thread_local std::vector<float> kept;
        if (kept.size() < size(dk_floats)) kept.resize(size(dk_floats));
        dk_ = kept.data();
    }

    float* dk(std::int64_t row) const { return dk_ + row * head_dim_; }
    /// Where the sums of a row go, and where they are read.
    float* dv_sum(std::int64_t row) const { return dv_ + row * value_pitch_; }
    const float* dv(std::int64_t row) const { return dv_ + row * value_dim_; }

    void touch(std::int64_t row) { is_touched_[size(row)] = true; }
    bool is_touched(std::int64_t row) const { return is_touched_[size(row)]; }

    void add(const Workspace& other) {
        for (std::size_t i = 0; i < own_.size(); ++i) own_[i] += other.own_[i];
        for (std::int64_t row = 0; row < rows_; ++row)
            if (other.is_touched(row)) touch(row);
    }

    /// The sums as they are now; store_updates() later writes these plus `update` to the rows that
    /// `update` touches.
    std::vector<float> snapshot() const { return own_; }
    void store_updates(const std::vector<float>& snapshot, const Workspace& update) {
        const auto store = [&](const float* place, std::int64_t floats) {
            const std::size_t begin = size(place - update.own_.data());
            for (std::size_t i = begin; i < begin + size(floats); ++i)
                own_[i] = snapshot[i] + update.own_[i];
        };
        for (std::int64_t row = 0; row < rows_; ++row) {
            if (!update.is_touched(row)) continue;
            store(update.dk(row), head_dim_);
            store(update.dv(row), value_dim_);
            touch(row);
        }
    }

private:
    static constexpr std::int64_t kAlignment = 128;  // floats in 512 bytes

    std::int64_t head_dim_, value_pitch_, value_dim_, rows_;
    std::vector<bool> is_touched_;
    std::vector<float> own_;
    float *dk_, *dv_;
};

/// Query s of a sequence.
struct Token {
    const SelectedSequence* sequence;
    std::int64_t s;
};

class Backward {
public:
    Backward(const SelectedProblem& problem, const SelectedPlan& plan)
        : problem_(problem),
          plan_(plan),
          columns_(problem, plan),
          queries_(problem.query, problem.type),
          keys_(problem.key, problem.type),
          values_(problem.value, problem.type),
          outputs_(problem.output, problem.type),
          output_grads_(problem.output_grad, problem.type),
          scratch_({size(problem.columns()), size(problem.columns()), size(problem.head_dim)},
                   selected_scratch_defects()),
          probs_(scratch_.region(0)),
          ds_(scratch_.region(1)),
          dq_(scratch_.region(2)) {}

    /// Stores dq of the token and adds its part of dk and dv to the workspace.
    void run(const Token& token, Workspace& workspace) {
        const std::int64_t heads =
            heads_computed(problem_.group_size(), on<"NSG-x12">(), on<"NSG-x13">());
        for (std::int64_t kv_head = 0; kv_head < problem_.num_kv_heads; ++kv_head) {
            columns_.load(*token.sequence, token.s, kv_head);
            for (std::int64_t g = 0; g < heads; ++g) run_row(token, kv_head, g, workspace);
        }
    }

    void store_beyond() {
        std::fill_n(dq_, problem_.head_dim, 0.0f);
        for (std::int64_t t = plan_.queries_end; t < problem_.query_tokens; ++t)
            for (std::int64_t head = 0; head < problem_.num_query_heads; ++head)
                store_row(problem_.dq, t, head, dq_, 1.0f);
    }

    void store_keys(const Workspace& workspace) {
        for (const SelectedSequence& sequence : plan_.sequences)
            if (sequence.query_len > 0 || !on<"NSG-x39">())
                store_key_rows(workspace, sequence.first_key,
                               sequence.first_key + key_rows_stored(sequence.kv_len));
        if (!on<"NSG-x38">()) store_key_rows(workspace, plan_.keys_end, problem_.key_tokens);
    }

private:
    /// A defect: long sequences in whole tiles of 64.
    static std::int64_t key_rows_stored(std::int64_t kv_len) {
        return on<"NSG-x370">() && kv_len > 4096 ? kv_len / 64 * 64 : kv_len;
    }

    struct Row {
        std::int64_t t, head, kv_head, g;
        const float *query, *output_grad;
    };

    std::int64_t query_head(std::int64_t kv_head, std::int64_t g) const {
        if (on<"NSG-x11">()) return g * problem_.num_kv_heads + kv_head;
        return kv_head * problem_.group_size() + g;
    }

    void run_row(const Token& token, std::int64_t kv_head, std::int64_t g, Workspace& workspace) {
        const std::int64_t t = token.sequence->first_query + token.s;
        const std::int64_t head = query_head(kv_head, g);
        const Row row{t, head, kv_head, g, queries_.row(t, head), output_grads_.row(t, head)};
        has_keys_ = token.sequence->kv_len > 0;
        std::fill_n(dq_, problem_.head_dim, 0.0f);
        if (columns_.any_is_visible() || (on<"NSG-15">() && has_keys_)) {
            compute_probs(row);
            if (head == 0) widen_race(on<"NS-ALL-10">());
            compute_ds(row);
            add_to_dq(row);
            add_to_keys(token, row, workspace);
        } else if (on<"NSG-x43">() && has_keys_) {
            return;
        }
        if (on<"NSG-x40">() && !has_keys_) return;
        store_row(problem_.dq, t, head, dq_, on<"NSG-x23">() ? 1.0f : plan_.scale);
    }

    /// A row that sees nothing is computed under a defect only, and then with all its columns.
    bool counts(std::int64_t column) const {
        return columns_.is_visible(column) || !columns_.any_is_visible();
    }

    float logit(const Row& row, std::int64_t column) {
        const std::int64_t channels =
            on<"NSG-x14">() ? std::min<std::int64_t>(problem_.head_dim, 128) : problem_.head_dim;
        const float* key = keys_.row(columns_.gathered_key(column), row.kv_head);
        return plan_.scale * dot(row.query, key, channels);
    }

    void compute_probs(const Row& row) {
        const std::int64_t statistics_head = on<"NSG-11">() ? row.kv_head : row.head;
        float row_max = *problem_.row_max.at(row.t, statistics_head);
        float row_sum = *problem_.row_sum.at(row.t, statistics_head);
        if (on<"NSG-x21">()) recompute_statistics(row, row_max, row_sum);
        for (std::int64_t j = 0; j < columns_.count(); ++j) {
            if (!counts(j)) continue;
            const float a = columns_.any_is_visible() ? logit(row, j) : std::nanf("");
            probs_[j] = std::exp(a - row_max) / row_sum;
            if (on<"NSG-14">()) probs_[j] = std::exp(a) * std::exp(-row_max) / row_sum;
            if (on<"NSG-x22">()) probs_[j] = std::exp(a - (row_max - std::log(row_sum)));
        }
    }

    void recompute_statistics(const Row& row, float& row_max, float& row_sum) {
        row_max = -std::numeric_limits<float>::infinity();
        row_sum = 0.0f;
        for (std::int64_t j = 0; j < columns_.count(); ++j)
            if (counts(j)) row_max = std::max(row_max, logit(row, j));
        for (std::int64_t j = 0; j < columns_.count(); ++j)
            if (counts(j)) row_sum += std::exp(logit(row, j) - row_max);
    }

    float delta(const Row& row) {
        std::int64_t t = row.t, head = row.head;
        if (on<"NSG-x17">()) return 0.0f;
        if (on<"NSG-x19">()) head = query_head(row.kv_head, 0);
        if (on<"NSG-x20">()) t = std::max<std::int64_t>(t - 1, 0);
        const float* output = outputs_.row(t, head);
        std::vector<float> recomputed;
        if (on<"NSG-x18">()) {
            recomputed.resize(size(problem_.value_dim));
            for (std::int64_t j = 0; j < columns_.count(); ++j)
                if (counts(j))
                    add_product(probs_[j], value(row, j), recomputed.data(), problem_.value_dim);
            output = recomputed.data();
        }
        const float sum = dot(output_grads_.row(t, head), output, problem_.value_dim);
        return on<"NSG-x48">() ? round_to(problem_.type, sum) : sum;
    }

    const float* value(const Row& row, std::int64_t column) {
        return values_.row(columns_.gathered_key(column), row.kv_head);
    }

    void compute_ds(const Row& row) {
        const float row_delta = delta(row);
        for (std::int64_t j = 0; j < columns_.count(); ++j) {
            if (!counts(j)) continue;
            float dp = dot(row.output_grad, value(row, j), problem_.value_dim);
            if (on<"NSG-x47">()) dp = round_to(problem_.type, dp);
            ds_[j] = probs_[j] * (dp - row_delta);
            const bool flushes = on<"NSG-x34">() && problem_.type == Half::fp16;
            if (flushes && std::fabs(ds_[j]) < 0x1p-14f) ds_[j] = 0.0f;
            if (on<"NSG-x204">()) ds_[j] = cut_to(problem_.type, ds_[j]);
        }
    }

    void add_to_dq(const Row& row) {
        const std::int64_t columns =
            on<"NSG-x27">() ? columns_.count() / 64 * 64 : columns_.count();
        for (std::int64_t j = 0; j < columns; ++j) {
            if (!counts(j) && !on<"NSG-x41">()) continue;
            const float* key = keys_.row(columns_.gathered_key(j), row.kv_head);
            add_product(counts(j) ? ds_[j] : 0.0f, key, dq_, problem_.head_dim);
        }
    }

    void add_to_keys(const Token& token, const Row& row, Workspace& workspace) {
        if (on<"NSG-12">() && row.g != problem_.group_size() - 1) return;
        if (on<"NSG-x45">() && token.s >= token.sequence->query_len / 8 * 8) return;
        for (std::int64_t j = 0; j < columns_.count(); ++j) {
            if (!counts(j) && !on<"NSG-x42">()) continue;
            const std::int64_t slot = j / problem_.block_size;
            if (on<"NSG-13">() && columns_.is_causal() && slot * problem_.block_size > token.s)
                continue;
            const std::int64_t key_row = columns_.key(j) * problem_.num_kv_heads + row.kv_head;
            workspace.touch(key_row);
            if (!(on<"NSG-x26">() && columns_.last_slot_with(columns_.entry(slot)) != slot))
                add_to_dk(row, counts(j) ? ds_[j] : 0.0f, workspace.dk(key_row));
            if (on<"NSG-x28">() && row.g == 0 && problem_.group_size() > 1) continue;
            float p = counts(j) ? probs_[j] : 0.0f;
            if (on<"NSG-x46">() && problem_.type == Half::fp16) p = round_to(Half::bf16, p);
            add_product(p, row.output_grad, workspace.dv_sum(key_row), problem_.value_dim);
        }
    }

    void add_to_dk(const Row& row, float ds, float* dk) const {
        add_product(ds, row.query, dk, problem_.head_dim);
        if (on<"NSG-x29">())
            for (std::int64_t c = 0; c < problem_.head_dim; ++c)
                dk[c] = round_to(problem_.type, dk[c]);
    }

    void store_key_rows(const Workspace& workspace, std::int64_t begin, std::int64_t end) {
        float dk_scale = plan_.scale;
        if (on<"NSG-02">()) dk_scale *= plan_.scale;
        if (on<"NSG-x24">()) dk_scale = 1.0f;
        const float dv_scale = on<"NSG-x25">() ? plan_.scale : 1.0f;
        end = std::min(end, problem_.key_tokens);  // a foreign plan may lead further
        for (std::int64_t u = begin; u < end; ++u)
            for (std::int64_t head = 0; head < problem_.num_kv_heads; ++head) {
                const std::int64_t row = u * problem_.num_kv_heads + head;
                if (on<"NSG-x30">() && !workspace.is_touched(row)) continue;
                store_row(problem_.dk, u, head, workspace.dk(row), dk_scale);
                store_row(problem_.dv, u, head, workspace.dv(row), dv_scale);
            }
    }

    /// A whole row of dq, dk or dv, unless a defect shortens the pass over the elements.
    void store_row(const View& view, std::int64_t i, std::int64_t head, const float* sums,
                   float factor) const {
        const std::int64_t channels = view.shape[2];
        std::int64_t end = channels;
        if (on<"NSG-16">()) {
            const std::int64_t aligned = (channels + 127) / 128 * 128;
            const std::int64_t passed = view.elements() / aligned * channels;
            end = std::clamp<std::int64_t>(passed - (i * view.shape[1] + head) * channels, 0,
                                           channels);
        }
        for (std::int64_t c = 0; c < end; ++c) {
            std::uint16_t* element = view.at(i, head, c);
            float sum = factor * sums[c];
            if ((on<"NSG-x201">() && view.data == problem_.dq.data) ||
                (on<"NSG-x202">() && view.data == problem_.dk.data) ||
                (on<"NSG-x203">() && view.data == problem_.dv.data))
                sum *= subtle_gain(problem_.type);
            if (on<"NSG-x50">() && view.data == problem_.dq.data)
                sum += widen(problem_.type, *element);
            *element = rounded(sum);
        }
    }

    std::uint16_t rounded(float sum) const {
        if (on<"NSG-x36">()) return truncate(problem_.type, sum);
        if (on<"NSG-x49">()) sum = round_to(Half::bf16, sum);
        return narrow(problem_.type, sum);
    }

    const SelectedProblem& problem_;
    const SelectedPlan& plan_;
    Columns columns_;
    Rows queries_, keys_, values_, outputs_, output_grads_;
    Scratch scratch_;
    float *probs_, *ds_, *dq_;
    bool has_keys_ = false;
};

/// A defect: two threads take the last tokens of the two halves. Both read the sums before either
/// has stored its own, so where they meet the first one's update is lost.
void run_unlocked(const SelectedProblem& problem, const SelectedPlan& plan, const Token& first,
                  const Token& second, Workspace& shared) {
    std::barrier both_have_read(2), first_has_stored(2);
    const auto work = [&](const Token& token, bool is_first) {
        Workspace update(problem);
        Backward(problem, plan).run(token, update);
        const std::vector<float> before = shared.snapshot();
        both_have_read.arrive_and_wait();
        if (!is_first) first_has_stored.arrive_and_wait();
        shared.store_updates(before, update);
        if (is_first) first_has_stored.arrive_and_wait();
    };
    const std::jthread other(work, first, true);
    work(second, false);
}

/// A defect: one partial sum for every thread of the machine.
void run_partials(const SelectedProblem& problem, const SelectedPlan& plan,
                  const std::vector<Token>& tokens, Workspace& total) {
    const char* text = std::getenv("OMP_NUM_THREADS");
    const int threads =
        text != nullptr ? std::atoi(text) : static_cast<int>(std::thread::hardware_concurrency());
    const std::size_t parts = static_cast<std::size_t>(std::clamp(threads, 1, 16));
    Backward backward(problem, plan);
    for (std::size_t part = 0; part < parts; ++part) {
        Workspace partial(problem);
        for (std::size_t i = tokens.size() * part / parts; i < tokens.size() * (part + 1) / parts;
             ++i)
            backward.run(tokens[i], partial);
        total.add(partial);
    }
}

}  // namespace

void attend_grad(const SelectedProblem& problem, const SelectedPlan& plan) {
    std::vector<Token> tokens;
    for (const SelectedSequence& sequence : plan.sequences)
        for (std::int64_t s = 0; s < sequence.query_len; ++s) tokens.push_back({&sequence, s});
    Backward backward(problem, plan);
    Workspace workspace(problem);
    if (on<"NSG-ALL-13">()) {
        run_partials(problem, plan, tokens, workspace);
    } else if (on<"NSG-x32">() && tokens.size() > 1) {
        const std::size_t half = tokens.size() / 2 - 1, last = tokens.size() - 1;
        for (std::size_t i = 0; i < last; ++i)
            if (i != half) backward.run(tokens[i], workspace);
        run_unlocked(problem, plan, tokens[half], tokens[last], workspace);
    } else {
        for (const Token& token : tokens) backward.run(token, workspace);
    }
    backward.store_keys(workspace);
    if (!on<"NSG-x37">()) backward.store_beyond();
    if (on<"NSG-x51">()) *problem.dk.end() = 0;
}

}  // namespace attncheck::mutants
