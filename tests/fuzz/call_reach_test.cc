// What the calls of the validation targets reach, counted over the committed corpora and what
// mutation and cross-over make of them: numbers at the ends of their types, negative strides, empty
// tensors, impossible ranks, NaN, texts up to the end of a page.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "fuzz/call_mutator.h"
#include "fuzz/described_call.h"

namespace attncheck::fuzz {
namespace {

using Labels = std::map<std::string, int>;

void count_number(std::int64_t number, Labels& labels) {
    for (const int exponent : {31, 32, 63}) {
        // Distance in the arithmetic of 64 bits: 2^63 is next to both ends of int64.
        const auto beyond = static_cast<std::uint64_t>(number) - (std::uint64_t{1} << exponent);
        if (static_cast<std::int64_t>(beyond) >= -3 && static_cast<std::int64_t>(beyond) <= 3)
            ++labels["near 2^" + std::to_string(exponent)];
    }
}

void count_tensor(const attncheck_tensor& tensor, Labels& labels) {
    if (tensor.rank == 0) ++labels["rank 0"];
    if (tensor.rank == 9) ++labels["rank 9"];
    if (tensor.rank < 0) ++labels["negative rank"];
    if (tensor.data == nullptr) ++labels["absent tensor"];
    for (int dim = 0; dim < std::min(tensor.rank, ATTNCHECK_MAX_RANK); ++dim) {
        count_number(tensor.shape[dim], labels);
        if (tensor.shape[dim] == 0) ++labels["zero extent"];
        if (tensor.shape[dim] < 0) ++labels["negative extent"];
        if (tensor.strides[dim] < 0) ++labels["negative stride"];
    }
}

void count_call(const FuzzedCall& call, Labels& labels) {
    const ArgumentList list = call.arguments();
    for (const attncheck_tensor& tensor : list.tensors) count_tensor(tensor, labels);
    for (const attncheck_int_array& array : list.arrays) {
        if (array.values == nullptr) ++labels["absent array"];
        if (array.size <= 0) ++labels["array without values"];
    }
    for (const std::int64_t number : list.integers) count_number(number, labels);
    for (const double number : list.reals)
        if (std::isnan(number)) ++labels["NaN"];
    for (const char* text : list.texts) {
        if (text == nullptr) ++labels["absent text"];
        if (text != nullptr && std::strlen(text) == 4095) ++labels["text of a whole page"];
    }
    const auto ruling = call.ruling();
    if (!ruling) return;
    ++labels[ruling->accepted() ? "accepted" : std::to_string(ruling->status)];
    if (ruling->accepted() && !call.unchanged()) ++labels["accepted in spite of changes"];
    ++labels[call.forward() ? "forward" : "gradient"];
    if (!ruling->accepted()) ++labels["rejected " + ruling->parameter];
}

/// The committed inputs of a target, as calls.
std::vector<CallBytes> corpus_of(const std::string& target) {
    std::vector<CallBytes> calls;
    const std::filesystem::path folder = std::filesystem::path(CORPUS_ROOT) / target;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        calls.push_back(
            CallBytes::parse(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
    }
    return calls;
}

struct Target {
    const char* name;
    bool has_reals, has_gradient;
    int parameters;  ///< that must have been the one to blame at least once
};

void PrintTo(const Target& target, std::ostream* to) { *to << target.name; }

class CallReach : public testing::TestWithParam<Target> {};

INSTANTIATE_TEST_SUITE_P(Operators, CallReach,
                         testing::Values(Target{"nsa_compress", false, true, 10},
                                         Target{"nsa_selected_attention", true, true, 19},
                                         Target{"nsa_compress_attention", true, false, 18},
                                         Target{"flash_attention", true, true, 30}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(CallReach, EveryKindOfExtremeArgument) {
    const Target& target = GetParam();
    const std::vector<CallBytes> parents = corpus_of(std::string(target.name) + "_validation");
    ASSERT_FALSE(parents.empty());
    Labels labels;
    for (const CallBytes& call : parents) count_call(*described_call(target.name, call), labels);
    properties::Random random(1);
    for (int i = 0; i < 3000; ++i) {
        const CallBytes &first = random.pick(parents), &second = random.pick(parents);
        count_call(*described_call(target.name, mutated_call(first, CallBytes::kMaxChanges, random)), labels);
        count_call(*described_call(target.name, crossed_calls(first, second, CallBytes::kMaxChanges, random)),
                   labels);
    }
    std::vector<std::string> wanted{"near 2^31",
                                    "near 2^32",
                                    "near 2^63",
                                    "rank 0",
                                    "rank 9",
                                    "negative rank",
                                    "zero extent",
                                    "negative extent",
                                    "absent tensor",
                                    "negative stride",
                                    "absent array",
                                    "array without values",
                                    "absent text",
                                    "accepted",
                                    "text of a whole page",
                                    "161001",
                                    "161002",
                                    "forward",
                                    "accepted in spite of changes"};
    if (target.has_reals) wanted.push_back("NaN");
    if (target.has_gradient) wanted.push_back("gradient");
    for (const std::string& label : wanted) EXPECT_GE(labels[label], 3) << label;
    const auto blamed = std::count_if(labels.begin(), labels.end(), [](const auto& entry) {
        return entry.first.starts_with("rejected ");
    });
    EXPECT_GE(blamed, target.parameters);
}

}  // namespace
}  // namespace attncheck::fuzz
