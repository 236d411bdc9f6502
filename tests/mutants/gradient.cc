// Both gradients by scattering blocks. Five workers share the blocks of a head; dX is summed in an
// fp32 workspace [T, D], dW in one partial [l] per worker, and the partials are added by a tree.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "active_mutant.h"
#include "kernels.h"
#include "scratch.h"

namespace attncheck::mutants {

namespace {

constexpr int kWorkers = 5, kMaxWorkers = 16;
constexpr std::int64_t kLanes = 16;  // D is a multiple of it

int worker_count() {
    if (!on<"ALL-13">()) return kWorkers;
    const char* text = std::getenv("OMP_NUM_THREADS");
    const int threads =
        text != nullptr ? std::atoi(text) : static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(threads, 1, kMaxWorkers);
}

/// Walks through the blocks in output order, from sequence to sequence.
class Walk {
public:
    Walk(const Plan& plan, std::int64_t first_block) : plan_(plan) {
        while (is_past(first_block)) ++index_;
    }

    /// Moves on to the sequence of `block`, which is the current block or the next one. True if
    /// that is another one.
    bool advance_to(std::int64_t block) {
        const std::size_t before = index_;
        if (on<"NCG-02">()) {
            if (is_past(block)) ++index_;
        } else {
            while (is_past(block)) ++index_;
        }
        return index_ != before;
    }

    const Sequence& sequence() const { return plan_.sequences[index_]; }

private:
    bool is_past(std::int64_t block) const {
        return block >= sequence().first_block + sequence().blocks;
    }

    const Plan& plan_;
    std::size_t index_ = 0;
};

class Scatter {
public:
    Scatter(const Problem& problem, const Plan& plan)
        : problem_(problem),
          plan_(plan),
          workers_(worker_count()),
          blocks_(std::min(plan.blocks, problem.blocks)),
          scratch_({size(problem.block), size(problem.head_dim), size(problem.head_dim),
                    size(problem.block * workers_), size(problem.tokens * problem.head_dim)},
                   scratch_defects(on<"NCG-x21">())),
          weights_(scratch_.region(0)),
          dy_(scratch_.region(1)),
          x_(scratch_.region(2)),
          partials_(scratch_.region(3)),
          dx_(scratch_.region(4)) {}

    void run_head(std::int64_t head) {
        head_ = head;
        for (std::int64_t r = 0; r < problem_.block; ++r)
            weights_[r] = widen(problem_.type, *problem_.w.at(r, head));
        if (head > 0 || !on<"NCG-x21">())
            std::fill_n(dx_, problem_.tokens * problem_.head_dim, 0.0f);
        std::fill_n(partials_, problem_.block * workers_, 0.0f);
        if (head == 0) widen_race(on<"ALL-10">());
        for (int worker = 0; worker < workers_; ++worker) run_worker(worker);
        reduce_partials();
        store_weight_grad();
        store_input_grad();
    }

private:
    static std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

    void load(const View& view, std::int64_t row, float* out) const {
        const std::uint16_t* element = view.at(row, head_);
        for (std::int64_t c = 0; c < problem_.head_dim; ++c)
            out[c] = widen(problem_.type, element[c * view.stride[2]]);
    }

    void run_worker(int worker) {
        const Share share = share_of(blocks_, worker, workers_);
        if (share.begin == share.end) return;
        float* partial = partials_ + worker * problem_.block;
        Walk walk(plan_, share.begin);
        for (std::int64_t block = share.begin; block < share.end; ++block) {
            if (walk.advance_to(block) && on<"NCG-x15">())
                std::fill_n(partial, problem_.block, 0.0f);
            load(problem_.y, block, dy_);
            run_block(walk.sequence(), block - walk.sequence().first_block, partial);
        }
    }

    void run_block(const Sequence& sequence, std::int64_t j, float* partial) {
        const std::int64_t l = problem_.block;
        const bool counts_for_weight = !(on<"NCG-x14">() && j == sequence.blocks - 1);
        for (std::int64_t r = 0; r < l; ++r) {
            // A sequence outside the pack is possible only in calls that a defect has accepted.
            const std::int64_t token = std::clamp<std::int64_t>(
                sequence.first_token + j * problem_.stride + r, 0, problem_.tokens - 1);
            load(problem_.x, token, x_);
            add_input_grad(token, j, r);
            if (on<"NCG-x13">() && r >= 64) continue;
            if (!counts_for_weight) continue;
            float sum = dot();
            if (on<"NCG-x201">() && j >= 32) sum *= 1.001f;
            if (on<"NCG-x202">() && problem_.tokens >= 65000) sum *= 1.01f;
            partial[r] += on<"NCG-x19">() ? round_to(problem_.type, sum) : sum;
        }
    }

    void add_input_grad(std::int64_t token, std::int64_t j, std::int64_t r) {
        const std::int64_t l = problem_.block, d = problem_.stride, channels = problem_.head_dim;
        float* dx = dx_ + token * channels;
        const float w = weights_[on<"NCG-x04">() ? l - 1 - r : r];
        if (on<"NCG-x05">() && j > 0 && r + d < l) return;
        if (on<"NCG-x06">() && r >= 2 * d) return;
        const bool is_disjoint = on<"NCG-09">() ? l % d == 0 : l == d;
        if (is_disjoint) {
            for (std::int64_t c = 0; c < channels; ++c) dx[c] = w * dy_[c];
            return;
        }
        for (std::int64_t c = 0; c < channels; ++c) dx[c] += w * dy_[c];
        if (on<"NCG-x08">())
            for (std::int64_t c = 0; c < channels; ++c) dx[c] = round_to(problem_.type, dx[c]);
        if (on<"NCG-x12">())
            for (std::int64_t c = 0; c < channels; ++c) dx[c] += 0.0f * x_[c];
    }

    /// sum_c dY * X
    float dot() const {
        std::int64_t channels = problem_.head_dim;
        if (on<"NCG-x07">()) --channels;
        if (on<"NCG-x20">()) channels = std::min<std::int64_t>(channels, 64);
        if (on<"NCG-x11">()) {
            float sum = 0.0f;
            for (std::int64_t c = 0; c < channels; ++c)
                if (dy_[c] != 0.0f) sum += dy_[c] * x_[c];
            return sum;
        }
        float lanes[kLanes]{};
        std::int64_t c = 0;
        for (; c + kLanes <= channels; c += kLanes)
            for (std::int64_t lane = 0; lane < kLanes; ++lane)
                lanes[lane] += dy_[c + lane] * x_[c + lane];
        for (std::int64_t lane = 0; c < channels; ++c, ++lane) lanes[lane] += dy_[c] * x_[c];
        for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
            for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        return lanes[0];
    }

    /// Into the first partial, by halves; an odd partial waits for the next round.
    void reduce_partials() {
        const std::int64_t l = problem_.block;
        if (on<"NCG-10">())
            for (std::int64_t i = 0; i < workers_ * l; ++i)
                partials_[i] = round_to(Half::fp16, partials_[i]);
        for (int count = workers_; count > 1;) {
            const int kept = on<"NCG-05">() ? count / 2 : (count + 1) / 2;
            const int added = std::min(count - kept, kept);
            for (std::int64_t i = 0; i < added * l; ++i) partials_[i] += partials_[kept * l + i];
            count = kept;
        }
    }

    void store_weight_grad() const {
        if (on<"NCG-x02">() && blocks_ == 0) return;
        const bool transposed = on<"NCG-x18">() && problem_.heads == problem_.block;
        for (std::int64_t r = 0; r < problem_.block; ++r) {
            std::uint16_t* element =
                transposed ? problem_.dw.at(head_, r) : problem_.dw.at(r, head_);
            const float old = on<"NCG-x03">() ? widen(problem_.type, *element) : 0.0f;
            *element = narrow(problem_.type, on<"NCG-x03">() ? partials_[r] + old : partials_[r]);
        }
    }

    void store_rows(std::int64_t begin, std::int64_t end) const {
        for (std::int64_t t = begin; t < end; ++t)
            for (std::int64_t c = 0; c < problem_.head_dim; ++c)
                *problem_.dx.at(t, head_, c) =
                    narrow(problem_.type, dx_[t * problem_.head_dim + c]);
    }

    /// Rows that no block covers hold the workspace's +0.
    void store_input_grad() {
        if (plan_is_foreign()) return store_rows(0, problem_.tokens);
        for (const Sequence& sequence : plan_.sequences) {
            const std::int64_t covered = sequence.first_token + covered_length(problem_, sequence);
            const std::int64_t end = sequence.first_token + sequence.length;
            store_rows(sequence.first_token, covered);
            if (on<"NCG-04">()) continue;
            spoil_uncovered(sequence, covered, end);
            store_rows(covered, end);
        }
        if (on<"NCG-x01">()) return;
        spoil_uncovered({}, plan_.end, problem_.tokens);
        store_rows(plan_.end, problem_.tokens);
    }

    /// Lengths that only a defect accepts need not tile the pack.
    bool plan_is_foreign() const {
        std::int64_t position = 0;
        for (const Sequence& sequence : plan_.sequences) {
            if (sequence.first_token != position) return true;
            position += sequence.length;
        }
        return position != plan_.end || position > problem_.tokens;
    }

    void spoil_uncovered(const Sequence& sequence, std::int64_t begin, std::int64_t end) {
        const std::int64_t channels = problem_.head_dim;
        if (on<"NCG-x09">()) std::fill_n(dx_ + begin * channels, (end - begin) * channels, -0.0f);
        if (!on<"NCG-x10">() || sequence.blocks == 0) return;
        load(problem_.y, sequence.first_block + sequence.blocks - 1, dy_);
        for (std::int64_t t = begin; t < end; ++t)
            for (std::int64_t c = 0; c < channels; ++c)
                dx_[t * channels + c] = 0.0f * dy_[c] + 0.0f;
    }

    const Problem& problem_;
    const Plan& plan_;
    std::int64_t head_ = 0;
    int workers_;
    std::int64_t blocks_;
    Scratch scratch_;
    float *weights_, *dy_, *x_, *partials_, *dx_;
};

}  // namespace

void compress_grad(const Problem& problem, const Plan& plan) {
    if (on<"NCG-x22">()) {
        const volatile std::int64_t blocks = plan.blocks;
        const volatile std::int64_t workers_per_block = kWorkers / blocks;
        static_cast<void>(workers_per_block);
    }
    Scatter scatter(problem, plan);
    for (std::int64_t head = 0; head < problem.heads; ++head) {
        scatter.run_head(head);
        widen_race(on<"ALL-10">());
    }
}

}  // namespace attncheck::mutants
