// The judgement on lists of selected blocks: what is right, what is wrong and why, and ties.
#include "ref/operators/nsa_compress_attention_selection.h"

#include <gtest/gtest.h>

#include "tests/ref/nsa_compress_attention_kernel.h"

namespace attncheck::ref {
namespace {

using List = std::vector<std::int64_t>;

std::string reason(const BlockScores& scores, const List& list) {
    const ListJudgement judgement = judge_list(scores, list);
    if (!judgement.fault) return "";
    return std::to_string(judgement.fault->position) + ": " + judgement.fault->reason;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

List canonical(const BlockScores& scores, std::int64_t count) {
    const auto list = select_blocks(scores, count);
    return {list.begin(), list.end()};
}

/// Blocks of one key each, with scores as the weights behind the first: P[j + 1].
ScoreProblem plain_problem(const Values& scores, std::int64_t count) {
    Values weights{1};
    weights.insert(weights.end(), scores.begin(), scores.end());
    return problem_of_weights(weights, 1, 1, count);
}

// Scores 1, 4, 2, 3 of 11, and 0 for the window of the key that does not exist.
TEST(SelectionJudge, NamesEntryScoreAndBlock) {
    const BlockScores scores = plain_problem({1, 4, 2, 3}, 3).scores(0, 0);
    EXPECT_EQ(canonical(scores, 5), (List{1, 3, 2, 0, 4}));
    EXPECT_EQ(reason(scores, {1, 3, 2}), "");
    EXPECT_EQ(reason(scores, {1, 3}), "");
    const std::string late = reason(scores, {1, 2, 3});
    EXPECT_EQ(late.find("1: 2: score 0.181818182 is below 0.272727273 of block 3, which is not "
                        "listed before it, by more than the error "),
              0u)
        << late;
    EXPECT_TRUE(has(reason(scores, {1, 3, 4}), "2: 4: score 0 is below 0.181818182 of block 2"));
    EXPECT_TRUE(has(reason(scores, {0, 3, 2}), "0: 0: score 0.0909090909 is below 0.363636364"));
    EXPECT_EQ(reason(scores, {1, 1, 2}), "1: 1: is listed twice");
    EXPECT_EQ(reason(scores, {1, 3, 5}), "2: 5: not one of the blocks 0..4 of the sequence");
    EXPECT_TRUE(has(reason(scores, {-1, 3, 2}), "0: -1: not one of the blocks"));
    EXPECT_EQ(reason(scores, {1, 3, 2, 0, 4}), "");
    EXPECT_THROW(select_blocks(scores, 6), std::invalid_argument);
}

// Scores closer than their error may stand either way round; farther apart they may not.
TEST(SelectionJudge, AcceptsWhatTheErrorAllows) {
    const double bound = plain_problem({2, 2 + 1e-9}, 1).scores(0, 0).difference_bound(0, 1);
    EXPECT_GT(bound, 1e-8);
    for (const double apart : {0.3, 0.9, 1.2, 3.0}) {
        const BlockScores scores = plain_problem({2, 2 + apart * bound * 5}, 1).scores(0, 0);
        EXPECT_GT(scores.score[1], scores.score[0]);
        const ListJudgement judgement = judge_list(scores, List{0});
        EXPECT_EQ(judgement.fault.has_value(), apart > 1) << apart;
        EXPECT_NEAR(judgement.worst_ratio, apart, 0.05 * apart);
        EXPECT_EQ(judge_list(scores, List{1}).worst_ratio, 0);
    }
}

// Forced blocks come first, in ascending order, and nothing outranks them; of too many the smallest
// numbers stay.
TEST(SelectionJudge, PutsForcedBlocksFirst) {
    ScoreProblem p = plain_problem({1, 4, 2, 3, 9, 8}, 4);
    p.topk = {0, 0, 1, 0, 0, 0, 1};
    BlockScores scores = p.scores(0, 0);
    EXPECT_EQ(canonical(scores, 4), (List{2, 6, 4, 5}));
    EXPECT_EQ(reason(scores, {2, 6, 4, 5}), "");
    EXPECT_EQ(reason(scores, {6, 2, 4, 5}),
              "0: 6: is forced as block 2, which has the smaller number and is not listed before "
              "it");
    EXPECT_EQ(reason(scores, {2, 4, 6, 5}),
              "1: 4: block 6 is forced, this one is not, and block 6 is not listed before it");
    EXPECT_TRUE(has(reason(scores, {4, 5, 1, 3}), "0: 4: block 2 is forced"));
    p.topk.assign(7, 1);
    scores = p.scores(0, 0);
    EXPECT_EQ(canonical(scores, 3), (List{0, 1, 2}));
    EXPECT_TRUE(has(reason(scores, {0, 1, 3}), "is forced as block 2"));
    // Forced although nothing is visible.
    p.atten.assign(7, 1), p.topk = {0, 0, 0, 0, 0, 1, 0};
    EXPECT_EQ(canonical(p.scores(0, 0), 4), (List{5, 0, 1, 2}));
    EXPECT_TRUE(has(reason(p.scores(0, 0), {0, 1, 2, 5}), "block 5 is forced"));
}

// Zero scores of hidden keys are ties for every kernel, after anything that is visible.
TEST(SelectionJudge, OrdersHiddenBlocksByNumber) {
    ScoreProblem p = plain_problem({1, 1, 2, 3, 4}, 4);
    p.atten = {1, 1, 0, 1, 1, 0};
    const BlockScores scores = p.scores(0, 0);
    EXPECT_EQ(canonical(scores, 6), (List{4, 1, 0, 2, 3, 5}));
    EXPECT_EQ(reason(scores, {4, 1, 0, 2}), "");
    EXPECT_EQ(reason(scores, {4, 1, 2, 0}),
              "2: 2: its score 0 is tied with that of block 0, which has the smaller number and is "
              "not listed before it");
    EXPECT_TRUE(has(reason(scores, {4, 0, 1, 2}), "score 0 is below"));
}

// Equal logits: with the lattice grant blocks whose windows are alike are tied, whatever the number
// of keys; others only by their error. Without it nothing is demanded of their order.
TEST(SelectionJudge, HoldsTiesOfEqualLogitsToTheirOrder) {
    for (const std::int64_t keys : {8, 9, 11, 16})
        for (const double query : {0.0, 192.0}) {
            ScoreProblem p = problem_of_weights(Values(static_cast<std::size_t>(keys), 1), 2, 1, 3);
            p.query = {query}, p.key.assign(static_cast<std::size_t>(keys), 1);
            const BlockScores strict = p.scores(0, 0, Grant::lattice), wide = p.scores(0, 0);
            const std::int64_t last = strict.blocks() - 1;
            ASSERT_GE(last, 3);
            const List list{0, 1, 2};
            EXPECT_EQ(canonical(strict, 3), list) << keys;
            EXPECT_EQ(reason(strict, list), "");
            EXPECT_TRUE(has(reason(strict, {1, 0, 2}), "tied with that of block 0")) << keys;
            EXPECT_EQ(reason(wide, {1, 0, 2}), "") << keys;
            // The last window misses a key that does not exist.
            for (const BlockScores* each : {&strict, &wide})
                EXPECT_TRUE(has(reason(*each, {0, 1, last}), "is below")) << keys;
        }
}

// A key lower by 200 or more vanishes as a hidden one does: {top, gone} ties with {top, hidden},
// but not with {gone, top}, whose sum another order of the window may round otherwise.
TEST(SelectionJudge, TakesVanishingKeysForHiddenOnes) {
    ScoreProblem p = problem_of_weights(Values(8, 1), 2, 1, 2);
    p.query = {192};
    p.key = {1, 1, 1, -1, 1, 1, -1, 1};  // windows {2,1} {4,3} {6,5} {8,7}
    p.atten = {0, 0, 0, 0, 0, 0, 0, 0};
    const BlockScores strict = p.scores(0, 0, Grant::lattice);
    EXPECT_FALSE(strict.tied(0, 1));
    EXPECT_FALSE(strict.tied(1, 2));
    EXPECT_EQ(canonical(strict, 4), (List{0, 1, 2, 3}));
    p.key[6] = 1, p.key[5] = -1;
    EXPECT_TRUE(p.scores(0, 0, Grant::lattice).tied(1, 2));
    p.atten[5] = 1;
    EXPECT_TRUE(p.scores(0, 0, Grant::lattice).tied(1, 2));
    p.key[3] = 0.99;  // lower by 2 only
    EXPECT_FALSE(p.scores(0, 0, Grant::lattice).tied(1, 2));
}

// A block of vanishing keys scores 0 in fp32 and more in binary64, one of hidden keys 0 in both: either order is right.
TEST(SelectionJudge, DoesNotOrderWhatFp32FlushesToZero) {
    ScoreProblem p = plain_problem({1, 1, 1, 1}, 4);
    p.key = {0, 0, -300, -300, -300};
    p.atten = {0, 0, 1, 0, 0};
    const BlockScores strict = p.scores(0, 0, Grant::lattice);
    EXPECT_GT(strict.score[2], strict.score[1]);
    EXPECT_EQ(canonical(strict, 4), (List{0, 1, 2, 3}));
    EXPECT_EQ(reason(strict, {0, 1, 2, 3}), "");
    EXPECT_EQ(reason(strict, {0, 2, 1, 3}), "");
    EXPECT_EQ(reason(p.scores(0, 0), {0, 2, 1, 3}), "");
    p.atten = {0, 0, 1, 1, 0};  // two blocks of hidden keys: 0 in any arithmetic
    EXPECT_TRUE(has(reason(p.scores(0, 0, Grant::lattice), {0, 2, 1, 3}), "tied"));
}

// NaN scores ask for blocks of the sequence, each once, and nothing else.
TEST(SelectionJudge, AsksNoOrderOfNan) {
    ScoreProblem p = plain_problem({1, 4, 2, 3}, 3);
    p.key[1] = NAN, p.topk = {0, 0, 0, 0, 1};
    const BlockScores scores = p.scores(0, 0);
    for (const List& list : {List{0, 1, 2}, List{3, 0, 4}, List{2, 3, 1}})
        EXPECT_EQ(reason(scores, list), "");
    EXPECT_EQ(reason(scores, {0, 0, 1}), "1: 0: is listed twice");
    EXPECT_TRUE(has(reason(scores, {0, 1, 5}), "not one of"));
    EXPECT_EQ(std::ssize(canonical(scores, 3)), 3);
}

/// Everything of one problem by the judge.
SelectionJudgement judge(const ScoreProblem& p, const List& indices,
                         Grant grant = Grant::rounding) {
    ImportanceScores scores(p.shape, p.inputs(), p.masks(), p.type, grant);
    return judge_selection(scores, indices);
}

List to_list(const std::vector<std::int32_t>& indices) { return {indices.begin(), indices.end()}; }

/// The acceptance example: 1024 queries on 64 equal keys, 4 keys and 2 strides per block.
ScoreProblem acceptance_problem(std::int64_t queries) {
    ScoreProblem p;
    p.type = Dtype::fp16;
    CompressAttentionShape& s = p.shape;
    s.query_lengths = {queries}, s.kv_lengths = {64}, s.total_queries = queries, s.total_keys = 64;
    s.query_heads = 16, s.kv_heads = 4, s.head_dim = 192, s.value_dim = 128;
    s.compress_block = 32, s.compress_stride = 16, s.select_block = 64, s.select_count = 16;
    const auto rows = static_cast<std::size_t>(queries);
    p.query.assign(rows * 16 * 192, 1), p.key.assign(64 * 4 * 192, 1);
    p.value.assign(64 * 4 * 128, 1);
    p.atten.assign(rows * 64, 0), p.topk.assign(rows * 16, 0);
    return p;
}

// Statistics 192 and 64, output 1. Each block scores 8/64 per head, but the last one misses the key
// that does not exist: 7/64 (contract.md, decision 7: the form of nsa.md 6.4 counts blocks from 1).
TEST(Selection, MatchesTheNumbersOfTheAcceptanceExample) {
    const ScoreProblem p = acceptance_problem(1);
    const auto out =
        expected_attention({p.shape.dense(), compress_columns(p.shape, p.masks()), p.inputs()},
                           p.type, Grant::lattice);
    EXPECT_EQ(out.row_max.value, Values(16, 192));
    EXPECT_EQ(out.row_sum.value, Values(16, 64));
    EXPECT_EQ(out.output.value, Values(16 * 128, 1));
    const BlockScores scores = p.scores(0, 3, Grant::lattice);
    ASSERT_EQ(scores.blocks(), 16);
    for (std::size_t j = 0; j < 16; ++j) {
        EXPECT_EQ(scores.head_score[j], j == 15 ? 7.0 / 64 : 8.0 / 64);
        EXPECT_EQ(scores.score[j], j == 15 ? 28.0 / 64 : 32.0 / 64);
    }
}

// The list is 0..15: ties, and the lowest score last. Another order of the tied ones is wrong where
// ties are held to their order, the last block anywhere else always.
TEST(Selection, JudgesTheListsOfTheAcceptanceExample) {
    const ScoreProblem p = acceptance_problem(1024);
    List all;
    for (int i = 0; i < 1024 * 4 * 16; ++i) all.push_back(i % 16);
    const SelectionJudgement right = judge(p, all, Grant::lattice);
    EXPECT_TRUE(right.right) << right.message;
    EXPECT_EQ(right.judged, 4096u);
    EXPECT_EQ(right.unordered, 0u);
    std::swap(all[16 * 4 * 5 + 3], all[16 * 4 * 5 + 4]);
    EXPECT_EQ(judge(p, all, Grant::lattice).message,
              "topk_indices[t=5,n=0,k=3] = 4: its score 0.5 is tied with that of block 3, which "
              "has the smaller number and is not listed before it");
    EXPECT_TRUE(judge(p, all).right);  // within rounding
    for (std::size_t i = 0; i < all.size(); i += 16) std::swap(all[i + 2], all[i + 15]);
    const SelectionJudgement wrong = judge(p, all);
    EXPECT_EQ(wrong.message.find("topk_indices[t=0,n=0,k=2] = 15: score 0.4375 is below 0.5 of "),
              0u)
        << wrong.message;
    EXPECT_EQ(wrong.wrong, 4096u);
}

// Queries before the first compressed key, the first that sees it, and forced blocks as in the
// paper: a causal mask over keys of 32 tokens in strides of 16.
TEST(Selection, FollowsTheCausalMaskOfThePaper) {
    ScoreProblem p;
    CompressAttentionShape& s = p.shape;
    s.query_lengths = {96}, s.kv_lengths = {5}, s.total_queries = 96, s.total_keys = 5;
    s.compress_block = 32, s.compress_stride = 16, s.select_block = 32, s.select_count = 2;
    p.query.assign(96, 1), p.key = {0.5, -0.25, 1, 0.75, 0.125}, p.value.assign(5, 1);
    for (std::int64_t t = 0; t < 96; ++t)
        for (std::int64_t i = 0; i < 5; ++i) p.atten.push_back(i * 16 + 31 > t);
    const auto list = p.selected_blocks();
    for (const std::size_t t : {0, 30, 31}) {
        EXPECT_EQ(list[2 * t], 0) << t;
        EXPECT_EQ(list[2 * t + 1], 1) << t;
    }
    EXPECT_EQ(p.scores(30, 0).score, (Values{0, 0, 0}));
    EXPECT_EQ(p.scores(31, 0).score, (Values{1, 0, 0}));  // one place in the window of block 0
    EXPECT_EQ(p.scores(62, 0).score[2], 0);
    EXPECT_EQ(p.scores(62, 0).bound[2], 0);
    EXPECT_GT(p.scores(95, 0).score[2], 0);
    for (std::int64_t t = 0; t < 96; ++t)
        for (std::int64_t j = 0; j < 3; ++j)
            p.topk.push_back(j == 0 || j == t / 32 || j == std::max<std::int64_t>(0, t / 32 - 1));
    const auto forced = p.selected_blocks();
    for (std::size_t t = 0; t < 96; ++t) {
        EXPECT_EQ(forced[2 * t], 0);
        EXPECT_EQ(forced[2 * t + 1], 1);  // of three forced blocks the local one is lost
    }
}

// Rows behind the last sequence hold zeros; sequences too short for the list are refused.
TEST(Selection, CoversRowsWithoutASequence) {
    ScoreProblem p = plain_problem({1, 4, 2, 3}, 3);
    p.shape.total_queries = 2, p.query = {1, 1};
    EXPECT_EQ(to_list(p.selected_blocks()), (List{1, 3, 2, 0, 0, 0}));
    EXPECT_TRUE(judge(p, {1, 3, 2, 0, 0, 0}).right);
    const SelectionJudgement wrong = judge(p, {1, 3, 2, 0, -1, 0});
    EXPECT_EQ(wrong.message,
              "topk_indices[t=1,n=0,k=1] = -1: a row behind the last sequence holds zeros");
    EXPECT_EQ(wrong.index, 4u);
    EXPECT_EQ(wrong.judged, 1u);
    EXPECT_THROW(judge(p, {1, 3, 2}), std::invalid_argument);
    p.shape.select_count = 6;
    EXPECT_THROW(p.selected_blocks(), std::invalid_argument);
}

// The lists of emulated fp32 kernels are never rejected, nor is the canonical one.
TEST(SelectionJudge, AcceptsEmulatedKernels) {
    Random random(17);
    int inverted = 0, lists = 0;
    double worst = 0;
    for (int kind = 0; kind < static_cast<int>(ScoreKind::count); ++kind)
        for (int i = 0; i < 200; ++i) {
            const ScoreProblem p =
                draw_score_problem(random, i % 2 ? Dtype::fp16 : Dtype::bf16,
                                   static_cast<ScoreKind>(kind), i % 10 == 0 ? 200 : 40);
            const ScoreMethod method = draw_score_method(random);
            const ScoreKernel kernel(p, method);
            List all;
            for (std::int64_t t = 0; t < p.shape.total_queries; ++t)
                for (std::int64_t n = 0; n < p.shape.kv_heads; ++n, ++lists) {
                    const List list = kernel.list(t, n);
                    all.insert(all.end(), list.begin(), list.end());
                }
            const List exact = to_list(p.selected_blocks());
            for (const Grant grant : {Grant::rounding, Grant::lattice}) {
                EXPECT_EQ(judge(p, exact, grant).message, "") << kScoreKindNames[kind] << i;
                const SelectionJudgement judgement = judge(p, all, grant);
                EXPECT_EQ(judgement.message, "")
                    << kScoreKindNames[kind] << ' ' << i << ' ' << method.text();
                EXPECT_EQ(judgement.unordered, 0u);
                worst = std::max(worst, judgement.worst_ratio);
            }
            inverted += all != exact;
        }
    EXPECT_GT(lists, 2000);
    EXPECT_GT(inverted, 20);  // some lists do differ from the exact ones
    RecordProperty("worst_ratio", std::to_string(worst));
    std::printf("%d of 1600 problems with another list, worst ratio %.3f\n", inverted, worst);
}

// Ties broken towards the larger number show on every list of equal logits.
TEST(SelectionJudge, CatchesTheWrongTieOrder) {
    ScoreProblem p = problem_of_weights(Values(12, 1), 2, 1, 3);
    p.query = {0};
    EXPECT_EQ(to_list(p.selected_blocks()), (List{0, 1, 2}));
    EXPECT_TRUE(judge(p, {0, 1, 2}, Grant::lattice).right);
    EXPECT_FALSE(judge(p, {4, 3, 2}, Grant::lattice).right);
    EXPECT_FALSE(judge(p, {0, 1, 3}, Grant::lattice).right);
    // Block 0 fills what is left when nothing is visible.
    p.atten.assign(12, 1);
    EXPECT_TRUE(has(judge(p, {0, 0, 0}).message, "k=1] = 0: is listed twice"));
    EXPECT_TRUE(judge(p, {0, 1, 2}).right);
}

}  // namespace
}  // namespace attncheck::ref
