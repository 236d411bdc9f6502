#include "ref/operators/nsa_compress_attention_selection.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "ref/attention/attention_roundoff.h"

namespace attncheck::ref {
namespace {

/// Scores below are 0 in fp32, as are those of hidden keys.
constexpr double kVanished = 0x1p-150;

std::string show_short(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

/// One entry against every block that is not listed before it.
class EntryJudge {
public:
    EntryJudge(const BlockScores& scores, std::vector<std::uint8_t>& listed, double& worst_ratio)
        : scores_(scores), listed_(listed), worst_ratio_(worst_ratio) {}

    /// Why the entry is wrong, empty when it is right.
    std::string judge(std::int64_t block) {
        const std::string number = std::to_string(block) + ": ";
        if (block < 0 || block >= scores_.blocks())
            return number + "not one of the blocks 0.." + std::to_string(scores_.blocks() - 1) +
                   " of the sequence";
        if (listed_[static_cast<std::size_t>(block)]) return number + "is listed twice";
        listed_[static_cast<std::size_t>(block)] = 1;
        if (!scores_.ordered) return "";
        std::string reason;
        double highest = -std::numeric_limits<double>::infinity();
        for (std::int64_t other = 0; other < scores_.blocks(); ++other) {
            if (listed_[static_cast<std::size_t>(other)]) continue;
            const double score = rank(other);
            if (score <= highest) continue;
            const std::string found = why_not_before(block, other);
            if (found.empty()) continue;
            highest = score;
            reason = number + found;
        }
        return reason;
    }

private:
    bool forced(std::int64_t block) const {
        return scores_.forced[static_cast<std::size_t>(block)] != 0;
    }
    double score(std::int64_t block) const {
        return scores_.score[static_cast<std::size_t>(block)];
    }
    double rank(std::int64_t block) const {
        return forced(block) ? std::numeric_limits<double>::infinity() : score(block);
    }

    /// Empty when `block` may precede `other`.
    std::string why_not_before(std::int64_t block, std::int64_t other) {
        const double mine = rank(block), theirs = rank(other);
        const std::string other_name = "block " + std::to_string(other);
        if (forced(other) && !forced(block))
            return other_name + " is forced, this one is not, and " + other_name +
                   " is not listed before it";
        if (theirs < mine && !scores_.symmetric_ties) return "";
        if (other < block && scores_.tied(block, other))
            return (forced(block)
                        ? "is forced as " + other_name
                        : "its score " + show_short(mine) + " is tied with that of " + other_name) +
                   ", which has the smaller number and is not listed before it";
        if (theirs <= mine) return "";
        const double bound = scores_.difference_bound(block, other), difference = theirs - mine;
        const double ratio = difference / bound;  // bound 0: infinite
        worst_ratio_ = std::max(worst_ratio_, ratio);
        if (ratio <= 1) return "";
        return "score " + show_short(mine) + " is below " + show_short(theirs) + " of " +
               other_name + ", which is not listed before it, by more than the error " +
               show_short(bound);
    }

    const BlockScores& scores_;
    std::vector<std::uint8_t>& listed_;
    double& worst_ratio_;
};

}  // namespace

std::vector<std::int32_t> select_blocks(const BlockScores& scores, std::int64_t count) {
    if (count < 0 || count > scores.blocks())
        throw std::invalid_argument("compress attention: select_count " + std::to_string(count) +
                                    " of " + std::to_string(scores.blocks()) + " blocks");
    const auto rank = [&](std::int32_t block) {
        const auto j = static_cast<std::size_t>(block);
        if (scores.forced[j]) return std::numeric_limits<double>::infinity();
        if (std::isnan(scores.score[j])) return -1.0;
        return scores.score[j] < kVanished ? 0.0 : scores.score[j];
    };
    std::vector<std::int32_t> order(scores.score.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const double left = rank(a), right = rank(b);
        return left == right ? a < b : left > right;
    });
    order.resize(static_cast<std::size_t>(count));
    return order;
}

ListJudgement judge_list(const BlockScores& scores, std::span<const std::int64_t> list) {
    ListJudgement judgement;
    std::vector<std::uint8_t> listed(scores.score.size());
    EntryJudge judge(scores, listed, judgement.worst_ratio);
    for (std::size_t k = 0; k < list.size(); ++k) {
        std::string reason = judge.judge(list[k]);
        if (reason.empty()) continue;
        judgement.fault = SelectionFault{static_cast<std::int64_t>(k), std::move(reason)};
        return judgement;
    }
    return judgement;
}

SelectionJudgement judge_selection(ImportanceScores& scores,
                                   std::span<const std::int64_t> indices) {
    const CompressAttentionShape& shape = scores.shape();
    const std::int64_t count = shape.select_count;
    require_elements("topk_indices", indices.size(), shape.total_queries * shape.kv_heads * count);
    SelectionJudgement all;
    for (std::int64_t t = 0; t < shape.total_queries; ++t)
        for (std::int64_t n = 0; n < shape.kv_heads; ++n) {
            const auto first = static_cast<std::size_t>((t * shape.kv_heads + n) * count);
            const auto list = indices.subspan(first, static_cast<std::size_t>(count));
            ListJudgement one;
            std::optional<BlockScores> row;
            if (scores.query(t).sequence < 0) {
                const auto wrong =
                    std::find_if(list.begin(), list.end(), [](std::int64_t i) { return i != 0; });
                if (wrong != list.end())
                    one.fault = SelectionFault{
                        wrong - list.begin(),
                        std::to_string(*wrong) + ": a row behind the last sequence holds zeros"};
            } else {
                row = scores(t, n);
                one = judge_list(*row, list);
                ++all.judged;
                all.unordered += !row->ordered;
            }
            all.worst_ratio = std::max(all.worst_ratio, one.worst_ratio);
            if (!one.fault) continue;
            ++all.wrong;
            if (!all.right) continue;
            all.right = false;
            all.index = first + static_cast<std::size_t>(one.fault->position);
            all.message = "topk_indices[t=" + std::to_string(t) + ",n=" + std::to_string(n) +
                          ",k=" + std::to_string(one.fault->position) + "] = " + one.fault->reason;
            if (!row) continue;
            all.got.assign(list.begin(), list.end());
            all.expected = select_blocks(*row, count);
        }
    return all;
}

}  // namespace attncheck::ref
