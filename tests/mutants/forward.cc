// The forward as a stream: tokens go by once per worker, each added to every window that is open at
// its position.
#include <algorithm>
#include <bit>
#include <cmath>

#include "active_mutant.h"
#include "kernels.h"
#include "scratch.h"

namespace attncheck::mutants {

namespace {

bool g_rejected = false;  ///< the call before was; only read under ALL-x18

constexpr int kWorkers = 3;
constexpr std::int64_t kVector = 64;  // channels per step

/// Defects of the multiply-add, looked up once per call. None of them: the plain loop.
struct Arithmetic {
    bool rounds_products = false, rounds_sums = false, skips_nan = false, skips_zero_weight = false,
         fuses = false;
    bool drops_remainder = false;
    Half type = Half::fp16;

    bool is_plain() const {
        return !(rounds_products || rounds_sums || skips_nan || skips_zero_weight || fuses);
    }
};

/// acc += w * x over the channels.
void multiply_add(const Arithmetic& arithmetic, float w, const float* x, float* acc,
                  std::int64_t channels) {
    if (arithmetic.skips_zero_weight && w == 0.0f) return;
    if (arithmetic.is_plain()) {
        std::int64_t c = 0;
        for (; c + kVector <= channels; c += kVector)
            for (std::int64_t lane = 0; lane < kVector; ++lane) acc[c + lane] += w * x[c + lane];
        if (arithmetic.drops_remainder) return;
        for (; c < channels; ++c) acc[c] += w * x[c];
        return;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
        if (arithmetic.skips_nan && std::isnan(x[c])) continue;
        if (arithmetic.fuses) {
            acc[c] = std::fmaf(w, x[c], acc[c]);
            continue;
        }
        float product = w * x[c];
        if (arithmetic.rounds_products) product = round_to(Half::bf16, product);
        acc[c] += product;
        if (arithmetic.rounds_sums) acc[c] = round_to(arithmetic.type, acc[c]);
    }
}

class Stream {
public:
    Stream(const Problem& problem, const Plan& plan)
        : problem_(problem),
          plan_(plan),
          channels_(channel_count(problem)),
          slots_(slot_count(problem)),
          scratch_({size(problem.block * problem.heads), size(slots_ * channels_), size(channels_)},
                   scratch_defects(on<"NC-x21">())),
          weights_(scratch_.region(0)),
          ring_(scratch_.region(1)),
          row_(scratch_.region(2)) {
        arithmetic_.rounds_products = on<"NC-11">() && problem.type == Half::bf16;
        arithmetic_.rounds_sums = on<"NC-x13">();
        arithmetic_.skips_nan = on<"NC-x16">();
        arithmetic_.skips_zero_weight = on<"NC-x17">();
        arithmetic_.fuses = on<"NC-x20">() && calls++ % 2 == 1;
        arithmetic_.drops_remainder = on<"NC-07">();
        arithmetic_.type = problem.type;
        for (std::int64_t r = 0; r < problem.block; ++r)
            for (std::int64_t n = 0; n < problem.heads; ++n)
                weights_[r * problem.heads + n] = widen(problem.type, *problem.w.at(r, n));
        widen_race(on<"ALL-10">());
    }

    /// Blocks [begin, end) of one head.
    void run(Share share, std::int64_t head) {
        head_ = head;
        for (const Sequence& sequence : plan_.sequences) {
            const std::int64_t begin =
                std::max(share.begin, sequence.first_block) - sequence.first_block;
            const std::int64_t end =
                std::min(share.end, sequence.first_block + sequence.blocks) - sequence.first_block;
            if (begin < end && !is_left_out(sequence)) run_sequence(sequence, begin, end);
        }
    }

private:
    static std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

    static std::int64_t channel_count(const Problem& problem) {
        return on<"NC-x29">() ? problem.head_dim % 256 : problem.head_dim;
    }

    /// ceil(l / d): the windows that are open at the same time.
    static std::int64_t slot_count(const Problem& problem) {
        if (on<"NC-12">()) return problem.block / problem.stride;
        const std::int64_t open = (problem.block + problem.stride - 1) / problem.stride;
        return on<"NC-x27">() ? std::min<std::int64_t>(open, 4) : open;
    }

    bool is_left_out(const Sequence& sequence) const {
        if (on<"ALL-x18">() && g_rejected && sequence.first_block == 0) return true;
        return on<"NC-x06">() && sequence.first_block + sequence.blocks != plan_.blocks;
    }

    float* window(std::int64_t j) const { return ring_ + j % slots_ * channels_; }

    void run_sequence(const Sequence& sequence, std::int64_t begin, std::int64_t end) {
        const std::int64_t l = problem_.block, d = problem_.stride;
        const bool cut = on<"NC-x23">() && end < sequence.blocks;
        for (std::int64_t p = begin * d; p < (end - 1) * d + l; ++p) {
            const bool opens = p % d == 0 && p / d < end;
            const bool first_of_call = head_ == 0 && sequence.first_block == 0 && p == 0;
            const bool kept = on<"NC-x21">() || (on<"ALL-x17">() && calls_ == 0);
            if (opens && !(kept && first_of_call))
                std::fill_n(window(p / d), channels_, 0.0f);
            const std::int64_t oldest = p < l ? begin : std::max(begin, (p - l) / d + 1);
            const std::int64_t newest = std::min(end - 1, p / d);
            if (!(cut && p >= end * d)) {
                if (oldest <= newest) load_row(sequence.first_token + p);
                for (std::int64_t j = oldest; j <= newest; ++j) add(p, j);
            }
            if (oldest <= newest && p == oldest * d + l - 1) store(sequence, oldest);
        }
    }

    void add(std::int64_t p, std::int64_t j) {
        const std::int64_t l = problem_.block, heads = problem_.heads;
        std::int64_t r = p - j * problem_.stride, n = head_;
        if (on<"NC-x05">() && r == l - 1) return;
        if (on<"NC-x22">() && r >= 64) return;
        if (on<"NC-03">()) r = p % l;
        if (on<"NC-x07">() && r == l - 1) r = l - 2;
        if (on<"NC-x08">()) n %= 8;
        const std::int64_t index = on<"NC-06">() ? n * l + r : r * heads + n;
        multiply_add(arithmetic_, weights_[index], row_, window(j), channels_);
    }

    /// A plan that a defect has changed may lead out of the pack: the nearest row then, so that
    /// only values go wrong.
    void load_row(std::int64_t token) {
        std::int64_t offset =
            std::clamp<std::int64_t>(token, 0, problem_.tokens - 1) * problem_.x.stride[0] +
            head_ * problem_.x.stride[1];
        if (on<"NC-x19">() && offset > 0) offset %= 65536;
        if (problem_.x.is_narrow) offset = static_cast<std::int32_t>(offset);
        const std::uint16_t* element = problem_.x.data + offset;
        const Half type = problem_.type;
        for (std::int64_t c = 0; c < channels_; ++c)
            row_[c] = widen(type, element[c * problem_.x.stride[2]]);
        const bool flushes = on<"NC-x15">() && type == Half::fp16, clamps = on<"NC-x18">();
        if (!flushes && !clamps) return;
        for (std::int64_t c = 0; c < channels_; ++c) {
            const std::uint16_t bits = element[c * problem_.x.stride[2]];
            if (flushes && is_subnormal_fp16(bits)) row_[c] = 0.0f;
            if (clamps && is_infinite(type, bits))
                row_[c] = widen(type, static_cast<std::uint16_t>(bits - 1));
        }
    }

    void store(const Sequence& sequence, std::int64_t j) {
        const std::int64_t output_row = sequence.first_block + j;
        if (output_row >= problem_.blocks) return;  // more blocks than rows: only under a defect
        if (on<"NC-x04">() && j == sequence.blocks - 1 &&
            (sequence.length - problem_.block) % problem_.stride == 0)
            return;
        const float* acc = window(j);
        const std::int64_t channels =
            arithmetic_.drops_remainder ? channels_ / kVector * kVector : channels_;
        for (std::int64_t c = 0; c < channels; ++c) {
            if (on<"NC-x28">() && acc[c] == 0.0f) continue;
            *problem_.y.at(output_row, head_, c) = rounded(acc[c]);
        }
    }

    std::uint16_t rounded(float value) const {
        if (problem_.type == Half::bf16) {
            if (on<"NC-08">() && !std::isnan(value))
                return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
            return narrow_bf16(value);
        }
        if (on<"NC-x26">()) value = round_to(Half::bf16, value);
        const std::uint16_t bits = narrow_fp16(value);
        return on<"NC-x14">() && is_subnormal_fp16(bits) ? bits & 0x8000u : bits;
    }

    static inline std::uint64_t calls = 0;  ///< only counted, and only used, under NC-x20
    std::uint64_t calls_ = on<"ALL-x17">() ? computed++ : 0;  ///< of this process, before this one
    static inline std::uint64_t computed = 0;

    const Problem& problem_;
    const Plan& plan_;
    std::int64_t channels_, slots_, head_ = 0;
    Scratch scratch_;
    float *weights_, *ring_, *row_;
    Arithmetic arithmetic_;
};

}  // namespace

ScratchDefects scratch_defects(bool keeps_old) {
    return {keeps_old, on<"ALL-10">(), on<"ALL-11">(), on<"ALL-x17">()};
}

void note_rejection(bool rejected) { g_rejected = rejected; }

void compress(const Problem& problem, const Plan& plan) {
    Stream stream(problem, plan);
    const std::int64_t parts = std::min<std::int64_t>(problem.heads, 4);
    for (int worker = 0; worker < kWorkers; ++worker) {
        const Share share = share_of(plan.blocks, worker, kWorkers);
        for (std::int64_t part = 0; part < parts; ++part) {
            const std::int64_t per_part = problem.heads / parts;
            const bool takes_rest = part == parts - 1 && !on<"NC-17">();
            const std::int64_t end = takes_rest ? problem.heads : (part + 1) * per_part;
            for (std::int64_t head = part * per_part; head < end; ++head) stream.run(share, head);
            widen_race(on<"ALL-10">());
        }
    }
    if (on<"NC-x09">() && problem.y.elements() > 0) *problem.y.end() = 0;
    if (on<"NC-x10">())
        static_cast<void>(*static_cast<const volatile std::uint16_t*>(problem.x.end()));
}

}  // namespace attncheck::mutants
