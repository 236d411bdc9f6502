// One broken rule at a time: status, parameter and message; then which of two broken rules decides.
#include <gtest/gtest.h>

#include <functional>

#include "constraint_arguments.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {


/// T = 128, N = 4, D = 32, lengths 64 and 64: C = 3 + 3.
CompressArguments legal_forward() {
    CompressArguments a;
    a.input = tensor({128, 4, 32});
    a.weight = tensor({32, 4});
    a.output = tensor({6, 4, 32});
    a.act_seq_len = int_array({64, 128});
    a.layout = "TND";
    a.compress_block_size = 32;
    a.compress_stride = 16;
    return a;
}

CompressGradArguments legal_grad() {
    CompressGradArguments a;
    a.output_grad = tensor({6, 4, 32});
    a.input = a.input_grad = tensor({128, 4, 32});
    a.weight = a.weight_grad = tensor({32, 4});
    a.act_seq_len = int_array({64, 128});
    a.layout = "TND";
    a.compress_block_size = 32;
    a.compress_stride = 16;
    return a;
}

/// A broken rule: what breaks it, the ruling, and words of the message.
template <class Arguments>
struct Broken {
    std::function<void(Arguments&)> spoil;
    int status;
    const char* parameter;
    std::vector<const char*> words;
};

void expect_ruling(const Ruling& ruling, int status, const char* parameter,
                   const std::vector<const char*>& words, const std::string& which) {
    EXPECT_EQ(ruling.status, status) << which << ": " << ruling.message;
    EXPECT_EQ(ruling.parameter, parameter) << which << ": " << ruling.message;
    EXPECT_EQ(ruling.message.find(parameter), 0u) << which << ": " << ruling.message;
    for (const char* word : words)
        EXPECT_NE(ruling.message.find(word), std::string::npos)
            << which << ": " << word << " not in " << ruling.message;
}

using Forward = CompressArguments;
using Grad = CompressGradArguments;

const std::vector<Broken<Forward>>& forward_rules() {
    static const std::vector<Broken<Forward>> rules{
        {[](Forward& a) { a.input.present = false; }, kAbsent, "input", {"absent"}},
        {[](Forward& a) { a.weight.present = false; }, kAbsent, "weight", {"absent"}},
        {[](Forward& a) { a.act_seq_len = {}; }, kAbsent, "act_seq_len", {"absent"}},
        {[](Forward& a) { a.act_seq_len = {false, -1, {}}; }, kAbsent, "act_seq_len", {"absent"}},
        {[](Forward& a) { a.layout.reset(); }, kAbsent, "layout", {"absent", "\"TND\""}},
        {[](Forward& a) { a.output.present = false; }, kAbsent, "output", {"absent"}},
        {[](Forward& a) { a.layout = "BSND"; }, kInvalid, "layout", {"\"BSND\"", "\"TND\""}},
        {[](Forward& a) { a.layout = "tnd"; }, kInvalid, "layout", {"\"tnd\""}},
        {[](Forward& a) { a.layout = "TNDX"; }, kInvalid, "layout", {"\"TNDX\""}},
        {[](Forward& a) { a.layout = ""; }, kInvalid, "layout", {"\"\""}},
        {[](Forward& a) { a.input = tensor({128, 128}); }, kInvalid, "input", {"rank 2", "rank 3"}},
        {[](Forward& a) { a.weight = tensor({32}); }, kInvalid, "weight", {"rank 1", "rank 2"}},
        {[](Forward& a) { a.output = tensor({6, 4, 32, 1}); }, kInvalid, "output", {"rank 4"}},
        {[](Forward& a) { a.input.dtype = kFp32; }, kInvalid, "input", {"fp32", "fp16", "bf16"}},
        {[](Forward& a) { a.input.dtype = -9; }, kInvalid, "input", {"-9", "unknown"}},
        {[](Forward& a) { a.weight.dtype = kBf16; }, kInvalid, "weight", {"bf16", "fp16"}},
        {[](Forward& a) { a.output.dtype = kFp32; }, kInvalid, "output", {"fp32", "fp16"}},
        {[](Forward& a) { a.compress_block_size = 0; }, kInvalid, "compress_block_size", {"is 0"}},
        {[](Forward& a) { a.compress_block_size = 40; }, kInvalid, "compress_block_size", {"40"}},
        {[](Forward& a) { a.compress_block_size = -16; }, kInvalid, "compress_block_size", {"-16"}},
        {[](Forward& a) { a.compress_block_size = 144; },
         kInvalid,
         "compress_block_size",
         {"144", "16..128"}},
        {[](Forward& a) { a.compress_stride = 0; }, kInvalid, "compress_stride", {"is 0"}},
        {[](Forward& a) { a.compress_stride = 24; }, kInvalid, "compress_stride", {"24", "16"}},
        {[](Forward& a) { a.compress_stride = kMin; }, kInvalid, "compress_stride", {"-922337"}},
        {[](Forward& a) { a.compress_stride = 48; }, kInvalid, "compress_stride", {"48", "32"}},
        {[](Forward& a) { a.act_seq_len_type = 1; }, kInvalid, "act_seq_len_type", {"is 1", "0"}},
        {[](Forward& a) { a.input.shape[0] = 0; }, kInvalid, "input", {"T = 0", "T >= 1"}},
        {[](Forward& a) { a.input.shape[0] = -1; }, kInvalid, "input", {"T = -1"}},
        {[](Forward& a) { a.input.shape[1] = 0; }, kInvalid, "input", {"N = 0", "1..128"}},
        {[](Forward& a) { a.input.shape[1] = 129; }, kInvalid, "input", {"N = 129"}},
        {[](Forward& a) { a.input.shape[2] = 40; }, kInvalid, "input", {"D = 40", "16..256"}},
        {[](Forward& a) { a.input.shape[2] = 272; }, kInvalid, "input", {"D = 272"}},
        {[](Forward& a) { a.input.shape[2] = 0; }, kInvalid, "input", {"D = 0"}},
        {[](Forward& a) { a.input.shape[0] = kMax / 128 + 1; }, kInvalid, "input", {"int64"}},
        {[](Forward& a) { a.weight.shape[0] = 48; }, kInvalid, "weight", {"[48,4]", "[32,4]"}},
        {[](Forward& a) { a.weight.shape[1] = 1; }, kInvalid, "weight", {"[32,1]", "[32,4]"}},
        {[](Forward& a) { a.act_seq_len = int_array({}); }, kInvalid, "act_seq_len", {"size 0"}},
        {[](Forward& a) { a.act_seq_len.size = -3; }, kInvalid, "act_seq_len", {"size -3"}},
        {[](Forward& a) { a.act_seq_len = int_array({-1, 128}); }, kInvalid, "act_seq_len", {"-1"}},
        {[](Forward& a) { a.act_seq_len = int_array({64, 63}); },
         kInvalid,
         "act_seq_len",
         {"63", "index 1", "64"}},
        {[](Forward& a) { a.act_seq_len = int_array({64, 129}); },
         kInvalid,
         "act_seq_len",
         {"129", "T = 128"}},
        {[](Forward& a) { a.act_seq_len = int_array({kMax, kMin}); }, kInvalid, "act_seq_len", {}},
        {[](Forward& a) { a.output.shape[0] = 7; }, kInvalid, "output", {"[7,4,32]", "[6,4,32]"}},
        {[](Forward& a) { a.output.shape[1] = 3; }, kInvalid, "output", {"[6,3,32]"}},
        {[](Forward& a) { a.output.shape[2] = 16; }, kInvalid, "output", {"[6,4,16]"}},
    };
    return rules;
}

const std::vector<Broken<Grad>>& grad_rules() {
    static const std::vector<Broken<Grad>> rules{
        {[](Grad& a) { a.output_grad.present = false; }, kAbsent, "output_grad", {"absent"}},
        {[](Grad& a) { a.input.present = false; }, kAbsent, "input", {"absent"}},
        {[](Grad& a) { a.weight.present = false; }, kAbsent, "weight", {"absent"}},
        {[](Grad& a) { a.act_seq_len = {false, 2, {}}; }, kAbsent, "act_seq_len", {"size 2"}},
        {[](Grad& a) { a.input_grad.present = false; }, kAbsent, "input_grad", {"absent"}},
        {[](Grad& a) { a.weight_grad.present = false; }, kAbsent, "weight_grad", {"absent"}},
        {[](Grad& a) { a.layout = "BSH"; }, kInvalid, "layout", {"\"BSH\"", "\"TND\""}},
        {[](Grad& a) { a.output_grad.rank = -5, a.output_grad.shape.clear(); },
         kInvalid,
         "output_grad",
         {"rank -5", "rank 3"}},
        {[](Grad& a) { a.input = tensor({}); }, kInvalid, "input", {"rank 0"}},
        {[](Grad& a) { a.weight = tensor({32, 4, 1}); }, kInvalid, "weight", {"rank 3"}},
        {[](Grad& a) { a.input_grad.rank = 1000000; }, kInvalid, "input_grad", {"rank 1000000"}},
        {[](Grad& a) { a.weight_grad = tensor({128}); }, kInvalid, "weight_grad", {"rank 1"}},
        {[](Grad& a) { a.input.dtype = 36; }, kInvalid, "input", {"fp8_e4m3fn"}},
        {[](Grad& a) { a.output_grad.dtype = kBf16; }, kInvalid, "output_grad", {"bf16", "fp16"}},
        {[](Grad& a) { a.weight.dtype = kFp32; }, kInvalid, "weight", {"fp32"}},
        {[](Grad& a) { a.input_grad.dtype = kFp32; }, kInvalid, "input_grad", {"fp32"}},
        {[](Grad& a) { a.weight_grad.dtype = kFp32; }, kInvalid, "weight_grad", {"fp32"}},
        {[](Grad& a) { a.compress_block_size = 20; }, kInvalid, "compress_block_size", {"20"}},
        {[](Grad& a) { a.compress_stride = -16; }, kInvalid, "compress_stride", {"-16"}},
        {[](Grad& a) { a.compress_stride = 32; }, kInvalid, "compress_stride", {"32", "less than"}},
        {[](Grad& a) { a.act_seq_len_type = kMin; }, kInvalid, "act_seq_len_type", {"-922337"}},
        {[](Grad& a) { a.input.shape[0] = 0; }, kInvalid, "input", {"T = 0"}},
        {[](Grad& a) { a.input.shape[1] = kMax; }, kInvalid, "input", {"N = 922337"}},
        {[](Grad& a) { a.input.shape[2] = 24; }, kInvalid, "input", {"D = 24"}},
        {[](Grad& a) { a.weight.shape[0] = 16; }, kInvalid, "weight", {"[16,4]", "[32,4]"}},
        {[](Grad& a) { a.act_seq_len = {false, -1, {}}; }, kInvalid, "act_seq_len", {"size -1"}},
        {[](Grad& a) { a.act_seq_len = int_array({}); }, kInvalid, "act_seq_len", {"size 0"}},
        {[](Grad& a) { a.act_seq_len = int_array({80, 64}); }, kInvalid, "act_seq_len", {"64", "80"}},
        {[](Grad& a) { a.act_seq_len = int_array({64, 144}); }, kInvalid, "act_seq_len", {"144"}},
        {[](Grad& a) { a.output_grad.shape[0] = 5; }, kInvalid, "output_grad", {"[6,4,32]"}},
        {[](Grad& a) { a.input_grad.shape[0] = 127; }, kInvalid, "input_grad", {"[128,4,32]"}},
        {[](Grad& a) { a.weight_grad.shape[1] = 5; }, kInvalid, "weight_grad", {"[32,4]"}},
    };
    return rules;
}

TEST(CompressRules, EachRejectsWithItsParameter) {
    int index = 0;
    for (const Broken<Forward>& rule : forward_rules()) {
        Forward a = legal_forward();
        rule.spoil(a);
        expect_ruling(rule_nsa_compress(a), rule.status, rule.parameter, rule.words,
                      "rule " + std::to_string(index++));
    }
}

TEST(CompressGradRules, EachRejectsWithItsParameter) {
    int index = 0;
    for (const Broken<Grad>& rule : grad_rules()) {
        Grad a = legal_grad();
        rule.spoil(a);
        expect_ruling(rule_nsa_compress_grad(a), rule.status, rule.parameter, rule.words,
                      "rule " + std::to_string(index++));
    }
}

TEST(CompressRules, AcceptTheLimits) {
    EXPECT_EQ(rule_nsa_compress(legal_forward()).message, "");
    Forward a = legal_forward();
    a.compress_stride = 32;  // equal to the block: legal in the forward only
    a.output.shape[0] = 4;
    EXPECT_EQ(rule_nsa_compress(a).message, "");
    a.act_seq_len = int_array({0, 0, 31, 62, 62, 93});  // no sequence holds a block
    a.output.shape[0] = 0;
    EXPECT_EQ(rule_nsa_compress(a).message, "");
    a.input = tensor({kMax / (128 * 256), 128, 256});
    a.weight = tensor({128, 128});
    a.compress_block_size = 128;
    a.act_seq_len = int_array({kMax / (128 * 256)});
    a.compress_stride = 16;
    a.output = tensor({(kMax / (128 * 256) - 128) / 16 + 1, 128, 256});
    for (TensorArgument* t : {&a.input, &a.weight, &a.output}) t->dtype = kBf16;
    EXPECT_EQ(rule_nsa_compress(a).message, "");
    a.compress_block_size = a.compress_stride = 16;
    a.input = tensor({1, 1, 16});
    a.weight = tensor({16, 1});
    a.output = tensor({0, 1, 16});
    a.act_seq_len = int_array({1});
    EXPECT_EQ(rule_nsa_compress(a).message, "");
}

TEST(CompressGradRules, AcceptAbsentLayoutAndLengths) {
    Grad a = legal_grad();
    a.act_seq_len = {};
    expect_ruling(rule_nsa_compress_grad(a), kInvalid, "output_grad", {"[7,4,32]"}, "no lengths");
    a = legal_grad();
    EXPECT_EQ(rule_nsa_compress_grad(a).message, "");
    a.layout.reset();
    EXPECT_EQ(rule_nsa_compress_grad(a).message, "");
    a.act_seq_len = {};  // one sequence of 128 tokens: 7 blocks
    a.output_grad.shape[0] = 7;
    EXPECT_EQ(rule_nsa_compress_grad(a).message, "");
    a.act_seq_len = int_array({0, 31});
    a.output_grad.shape[0] = 0;
    EXPECT_EQ(rule_nsa_compress_grad(a).message, "");
}

/// The tables above are in the order of the contract. With two rules broken at once the ruling is
/// that of the earlier one; spoilers that touch the same argument replace each other and are left
/// out.
template <class Arguments, class Rule>
void expect_first_decides(const std::vector<Broken<Arguments>>& rules, Arguments (*legal)(),
                          Rule&& rule) {
    int compared = 0;
    for (std::size_t i = 0; i < rules.size(); ++i)
        for (std::size_t j = i + 1; j < rules.size(); ++j) {
            if (std::string(rules[i].parameter) == rules[j].parameter) continue;
            Arguments a = legal();
            rules[i].spoil(a);
            const Ruling first = rule(a);
            rules[j].spoil(a);
            const Ruling both = rule(a);
            EXPECT_EQ(both.status, first.status) << i << ' ' << j;
            EXPECT_EQ(both.parameter, first.parameter) << i << ' ' << j;
            ++compared;
        }
    EXPECT_GT(compared, 400);  // of about 1000 and 500 pairs
}

TEST(CompressRules, TheFirstOfTwoDecides) {
    expect_first_decides<Forward>(forward_rules(), legal_forward, rule_nsa_compress);
}

TEST(CompressGradRules, TheFirstOfTwoDecides) {
    expect_first_decides<Grad>(grad_rules(), legal_grad, rule_nsa_compress_grad);
}

// Ranks, extents and attributes at the ends of their types: a ruling, never an overflow.
TEST(CompressRules, SurviveGarbage) {
    const std::int64_t garbage[] = {kMin, kMin + 1, -1,        0,        1,   16,
                                    32,   128,      kMax / 16, kMax - 1, kMax};
    for (const std::int64_t first : garbage)
        for (const std::int64_t second : garbage)
            for (int field = 0; field < 6; ++field) {
                Grad a = legal_grad();
                if (field == 0) a.compress_block_size = first, a.compress_stride = second;
                if (field == 1) a.input.shape = {first, second, 16};
                if (field == 2) a.input.shape = {1, first, second};
                if (field == 3) a.act_seq_len = int_array({first, second});
                if (field == 4) a.input.shape[0] = first, a.act_seq_len = int_array({0, second});
                if (field == 5) a.output_grad.shape = {first, second, first};
                const Ruling ruling = rule_nsa_compress_grad(a);
                EXPECT_TRUE(ruling.status == kAccepted || ruling.status == kInvalid);
                EXPECT_EQ(ruling.accepted(), ruling.message.empty());
            }
}

/// Which rule decides a call has a name without values, and one of its own for each side, each
/// place of a sequence and each way in which a shape can be wrong.
TEST(Clauses, AreNamedWithoutValuesBySideAndPlace) {
    const auto clause = [](auto&& change) {
        CompressArguments a = legal_forward();
        change(a);
        return rule_nsa_compress(a).clause;
    };
    EXPECT_EQ(clause([](auto&) {}), "");
    const auto block = [&](std::int64_t value) {
        return clause([&](auto& a) { a.compress_block_size = value; });
    };
    EXPECT_EQ(block(144), "compress_block_size: a multiple of #, #..# | above");
    EXPECT_EQ(block(256), block(144));
    EXPECT_EQ(block(0), "compress_block_size: a multiple of #, #..# | below");
    EXPECT_EQ(block(40), "compress_block_size: a multiple of #, #..# | between");
    const auto weight = [&](std::vector<std::int64_t> shape) {
        return clause([&](auto& a) { a.weight = tensor(std::move(shape)); });
    };
    EXPECT_EQ(weight({4, 32}), "weight: [compress_block_size,N] = # | extents swapped");
    EXPECT_EQ(weight({32, 5}), "weight: [compress_block_size,N] = # | extent 1 above");
    const auto ends = [&](std::vector<std::int64_t> values) {
        return clause([&](auto& a) { a.act_seq_len = int_array(std::move(values)); });
    };
    const std::string order = "act_seq_len: non-negative, non-decreasing values, here at least #";
    EXPECT_EQ(ends({64, 32, 128}), order + " | decreasing | sequence: inner");
    EXPECT_EQ(ends({64, 96, 80}), order + " | decreasing | sequence: last");
    EXPECT_EQ(ends({-1, 96}), order + " | negative | sequence: first");
    EXPECT_EQ(ends({-1}), order + " | negative | sequence: only");
    const auto type = [&](std::int32_t dtype) {
        return clause([&](auto& a) { a.weight.dtype = dtype; });
    };
    EXPECT_EQ(type(kBf16), "weight: # (fp16), the dtype of input | of the same size");
    EXPECT_EQ(type(kFp32), "weight: # (fp16), the dtype of input | of another size");
    EXPECT_EQ(type(-9), type(kFp32));
}

}  // namespace
}  // namespace attncheck::ref
