// Laws change heads, lengths, layouts and numbers: the calls that they make stay inside of what a
// library declares.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <ostream>

#include "properties/operators/catalogue.h"
#include "properties/search/declared_calls.h"
#include "properties/search/survey.h"
#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

/// What the arguments of a call say of it, read from shapes, texts and numbers alone.
struct Seen {
    std::int64_t heads = 0, kv_heads = 0, dim = 0, sequences = 1;
    std::string layout;
    double scale = 0;

    explicit Seen(const Call& call) {
        const bool pools = call.op.starts_with("nsa_compress") && call.op != "nsa_compress_attention";
        const auto& query = call.tensor(pools ? "input" : "query").shape;
        heads = query[query.size() - 2];
        dim = query.back();
        for (const Tensor& tensor : call.tensors)
            if (tensor.name.starts_with("key")) {
                kv_heads = tensor.shape[tensor.shape.size() - 2];
                break;
            }
        for (const Text& text : call.texts)
            if (text.name == "input_layout") layout = text.value.value_or("");
        for (const Real& real : call.reals)
            if (real.name.starts_with("scale")) scale = real.value;
        for (const HostArray& array : call.arrays)
            if (array.name == "cu_seqlens_q" && array.present) sequences = array.size - 1;
        if (query.size() == 4) sequences = query[0];
        for (const HostArray& array : call.arrays)
            if (array.name.starts_with("act") && array.present) sequences = array.size;
    }
};

struct Library {
    std::string op, features;
    bool (*takes)(const Seen& call);
    friend void PrintTo(const Library& library, std::ostream* out) { *out << library.features; }
};

const Library kLibraries[] = {
    {"attention", "kv_heads=2 group=2 dim=16 sequences=several",
     [](const Seen& c) { return c.heads == 4 && c.kv_heads == 2 && c.dim == 16 && c.sequences > 1; }},
    {"attention", "layout=bshd kv_heads=3 group=1 scale=rsqrt sequences=1",
     [](const Seen& c) {
         return c.heads == 3 && c.kv_heads == 3 && c.sequences == 1 &&
                c.scale == 1 / std::sqrt(static_cast<double>(c.dim));
     }},
    {"attention_grad", "kv_heads=2 group=2 dim=16 sequences=several",
     [](const Seen& c) { return c.heads == 4 && c.kv_heads == 2 && c.dim == 16 && c.sequences > 1; }},
    {"attention_decode", "kv_heads=2 group=3 dim=16 sequences=several",
     [](const Seen& c) { return c.heads == 6 && c.kv_heads == 2 && c.dim == 16 && c.sequences > 1; }},
    {"flash_attention_score", "layout=BSND kv_heads=2 group=2 sequences=several",
     [](const Seen& c) {
         return c.heads == 4 && c.kv_heads == 2 && c.sequences > 1 && c.layout == "BSND";
     }},
    {"flash_attention_score_grad", "layout=TND kv_heads=2 group=2 sequences=several scale=rsqrt",
     [](const Seen& c) {
         return c.heads == 4 && c.kv_heads == 2 && c.sequences > 1 && c.layout == "TND";
     }},
    {"nsa_selected_attention", "kv_heads=2 group=2 sequences=several",
     [](const Seen& c) { return c.heads == 4 && c.kv_heads == 2 && c.sequences > 1; }},
    {"nsa_selected_attention_grad", "kv_heads=2 group=2 sequences=several",
     [](const Seen& c) { return c.heads == 4 && c.kv_heads == 2 && c.sequences > 1; }},
    {"nsa_compress_attention", "kv_heads=2 group=4 sequences=several",
     [](const Seen& c) { return c.heads == 8 && c.kv_heads == 2 && c.sequences > 1; }},
    {"nsa_compress", "heads=2 sequences=several",
     [](const Seen& c) { return c.heads == 2 && c.sequences > 1; }},
    {"nsa_compress_grad", "heads=2 sequences=several",
     [](const Seen& c) { return c.heads == 2 && c.sequences > 1; }},
};

class DeclaredLaws : public testing::TestWithParam<Library> {};

TEST_P(DeclaredLaws, CallNothingElse) {
    const Library& library = GetParam();
    const Operator& op = *find_operator(library.op);
    testing::NiceMock<MockCandidate> candidate;
    CandidateInfo info;
    for (const auto& one : operators()) info.operators.push_back(one->name());
    ON_CALL(candidate, info).WillByDefault(testing::ReturnRef(info));
    std::vector<std::string> outside;
    int made = 0;
    const auto take = [&](const Call& call) {
        ++made;
        if (call.op == library.op && !library.takes(Seen(call))) {
            const Seen seen(call);
            outside.push_back(fmt::format("heads {}/{} dim {} sequences {} {} scale {}", seen.heads,
                                          seen.kv_heads, seen.dim, seen.sequences, seen.layout,
                                          seen.scale));
        }
        return zeros_for(call);
    };
    answer_calls(candidate, take);
    const Survey known = survey(op, candidate, 1, Profile::ascend910b, library.features);
    EXPECT_THAT(outside, testing::IsEmpty()) << "by the survey";
    const auto cases = declared_cases(library.op + ": " + library.features, operators());
    DeclaredCalls declared(candidate, cases);
    PropertyContext context{.candidate = declared, .rounding = {}, .declared = cases};
    Random random(7);
    for (const Property& property : op.properties()) {
        if (property.validation || property.large) continue;
        outside.clear();
        made = 0;
        int checked = 0;
        constexpr int kCases = 6, kTries = 60;
        for (int k = 0; k < kTries && checked < kCases; ++k) {
            Spec wanted = op.sample(random, 15);
            if (property.adapt) property.adapt(wanted, random);
            const auto inside = known.scope.brought_inside(wanted, random);
            if (!inside || (property.domain && !property.domain(*inside))) continue;
            ++checked;
            EXPECT_NO_THROW(property.check(*inside, context)) << print(*inside);
        }
        EXPECT_THAT(outside, testing::IsEmpty()) << property.name;
        if (property.name == "agreement") {
            EXPECT_GE(made, checked);
        }
    }
}

std::string name_of_library(const testing::TestParamInfo<Library>& info) {
    return fmt::format("{}_{}", info.param.op, info.index);
}
INSTANTIATE_TEST_SUITE_P(Libraries, DeclaredLaws, testing::ValuesIn(kLibraries), name_of_library);

}  // namespace
}  // namespace attncheck::properties
