// The forward, one row at a time: statistics by an online softmax over tiles of 64 columns, then
// the normalised probabilities, then the values.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <memory>

#include "active_mutant.h"
#include "selected_columns.h"
#include "selected_kernels.h"
#include "selected_rows.h"
#include "subtle.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kTile = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Statistics {
    float row_max = -FLT_MAX, row_sum = FLT_MAX;
};

/// NaN wins.
float larger(float a, float b) {
    if (on<"NSF-x43">()) return std::fmax(a, b);
    return b > a || std::isnan(b) ? b : a;
}

/// Widened keys; under a defect those of the last call, if address and shape are the same.
std::shared_ptr<Rows> widened_keys(const View& key, Half type, RowDefects defects) {
    if (!on<"NSF-x60">()) return std::make_shared<Rows>(key, type, defects);
    thread_local std::shared_ptr<Rows> last;
    if (last == nullptr || !last->views(key)) last = std::make_shared<Rows>(key, type, defects);
    return last;
}

class Forward {
public:
    Forward(const SelectedProblem& problem, const SelectedPlan& plan)
        : problem_(problem),
          plan_(plan),
          columns_(problem, plan),
          keys_(widened_keys(problem.key, problem.type, input_defects())),
          values_(problem.value, problem.type, value_defects(problem)),
          scratch_({size(problem.head_dim), size(problem.columns()), size(problem.columns()),
                    size(problem.value_dim)},
                   selected_scratch_defects()),
          query_(scratch_.region(0)),
          logits_(scratch_.region(1)),
          probs_(scratch_.region(2)),
          acc_(scratch_.region(3)),
          tile_max_(size(problem.columns() / kTile + 1)) {}

    void run() {
        const std::int64_t heads =
            heads_computed(problem_.group_size(), on<"NSF-x23">(), on<"NSF-x24">());
        for (const SelectedSequence& sequence : plan_.sequences)
            for (std::int64_t kv_head = 0; kv_head < problem_.num_kv_heads; ++kv_head)
                for (std::int64_t s = 0; s < queries_computed(sequence); ++s) {
                    columns_.load(sequence, s, kv_head);
                    for (std::int64_t g = 0; g < heads; ++g) run_row(sequence, s, kv_head, g);
                }
        if (on<"NSF-x38">()) return;
        std::fill_n(acc_, problem_.value_dim, 0.0f);
        const Statistics beyond = on<"NSF-x39">() ? Statistics{} : Statistics{0.0f, 0.0f};
        for (std::int64_t t = plan_.queries_end; t < problem_.query_tokens; ++t)
            for (std::int64_t head = 0; head < problem_.num_query_heads; ++head)
                store(t, head, beyond);
    }

private:
    static std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

    static RowDefects input_defects() { return {0, on<"NSF-x61">(), on<"NSF-x62">()}; }

    static RowDefects value_defects(const SelectedProblem& problem) {
        RowDefects defects = input_defects();
        if (on<"NSF-21">()) defects.head_pitch = problem.head_dim;
        return defects;
    }

    static std::int64_t queries_computed(const SelectedSequence& sequence) {
        if (on<"NSF-x36">() && sequence.kv_len == 0) return 0;
        return on<"NSF-x48">() ? sequence.query_len / 8 * 8 : sequence.query_len;
    }

    std::int64_t query_head(std::int64_t kv_head, std::int64_t g) const {
        if (on<"NSF-x22">()) return g * problem_.num_kv_heads + kv_head;
        return kv_head * problem_.group_size() + g;
    }

    void run_row(const SelectedSequence& sequence, std::int64_t s, std::int64_t kv_head,
                 std::int64_t g) {
        const std::int64_t t = sequence.first_query + s, head = query_head(kv_head, g);
        load_query(t, head);
        const bool sees_any = compute_logits(kv_head, g);
        if (head == 0) widen_race(on<"NS-ALL-10">());
        Statistics statistics;
        if (sees_any) {
            statistics = compute_statistics(kv_head, g);
            compute_probs(statistics, g);
            add_values(sequence, kv_head, g);
        } else {
            std::fill_n(acc_, problem_.value_dim, 0.0f);
            spoil_empty_row(sequence, kv_head, statistics);
        }
        store(t, head, statistics);
    }

    void load_query(std::int64_t t, std::int64_t head) {
        const std::uint16_t* element = problem_.query.at(t, head);
        for (std::int64_t c = 0; c < problem_.head_dim; ++c)
            query_[c] = widen(problem_.type, element[c * problem_.query.stride[2]]);
        if (on<"NSF-x55">())
            for (std::int64_t c = 0; c < problem_.head_dim; ++c)
                query_[c] = round_to(problem_.type, query_[c] * plan_.scale);
    }

    float unscaled_logit(std::int64_t column, std::int64_t kv_head) {
        std::int64_t channels = problem_.head_dim;
        if (on<"NSF-x26">()) channels = problem_.value_dim;
        if (on<"NSF-x27">()) channels = std::min<std::int64_t>(channels, 128);
        return dot(query_, keys_->row(columns_.gathered_key(column), kv_head), channels);
    }

    float logit(std::int64_t column, std::int64_t kv_head) {
        const float product = unscaled_logit(column, kv_head);
        if (on<"NSF-x55">()) return product;
        const float scaled = plan_.scale * product;
        return on<"NSF-x56">() ? round_to(problem_.type, scaled) : scaled;
    }

    /// False if no column is visible.
    bool compute_logits(std::int64_t kv_head, std::int64_t g) {
        bool any = false;
        for (std::int64_t j = 0; j < columns_.count(); ++j) {
            if (!columns_.is_visible_to(g, j)) continue;
            logits_[j] = logit(j, kv_head);
            any = true;
        }
        return any;
    }

    float first_maximum() const {
        if (on<"NSF-x16">()) return 0.0f;
        if (on<"NSF-x17">()) return -1e4f;
        return on<"NSF-x370">() ? -1e5f : -kInfinity;
    }

    Statistics compute_statistics(std::int64_t kv_head, std::int64_t g) {
        float running = first_maximum(), sum = 0.0f;
        if (on<"NSF-x57">() && columns_.any_is_visible())
            for (std::int64_t j = 0; j < columns_.count(); ++j)
                running = larger(running, logit(j, kv_head));
        for (std::int64_t begin = 0; begin < columns_.count(); begin += kTile) {
            const std::int64_t end = std::min(begin + kTile, columns_.count());
            const float before = running;
            if (begin == 0 || !on<"NSF-x65">())
                for (std::int64_t j = begin; j < end; ++j)
                    if (columns_.is_visible_to(g, j)) running = larger(running, logits_[j]);
            // While all logits are -inf there is nothing to rescale, and -inf - -inf must not
            // arise.
            const float shift = running == -kInfinity ? 0.0f : running;
            if (before != shift && !on<"NSF-x18">()) sum *= std::exp(before - shift);
            for (std::int64_t j = begin; j < end; ++j)
                if (columns_.is_visible_to(g, j)) sum += summand(std::exp(logits_[j] - shift));
            tile_max_[size(begin / kTile)] = shift;
        }
        return {running, sum};
    }

    float summand(float exponential) const {
        return on<"NSF-16">() ? round_to(problem_.type, exponential) : exponential;
    }

    void compute_probs(const Statistics& statistics, std::int64_t g) {
        const float row_max = statistics.row_max == -kInfinity ? 0.0f : statistics.row_max;
        float unshifted_sum = 0.0f;
        if (on<"NSF-x15">())
            for (std::int64_t j = 0; j < columns_.count(); ++j)
                if (columns_.is_visible_to(g, j)) unshifted_sum += std::exp(logits_[j]);
        for (std::int64_t j = 0; j < columns_.count(); ++j) {
            if (!columns_.is_visible_to(g, j)) continue;
            if (on<"NSF-x15">()) {
                probs_[j] = std::exp(logits_[j]) / unshifted_sum;
                continue;
            }
            const float shift = on<"NSF-x19">() ? tile_max_[size(j / kTile)] : row_max;
            probs_[j] = std::exp(logits_[j] - shift) / statistics.row_sum;
            if (on<"NSF-x41">() && problem_.type == Half::fp16)
                probs_[j] = round_to(Half::bf16, probs_[j]);
        }
    }

    void add_values(const SelectedSequence& sequence, std::int64_t kv_head, std::int64_t g) {
        std::fill_n(acc_, problem_.value_dim, 0.0f);
        for (std::int64_t j = 0; j < columns_.count(); ++j) {
            const bool is_visible = columns_.is_visible_to(g, j);
            if (!is_visible && !on<"NSF-x45">()) continue;
            const float* value = values_.row(columns_.gathered_key(j), kv_head);
            float prob = is_visible ? probs_[j] : 0.0f;
            if (on<"NSF-x202">()) prob = cut_to(problem_.type, prob);
            add_product(prob, value, acc_, problem_.value_dim);
            if (on<"NSF-x42">())
                for (std::int64_t c = 0; c < problem_.value_dim; ++c)
                    acc_[c] = round_to(problem_.type, acc_[c]);
        }
        if (!on<"NSF-x44">()) return;
        for (std::int64_t position = 0; position < sequence.kv_len; ++position)
            if (!columns_.lists(position / problem_.block_size))
                add_product(0.0f, values_.row(sequence.first_key + position, kv_head), acc_,
                            problem_.value_dim);
    }

    /// Defects of rows without a visible column; acc is 0.
    void spoil_empty_row(const SelectedSequence& sequence, std::int64_t kv_head,
                         Statistics& statistics) {
        if (on<"NSF-x33">()) std::fill_n(acc_, problem_.value_dim, std::nanf(""));
        if (on<"NSF-x35">()) statistics = {-kInfinity, 0.0f};
        if (!on<"NSF-x34">() || sequence.kv_len == 0) return;
        for (std::int64_t j = 0; j < columns_.count(); ++j)
            add_product(1.0f / static_cast<float>(columns_.count()),
                        values_.row(columns_.key(j), kv_head), acc_, problem_.value_dim);
    }

    void store(std::int64_t t, std::int64_t head, Statistics statistics) {
        const std::int64_t elements = problem_.output.elements();
        for (std::int64_t c = 0; c < problem_.value_dim; ++c) {
            std::uint16_t* element = problem_.output.at(t, head, c);
            if (on<"NSF-x25">() && problem_.head_dim != problem_.value_dim) {
                const std::int64_t position =
                    (t * problem_.num_query_heads + head) * problem_.head_dim + c;
                if (position >= elements) continue;
                const std::int64_t row = position / problem_.value_dim;
                element = problem_.output.at(row / problem_.num_query_heads,
                                             row % problem_.num_query_heads,
                                             position % problem_.value_dim);
            }
            *element = rounded(acc_[c]);
        }
        if (on<"NSF-14">() && statistics.row_sum != FLT_MAX && statistics.row_sum != 0.0f)
            statistics.row_max /= plan_.scale;
        if (on<"NSF-x32">() && statistics.row_sum != FLT_MAX) statistics.row_sum *= plan_.scale;
        if (on<"NSF-x31">()) {
            const std::int64_t position = head * problem_.query_tokens + t;
            t = position / problem_.num_query_heads;
            head = position % problem_.num_query_heads;
        }
        for (std::int64_t copy = 0; copy < (on<"NSF-x30">() ? 1 : 8); ++copy) {
            *problem_.row_max.at(t, head, copy) = statistics.row_max;
            *problem_.row_sum.at(t, head, copy) = statistics.row_sum;
        }
    }

    std::uint16_t rounded(float value) const {
        if (on<"NSF-x201">()) value *= subtle_gain(problem_.type);
        if (on<"NSF-x46">()) return truncate(problem_.type, value);
        if (on<"NSF-x40">()) value = round_to(Half::bf16, value);
        return narrow(problem_.type, value);
    }

    const SelectedProblem& problem_;
    const SelectedPlan& plan_;
    Columns columns_;
    std::shared_ptr<Rows> keys_;
    Rows values_;
    Scratch scratch_;
    float *query_, *logits_, *probs_, *acc_;
    std::vector<float> tile_max_;
};

}  // namespace

ScratchDefects selected_scratch_defects() { return {false, on<"NS-ALL-10">(), on<"NS-ALL-11">()}; }

void attend(const SelectedProblem& problem, const SelectedPlan& plan) {
    Forward(problem, plan).run();
    if (on<"NSF-x58">()) *problem.output.end() = 0;
    if (on<"NSF-x59">())
        static_cast<void>(*static_cast<const volatile std::uint16_t*>(problem.value.end()));
}

}  // namespace attncheck::mutants
