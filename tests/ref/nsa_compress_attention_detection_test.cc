// Wrong kernels of NsaCompressAttention, from the list of known bugs: in which share of rows their
// list of blocks is rejected.
#include <gtest/gtest.h>

#include <functional>

#include "tests/ref/nsa_compress_attention_kernel.h"

namespace attncheck::ref {
namespace {

/// The logits of each head of a group, [G][Cmp].
using Logits = std::vector<Values>;
/// The group scores that a kernel takes for the true ones.
using WrongScores = std::function<Values(const CompressAttentionShape&, const Logits&)>;
/// What a kernel reads as P[i], in range or not.
using ReadProb = std::function<double(const Values& prob, std::int64_t i)>;

double in_range(const Values& prob, std::int64_t i) {
    return i >= 0 && i < std::ssize(prob) ? prob[static_cast<std::size_t>(i)] : 0;
}

Values exponentials(const Values& logits, bool normalised) {
    const double max = *std::max_element(logits.begin(), logits.end());
    Values e;
    double sum = 0;
    for (const double s : logits) sum += e.emplace_back(std::exp(s - max));
    if (normalised)
        for (double& p : e) p /= sum;
    return e;
}

/// The double sum of one head with whatever `read` gives, added to the scores.
void add_windows(const CompressAttentionShape& s, const Values& prob, const ReadProb& read,
                 Values& scores) {
    const std::int64_t big = s.keys_per_select(), small = s.strides_per_key();
    scores.resize(static_cast<std::size_t>(s.select_blocks(std::ssize(prob))));
    for (std::int64_t j = 0; j < std::ssize(scores); ++j)
        for (std::int64_t m = 0; m < big; ++m)
            for (std::int64_t n = 0; n < small; ++n)
                scores[static_cast<std::size_t>(j)] += read(prob, big * (j + 1) - m - n);
}

WrongScores reading(const ReadProb& read) {
    return [=](const CompressAttentionShape& s, const Logits& logits) {
        Values scores;
        for (const Values& head : logits) add_windows(s, exponentials(head, true), read, scores);
        return scores;
    };
}

/// The share of rows whose list of at most six blocks is rejected.
double rejected(const WrongScores& wrong_scores) {
    Random random(19);
    int rows = 0, wrong = 0;
    while (rows < 300) {
        ScoreProblem p = draw_score_problem(random, Dtype::bf16, ScoreKind::normal, 90);
        p.topk.clear(), p.atten.clear();
        const CompressAttentionShape& s = p.shape;
        if (s.keys_per_select() < 2 || s.strides_per_key() < 2 || s.group() < 2) continue;
        ImportanceScores scores(s, p.inputs(), p.masks(), p.type);
        for (std::int64_t t = 0; t < s.total_queries; ++t)
            for (std::int64_t n = 0; n < s.kv_heads; ++n) {
                const BlockScores exact = scores(t, n);
                if (exact.blocks() < 8) continue;
                Logits logits;
                for (std::int64_t g = 0; g < s.group(); ++g)
                    logits.push_back(p.logits(t, n * s.group() + g));
                BlockScores taken = exact;
                taken.score = wrong_scores(s, logits);
                const auto list = select_blocks(taken, 6);
                ++rows;
                wrong += judge_list(exact, std::vector<std::int64_t>(list.begin(), list.end()))
                             .fault.has_value();
            }
    }
    return wrong / static_cast<double>(rows);
}

// What the shares below are measured against.
TEST(SelectionDetection, AcceptsTheRightScores) { EXPECT_EQ(rejected(reading(in_range)), 0); }

// NCA-03: a negative index counts as key 0.
TEST(SelectionDetection, SeesAClampedIndex) {
    EXPECT_GT(rejected(reading([](const Values& p, std::int64_t i) {
                  return in_range(p, std::max<std::int64_t>(i, 0));
              })),
              0.05);
}

// NCA-04: the last block reads on into another row, for which the start of this one stands.
TEST(SelectionDetection, SeesAReadBehindTheRow) {
    EXPECT_GT(rejected(reading([](const Values& p, std::int64_t i) {
                  return in_range(p, i >= std::ssize(p) ? i - std::ssize(p) : i);
              })),
              0.1);
}

// The geometric overlap instead of the window that the operator defines.
TEST(SelectionDetection, SeesAWindowThatIsOneKeyEarly) {
    EXPECT_GT(rejected(reading([](const Values& p, std::int64_t i) { return in_range(p, i - 1); })),
              0.9);
}

// NCA-15: exp(s - m) is summed over the group without the row sums.
TEST(SelectionDetection, SeesMissingRowSums) {
    EXPECT_GT(rejected([](const CompressAttentionShape& s, const Logits& logits) {
                  Values scores;
                  for (const Values& head : logits)
                      add_windows(s, exponentials(head, false), in_range, scores);
                  return scores;
              }),
              0.7);
}

// NCA-19: P from unscaled logits.
TEST(SelectionDetection, SeesAMissingScale) {
    EXPECT_GT(rejected([](const CompressAttentionShape& s, const Logits& logits) {
                  Values scores;
                  for (Values head : logits) {
                      for (double& x : head) x *= std::sqrt(2 + static_cast<double>(s.head_dim));
                      add_windows(s, exponentials(head, true), in_range, scores);
                  }
                  return scores;
              }),
              0.9);
}

// NCA-16: blocks in chunks of four; the keys before a chunk are not loaded.
TEST(SelectionDetection, SeesAMissingHalo) {
    EXPECT_GT(rejected([](const CompressAttentionShape& s, const Logits& logits) {
                  Values scores;
                  for (const Values& head : logits) {
                      const Values prob = exponentials(head, true);
                      Values whole;
                      add_windows(s, prob, in_range, whole);
                      for (std::size_t j = 4; j < whole.size(); j += 4) {
                          const std::int64_t last =
                              s.keys_per_select() * static_cast<std::int64_t>(j + 1);
                          for (std::int64_t m = 0; m < s.keys_per_select(); ++m)
                              for (std::int64_t n = 0; n < s.strides_per_key(); ++n)
                                  if (m + n > s.keys_per_select() - 1)
                                      whole[j] -= in_range(prob, last - m - n);
                      }
                      scores.resize(whole.size());
                      for (std::size_t j = 0; j < whole.size(); ++j) scores[j] += whole[j];
                  }
                  return scores;
              }),
              0.3);
}

// NCA-05 and NCA-06: a head of the group is left out, or one of another group taken in, for which
// the reversed first one stands.
TEST(SelectionDetection, SeesTheWrongHeads) {
    for (const bool other : {false, true})
        EXPECT_GT(rejected([other](const CompressAttentionShape& s, const Logits& logits) {
                      Values scores;
                      for (std::size_t g = other ? 0 : 1; g < logits.size(); ++g)
                          add_windows(s, exponentials(logits[g], true), in_range, scores);
                      if (!other) return scores;
                      const Values reversed(logits[0].rbegin(), logits[0].rend());
                      add_windows(s, exponentials(reversed, true), in_range, scores);
                      return scores;
                  }),
                  0.7)
            << other;
}

// Sums of P as rounded for its product with V: the scores are those of the fp32 P.
TEST(SelectionDetection, SeesRoundedProbabilities) {
    EXPECT_GT(rejected(reading([](const Values& p, std::int64_t i) {
                  return decode(Dtype::bf16, encode(Dtype::bf16, in_range(p, i)));
              })),
              0.01);
}

// NCA-12: the row length of the mask taken from the sequence instead of the longest one.
TEST(SelectionDetection, SeesTheWrongRowLengthOfTheMask) {
    Random random(23);
    int problems = 0, seen = 0;
    while (problems < 60) {
        ScoreProblem p = draw_score_problem(random, Dtype::fp16, ScoreKind::normal, 60);
        if (p.atten.empty() || p.shape.kv_lengths.size() < 2) continue;
        const std::int64_t own = p.shape.kv_lengths[1], longest = p.shape.longest_cmp();
        if (own >= longest || own < 8 || p.shape.query_lengths[1] < 2) continue;
        const std::int64_t last = p.shape.query_lengths[0] + 1;  // position 1 of sequence 1
        ScoreProblem wrong = p;
        for (std::int64_t i = 0; i < own; ++i)
            wrong.atten[static_cast<std::size_t>(longest + i)] =
                p.atten[static_cast<std::size_t>(own + i)];
        const auto list = select_blocks(wrong.scores(last, 0), wrong.shape.select_count);
        ++problems;
        seen += judge_list(p.scores(last, 0), std::vector<std::int64_t>(list.begin(), list.end()))
                    .fault.has_value();
    }
    EXPECT_GT(seen, 30);
    RecordProperty("seen_of_60", seen);
}

}  // namespace
}  // namespace attncheck::ref
