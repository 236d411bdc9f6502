// Calls read by the description of their operator: for every operator the two validators agree on
// them, and they reach the ends of every type.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fuzz/call_mutator.h"
#include "fuzz/described_call.h"
#include "properties/operators/catalogue.h"

namespace attncheck::fuzz {
namespace {

std::vector<std::string> entry_families() {
    std::vector<std::string> names;
    for (const auto& op : properties::operators())
        if (!op->name().ends_with("_grad") && !op->is_composition())
            names.push_back(op->name());
    return names;
}

class DescribedCalls : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Families, DescribedCalls, testing::ValuesIn(entry_families()),
                         [](const auto& instance) { return instance.param; });

// As validation_fuzz.cc asks, without a corpus.
TEST_P(DescribedCalls, ValidatorsAgree) {
    properties::Random random(1);
    std::map<std::string, int> seen;
    for (int i = 0; i < 3000; ++i) {
        const CallBytes bytes =
            sampled_call(CallBytes::kMaxChanges, static_cast<int>(random.between(0, 100)), random);
        const auto call = described_call(GetParam(), bytes);
        const auto ruling = call->ruling();
        if (!ruling) continue;
        const auto rejection = call->rejection();
        const int status = rejection ? rejection->status : 0;
        if (ruling->any_status)
            ASSERT_NE(status, 0) << ruling->message;
        else
            ASSERT_EQ(status, ruling->status) << ruling->message << "\n"
                                              << (rejection ? rejection->message : "");
        if (call->unchanged()) {
            ASSERT_TRUE(ruling->accepted()) << ruling->message;
        }
        ++seen[ruling->accepted() ? "accepted" : "rejected " + ruling->parameter];
        for (const attncheck_tensor& tensor : call->arguments().tensors) {
            if (!tensor.data) ++seen["absent tensor"];
            if (tensor.rank < 0) ++seen["negative rank"];
            if (tensor.shape[0] < 0) ++seen["negative extent"];
            if (tensor.shape[0] > INT64_MAX / 2) ++seen["huge extent"];
        }
    }
    for (const char* label :
         {"accepted", "absent tensor", "negative rank", "negative extent", "huge extent"})
        EXPECT_GE(seen[label], 1) << label;
    EXPECT_GE(seen.size(), 8u) << "few parameters are ever the one to blame";
}

// Each edit that validation tries, alone.
TEST_P(DescribedCalls, EveryEditIsAQuestion) {
    int accepted = 0, rejected = 0;
    for (int group = 0; group < 256; ++group)
        for (int edit = 0; edit < 4; ++edit) {
            CallBytes bytes;
            bytes.head = {1};
            bytes.changes = {{.which = static_cast<std::uint8_t>(group),
                              .argument = static_cast<std::uint8_t>(edit)}};
            const auto ruling = described_call(GetParam(), bytes)->ruling();
            if (ruling) ++(ruling->accepted() ? accepted : rejected);
        }
    EXPECT_GE(accepted, 4);
    EXPECT_GE(rejected, 500);
}

}  // namespace
}  // namespace attncheck::fuzz
