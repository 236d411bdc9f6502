#include "compress_attention_scores.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "active_mutant.h"

namespace attncheck::mutants {

double CompressAttentionScores::prob(std::int64_t row, std::int64_t index) const {
    const std::int64_t count = sequence_.num_keys;
    if (index < 0) {
        if (!on<"NCA-03">()) return 0.0;
        index = 0;
    }
    if (index >= count) {
        if (!on<"NCA-04">()) return 0.0;
        row = (row + 1) % rows_;
        index = std::min(index - count, count - 1);
    }
    std::int64_t position = row * count;
    if (on<"NCA-17">()) position = static_cast<std::uint16_t>(position * 4) / 4;
    const float p = probs_[position + index];
    return static_cast<double>(on<"NCA-x32">() ? round_to(problem_.type, p) : p);
}

double CompressAttentionScores::window(std::int64_t row, std::int64_t block) const {
    constexpr std::int64_t kChunk = 32;
    const std::int64_t is_m = problem_.is_m();
    std::int64_t is_n = problem_.is_n();
    if (on<"NCA-x02">() && problem_.compress_block % problem_.compress_stride != 0) ++is_n;
    double sum = 0.0;
    for (std::int64_t m = 0; m < is_m; ++m)
        for (std::int64_t n = 0; n < is_n; ++n) {
            const std::int64_t index =
                on<"NCA-x01">() ? is_m * block + m - n : is_m * (block + 1) - m - n;
            if (on<"NCA-16">() && block >= kChunk && index <= block / kChunk * kChunk * is_m)
                continue;
            if (on<"NCA-x35">() && n > 0 && m + 1 < is_m) continue;
            sum += prob(row, index);
        }
    return sum;
}

double CompressAttentionScores::sum_over_heads(std::int64_t block) const {
    if (on<"NCA-x30">()) return window(0, block);
    std::vector<double> heads;
    for (std::int64_t row = 0; row < rows_; ++row) heads.push_back(window(row, block));
    if (on<"NCA-05">()) {
        for (std::size_t count = heads.size() / 2; count > 0; count /= 2)
            for (std::size_t i = 0; i < count; ++i) heads[i] += heads[i + count];
        return heads[0];
    }
    double sum = 0.0;
    for (const double head : heads) sum += head;
    return sum;
}

bool CompressAttentionScores::is_forced(std::int64_t s, std::int64_t block) const {
    if (on<"NCA-x08">() && block == 0) return true;
    if (!problem_.has_topk_mask || on<"NCA-x05">()) return false;
    const BasicView<std::uint8_t>& mask = problem_.topk_mask;
    if (on<"NCA-x10">()) s = std::min(sequence_.first_query + s, mask.shape[0] - 1);
    if (on<"NCA-x09">()) {
        const std::int64_t position = s * problem_.candidates(sequence_.num_keys) + block;
        return *mask.at(position / mask.shape[1], position % mask.shape[1]) != 0;
    }
    std::uint8_t* mark = mask.at(s, block);
    const bool is_marked = *mark != 0;
    if (on<"NCA-ALL-14">() && is_marked) *mark = 0;
    return is_marked;
}

bool CompressAttentionScores::precedes(std::int64_t a, std::int64_t b) const {
    const double own = scores_[static_cast<std::size_t>(a)],
                 other = scores_[static_cast<std::size_t>(b)];
    if (std::isnan(other)) return !std::isnan(own);
    return own > other || (on<"NCA-x03">() && own == other);
}

std::int64_t CompressAttentionScores::best_left(const std::vector<bool>& taken) const {
    if (on<"NCA-21">()) {
        std::int64_t best = 0;
        double best_score = -1.0;
        for (std::size_t j = 0; j < scores_.size(); ++j)
            if (!taken[j] && scores_[j] > best_score) {
                best_score = scores_[j];
                best = static_cast<std::int64_t>(j);
            }
        return best;
    }
    std::int64_t best = -1;
    for (std::int64_t j = 0; j < std::ssize(scores_); ++j)
        if (!taken[static_cast<std::size_t>(j)] && (best < 0 || precedes(j, best))) best = j;
    return best;
}

void CompressAttentionScores::select(std::int64_t s, std::int64_t kv_head) {
    scores_.clear();
    for (std::int64_t j = 0; j < problem_.candidates(sequence_.num_keys); ++j) {
        double score = sum_over_heads(j);
        if (is_forced(s, j)) {
            if (on<"NCA-x06">())
                score = -1.0;
            else
                score = on<"NCA-x07">() ? FLT_MAX * (1.0 + score / 1024) : FLT_MAX;
        }
        scores_.push_back(score);
    }
    std::vector<bool> taken(scores_.size());
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < problem_.list_size; ++i) {
        list.push_back(best_left(taken));
        taken[static_cast<std::size_t>(list.back())] = true;
    }
    if (on<"NCA-x04">()) std::sort(list.begin(), list.end());
    for (std::int64_t i = 0; i < problem_.list_size; ++i) {
        const std::int64_t block = list[static_cast<std::size_t>(i)];
        *problem_.topk.at(sequence_.first_query + s, kv_head, i) =
            static_cast<std::int32_t>(on<"NCA-x24">() ? sequence_.first_block + block : block);
    }
}

}  // namespace attncheck::mutants
