// The example programs, the documents' own and one per other variant, as C++11 and as C++17: their
// exit codes and every value they print (acl_host.md 8 and 12).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

/// What a program printed: every line up to ": " or a blank before its last word, as that word.
struct Output {
    int exit_code = -1;
    std::vector<std::string> values;
};

Output run_example(const std::string& name) {
    // The programs leak on purpose; what they poison or guard is not their choice.
    const std::string command = "ASAN_OPTIONS=detect_leaks=0 '" ACLNN_EXAMPLES "/" + name + "'";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"),
                                                     [](FILE*) { return 0; });
    Output output;
    char line[256];
    while (pipe && std::fgets(line, sizeof line, pipe.get())) {
        std::string text = line;
        if (!text.empty() && text.back() == '\n') text.pop_back();
        output.values.push_back(text.substr(text.rfind(' ') + 1));
    }
    const int status = pipe ? pclose(pipe.get()) : -1;
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return output;
}

using Histogram = std::map<std::string, std::int64_t>;

Histogram histogram(const std::vector<std::string>& values, std::size_t begin, std::size_t end) {
    Histogram counts;
    for (std::size_t i = begin; i < end && i < values.size(); ++i) ++counts[values[i]];
    return counts;
}
Histogram histogram(const std::vector<std::string>& values) {
    return histogram(values, 0, values.size());
}

class Examples : public testing::TestWithParam<const char*> {
protected:
    Output run(const std::string& name) {
        Output output = run_example(name + "_cxx" + GetParam());
        EXPECT_EQ(output.exit_code, 0) << name;
        return output;
    }

    // Forward flash attention: one half of the output's floats is `value`, the other is what the
    // upload left when the floats were labelled half.
    void expect_forward(const std::string& name, std::int64_t ones, double row_max) {
        SCOPED_TRACE(name);
        const std::vector<std::string> values = run(name).values;
        ASSERT_EQ(values.size(), 36864u);
        const std::size_t written = static_cast<std::size_t>(ones);
        EXPECT_EQ(histogram(values, 0, written), (Histogram{{"1.000000", ones}}));
        if (ones < 32768) {
            EXPECT_EQ(histogram(values, written, 32768), (Histogram{{"0.000000", 32768 - ones}}));
        }
        for (std::size_t i = 32768; i < 34816; ++i)
            ASSERT_NEAR(std::stod(values[i]), row_max, 1e-6 * row_max) << i;
        EXPECT_EQ(histogram(values, 34816, 36864), (Histogram{{"256.000000", 2048}}));
    }

    // Backward with statistics of 3: dq and dk vanish; P = exp(scale * <q, k> - 3) / 3.
    void expect_exact_zero_dq_dk(const std::vector<std::string>& values, std::size_t dv_begin) {
        EXPECT_EQ(histogram(values, 0, dv_begin),
                  (Histogram{{"0.000000", static_cast<std::int64_t>(dv_begin)}}));
    }

    void expect_float_backward(const std::string& name) {
        SCOPED_TRACE(name);
        const std::vector<std::string> values = run(name).values;
        ASSERT_EQ(values.size(), 98304u);
        expect_exact_zero_dq_dk(values, 65536);
        const double dv = 256 * std::exp(std::sqrt(128.0) - 3) / 3;
        for (std::size_t i = 65536; i < values.size(); ++i)
            ASSERT_NEAR(std::stod(values[i]), dv, 1e-5 * dv) << i;
    }

    // dv of a row is 256 * 7.2e6 * 1.875: no half. The built-in operator rounds P at no point, so
    // every second half is infinity and the float that two halves make is 0x7c000000.
    void expect_half_backward(const std::string& name) {
        SCOPED_TRACE(name);
        const std::vector<std::string> values = run(name).values;
        ASSERT_EQ(values.size(), 98304u);
        expect_exact_zero_dq_dk(values, 65536);
        EXPECT_EQ(histogram(values, 65536, 81920),
                  (Histogram{{"2658455991569831745807614120560689152.000000", 16384}}));
        EXPECT_EQ(histogram(values, 81920, 98304), (Histogram{{"0.000000", 16384}}));
    }
};

TEST_P(Examples, DocumentOfNsaCompressGradUnmodified) {
    const std::vector<std::string> values = run("nsa_compress_grad").values;
    ASSERT_EQ(values.size(), 2228224u);
    EXPECT_EQ(histogram(values),
              (Histogram{{"0.000000", 1671168}, {"136.000000", 131072}, {"34816.000000", 425984}}));
    std::size_t first = 0, first_large = 0;
    while (first < values.size() && values[first] == "0.000000") ++first;
    while (first_large < values.size() && values[first_large] != "34816.000000") ++first_large;
    EXPECT_EQ(first, 64u);
    EXPECT_EQ(first_large, 65600u);
    EXPECT_EQ(histogram(values, 1114112, values.size()), (Histogram{{"0.000000", 1114112}}));
}

TEST_P(Examples, NsaCompress) {
    EXPECT_EQ(histogram(run("nsa_compress").values), (Histogram{{"32.000000", 256}}));
}

TEST_P(Examples, NsaSelectedAttentionKeepsSubnormalsAndSurvivesWrongHandles) {
    EXPECT_EQ(histogram(run("nsa_selected_attention").values), (Histogram{{"1", 2097152}}));
}

TEST_P(Examples, NsaSelectedAttentionGrad) {
    EXPECT_EQ(histogram(run("nsa_selected_attention_grad").values), (Histogram{{"0", 393408}}));
}

TEST_P(Examples, NsaCompressAttentionRefusesToReadBehindItsMemory) {
    const std::vector<std::string> values = run("nsa_compress_attention").values;
    ASSERT_EQ(values.size(), 327681u);
    EXPECT_EQ(values[0], "107000");
    EXPECT_EQ(histogram(values, 1, 131073), (Histogram{{"192.000000", 131072}}));
    EXPECT_EQ(histogram(values, 131073, 262145), (Histogram{{"64.000000", 131072}}));
    EXPECT_EQ(histogram(values, 262145, 327681), (Histogram{{"0.000000", 65536}}));
}

TEST_P(Examples, FlashAttentionForwardOfFloats) {
    expect_forward("flash_attention_score_v2", 32768, std::sqrt(128.0));
    expect_forward("flash_attention_varlen_score_v4", 32768, std::sqrt(128.0));
}

TEST_P(Examples, FlashAttentionForwardOfFloatsLabelledHalf) {
    for (const char* name : {"flash_attention_score", "flash_attention_varlen_score",
                             "flash_attention_varlen_score_v2"})
        expect_forward(name, 16384, 225 * 0.088388);
    expect_forward("flash_attention_varlen_score_v3", 16384, 96 * 0.088388);
}

TEST_P(Examples, FlashAttentionBackwardOfFloats) {
    expect_float_backward("flash_attention_score_grad_v2");
    expect_float_backward("flash_attention_unpadding_score_grad_v4");
}

TEST_P(Examples, FlashAttentionBackwardOfFloatsLabelledHalf) {
    for (const char* name : {"flash_attention_score_grad", "flash_attention_unpadding_score_grad",
                             "flash_attention_unpadding_score_grad_v2"})
        expect_half_backward(name);
}

TEST_P(Examples, FlashAttentionBackwardWithRope) {
    const std::vector<std::string> values = run("flash_attention_unpadding_score_grad_v3").values;
    ASSERT_EQ(values.size(), 131072u);
    expect_exact_zero_dq_dk(values, 98304);
    EXPECT_EQ(histogram(values, 98304, 114688), (Histogram{{"20608.000000", 16384}}));
    EXPECT_EQ(histogram(values, 114688, 131072), (Histogram{{"0.000000", 16384}}));
}

INSTANTIATE_TEST_SUITE_P(Standards, Examples, testing::Values("11", "17"),
                         [](const auto& standard) { return std::string("Cxx") + standard.param; });

}  // namespace
