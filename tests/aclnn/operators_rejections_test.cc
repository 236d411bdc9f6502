// What every variant refuses, with which status, and that a refusal leaves nothing behind. The
// candidate interface is the judge of single arguments; what only a variant forbids is listed here.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "acl_fixture.h"
#include "operators_direct.h"
#include "operators_fields.h"
#include "operators_variants.h"

namespace attncheck::aclnn {
namespace {

constexpr aclnnStatus kAbsent = 161001, kIllegal = 161002;

template <class Variant>
class OperatorRejections : public DeviceTest {
protected:
    using CallArgs = typename Variant::Args;

    void SetUp() override {
        DeviceTest::SetUp();
        Variant::fill_problem(problem);
    }

    /// The status of the first phase; after a refusal the executor is null, the size 0, and the
    /// text begins with the function's name.
    aclnnStatus first_phase(const CallArgs& args) {
        Descriptors descriptors;
        return first_phase(args, descriptors);
    }
    aclnnStatus first_phase(const CallArgs& args, Descriptors& descriptors) {
        std::uint64_t bytes = 77;
        auto* executor = reinterpret_cast<aclOpExecutor*>(&bytes);
        recent_message();
        const aclnnStatus status = Variant::first_phase(args, descriptors, &bytes, &executor);
        message = recent_message();
        if (status == 0) return status;
        EXPECT_EQ(bytes, 0u);
        EXPECT_EQ(executor, nullptr);
        EXPECT_EQ(message.find(std::string(Variant::kName) + "GetWorkspaceSize: "), 0u) << message;
        EXPECT_NE(message.find("; allowed: "), std::string::npos) << message;
        const std::string parameter = message.substr(0, message.find(" is "));
        EXPECT_EQ(parameter.find('_'), std::string::npos) << "not the caller's name: " << message;
        return status;
    }
    aclnnStatus first_phase_after(const std::function<void(CallArgs&)>& change) {
        CallArgs args = problem.args;
        change(args);
        return first_phase(args);
    }

    /// The judgement of the candidate interface on a call that both can express.
    void expect_same_status(const std::function<void(CallArgs&)>& change) {
        CallArgs args = problem.args;
        change(args);
        const int wanted = direct(args);
        EXPECT_EQ(first_phase(args), wanted) << message;
        ++(wanted == 0 ? num_accepted : num_rejected);
    }

    Problem<CallArgs> problem;
    std::string message;
    int num_accepted = 0, num_rejected = 0;
};
TYPED_TEST_SUITE(OperatorRejections, Variants, VariantName);

TYPED_TEST(OperatorRejections, OfAbsentTensors) {
    using Args = typename TestFixture::CallArgs;
    for (const auto tensor : fields<Args>().tensors()) {
        this->expect_same_status([&](Args& args) { args.*tensor = {}; });
    }
    EXPECT_GE(this->num_rejected, 3);
}

TYPED_TEST(OperatorRejections, OfTypesAndShapes) {
    using Args = typename TestFixture::CallArgs;
    for (const auto tensor : fields<Args>().tensors()) {
        if ((this->problem.args.*tensor).data == nullptr) continue;
        this->expect_same_status([&](Args& args) { (args.*tensor).dtype = 9; });  // int64
        this->expect_same_status([&](Args& args) { (args.*tensor).rank -= 1; });
        this->expect_same_status([&](Args& args) {
            attncheck_tensor& view = args.*tensor;
            view.shape[view.rank] = view.strides[view.rank] = 1;
            ++view.rank;
        });
        for (int dim = 0; dim < (this->problem.args.*tensor).rank; ++dim) {
            for (const std::int64_t extent :
                 {(this->problem.args.*tensor).shape[dim] - 1, std::int64_t{0}, std::int64_t{-1}})
                this->expect_same_status([&](Args& args) { (args.*tensor).shape[dim] = extent; });
        }
    }
    EXPECT_GE(this->num_rejected, 20);
}

TYPED_TEST(OperatorRejections, OfNumbers) {
    using Args = typename TestFixture::CallArgs;
    using Limits = std::numeric_limits<std::int64_t>;
    // What V1 and the packed forms fix is not theirs to choose.
    const auto& integers = fields<Args>().integers;
    for (std::size_t i = 0; i < integers.size(); ++i) {
        const auto integer = integers[i];
        for (const std::int64_t value :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{-16}, std::int64_t{288}, Limits::min(),
              Limits::max(), this->problem.args.*integer + 1}) {
            Args args = this->problem.args;
            args.*integer = value;
            if (!TypeParam::can_express(args)) continue;
            this->expect_same_status([&](Args& changed) { changed.*integer = value; });
        }
    }
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto real : fields<Args>().reals) {
        for (const double value : {0.0, -1.0, 0.5, 1e300, nan})
            this->expect_same_status([&](Args& args) { args.*real = value; });
    }
    EXPECT_GE(this->num_rejected, 5);
    EXPECT_GE(this->num_accepted, 1);
}

TYPED_TEST(OperatorRejections, OfArraysAndTexts) {
    using Args = typename TestFixture::CallArgs;
    static const std::int64_t values[] = {3, 2, -1};
    for (const auto array : fields<Args>().arrays) {
        if ((this->problem.args.*array).values == nullptr) continue;
        this->expect_same_status([&](Args& args) { args.*array = {nullptr, 0}; });
        for (const std::int64_t size : {0, 1, 2, 3})
            this->expect_same_status([&](Args& args) { args.*array = {values, size}; });
    }
    for (const auto text : fields<Args>().texts) {
        for (const char* value : {static_cast<const char*>(nullptr), "", "tnd", "TND ", "NTD"}) {
            Args args = this->problem.args;
            args.*text = value;
            if (!TypeParam::can_express(args)) continue;
            this->expect_same_status([&](Args& changed) { changed.*text = value; });
        }
    }
    EXPECT_GE(this->num_rejected, 3);
}

// Absent comes before illegal, a dead handle before what the dead object would have said.
TYPED_TEST(OperatorRejections, OfDeadHandles) {
    using Args = typename TestFixture::CallArgs;
    for (const auto tensor : fields<Args>().tensors()) {
        if ((this->problem.args.*tensor).data == nullptr) continue;
        Descriptors descriptors;
        descriptors.dead = (this->problem.args.*tensor).data;
        EXPECT_EQ(this->first_phase(this->problem.args, descriptors), kIllegal);
        EXPECT_NE(this->message.find("not a live tensor"), std::string::npos) << this->message;
        Args args = this->problem.args;
        args.*fields<Args>().inputs[0] = {};
        EXPECT_EQ(this->first_phase(args, descriptors), kAbsent) << this->message;
    }
}

TYPED_TEST(OperatorRejections, OfNullResults) {
    Descriptors descriptors;
    std::uint64_t bytes = 77;
    auto* executor = reinterpret_cast<aclOpExecutor*>(&bytes);
    EXPECT_EQ(TypeParam::first_phase(this->problem.args, descriptors, nullptr, &executor), kAbsent);
    EXPECT_EQ(executor, nullptr);
    EXPECT_EQ(TypeParam::first_phase(this->problem.args, descriptors, &bytes, nullptr), kAbsent);
    EXPECT_EQ(bytes, 0u);
}

TYPED_TEST(OperatorRejections, OfTheSecondPhase) {
    using Args = typename TestFixture::CallArgs;
    EXPECT_EQ(TypeParam::kSecondPhase(nullptr, 0, nullptr, nullptr), kAbsent);
    // Elements two apart, so that a workspace is needed.
    Args args = this->problem.args;
    attncheck_tensor& view = args.*fields<Args>().inputs[0];
    view.data = this->problem.storage.bytes(2 * count_of(view) * size_of(view.dtype), 0);
    for (int dim = 0; dim < view.rank; ++dim) view.strides[dim] *= 2;
    char* const workspace = this->allocate(1 << 20);
    const auto prepare = [&](std::uint64_t& bytes) {
        Descriptors descriptors;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(TypeParam::first_phase(args, descriptors, &bytes, &executor), 0);
        EXPECT_GT(bytes, 0u);
        return executor;
    };
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = prepare(bytes);
    EXPECT_EQ(TypeParam::kSecondPhase(nullptr, bytes, executor, nullptr), kAbsent);
    executor = prepare(bytes);
    EXPECT_EQ(TypeParam::kSecondPhase(workspace, bytes - 1, executor, nullptr), kIllegal);
    executor = prepare(bytes);
    EXPECT_EQ(TypeParam::kSecondPhase(workspace, bytes, executor, nullptr), 0);
    EXPECT_EQ(TypeParam::kSecondPhase(workspace, bytes, executor, nullptr), kIllegal) << "used up";
    executor = prepare(bytes);
    const auto other = std::string(TypeParam::kName) == "aclnnNsaCompress" ? aclnnNsaCompressGrad
                                                                           : aclnnNsaCompress;
    EXPECT_EQ(other(workspace, bytes, executor, nullptr), kIllegal);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
}

// Views of device memory that leave their block, addresses between elements, outputs on themselves,
// formats in blocks.
TYPED_TEST(OperatorRejections, OfAddresses) {
    using Args = typename TestFixture::CallArgs;
    for (const auto tensor : fields<Args>().tensors()) {
        const attncheck_tensor& legal = this->problem.args.*tensor;
        if (legal.data == nullptr) continue;
        const std::int64_t bytes = count_of(legal) * size_of(legal.dtype);
        char* const block = this->allocate(static_cast<std::size_t>(bytes) + 64);
        const auto padded = (bytes + 64 + 31) / 32 * 32 + 32;
        EXPECT_EQ(this->first_phase_after([&](Args& args) {
            (args.*tensor).data = block + (padded - bytes) / 4 * 4 + 4;
        }),
                  kIllegal);
        EXPECT_NE(this->message.find("leaves its block"), std::string::npos) << this->message;
        EXPECT_EQ(this->first_phase_after(
                      [&](Args& args) { (args.*tensor).data = block + (padded - bytes) / 4 * 4; }),
                  0)
            << this->message;
        if (size_of(legal.dtype) > 1) {
            EXPECT_EQ(this->first_phase_after([&](Args& args) {
                (args.*tensor).data = static_cast<char*>(legal.data) + 1;
            }),
                      kIllegal);
        }
    }
    for (const auto output : fields<Args>().outputs) {
        if ((this->problem.args.*output).data == nullptr) continue;
        EXPECT_EQ(this->first_phase_after([&](Args& args) { (args.*output).strides[0] = 0; }),
                  kIllegal);
    }
}

class PaddedRejections : public OperatorRejections<FlashAttentionScoreV2> {};
class PackedRejections : public OperatorRejections<FlashAttentionVarLenScoreV4> {};
class RopeRejections : public OperatorRejections<FlashAttentionUnpaddingScoreGradV3> {};

TEST_F(PaddedRejections, OfThePackedLayout) {
    EXPECT_EQ(first_phase_after([](auto& args) { args.input_layout = "TND"; }), kIllegal);
    EXPECT_NE(message.find("inputLayout is \"TND\"; allowed: \"BSH\""), std::string::npos)
        << message;
    // Null comes first.
    EXPECT_EQ(first_phase_after([](auto& args) {
                  args.input_layout = "TND";
                  args.key = {};
              }),
              kAbsent);
}

TEST_F(PackedRejections, OfPaddedLayouts) {
    for (const char* layout : {"BSH", "SBH", "BSND", "BNSD"}) {
        EXPECT_EQ(first_phase_after([&](auto& args) { args.input_layout = layout; }), kIllegal);
        EXPECT_NE(message.find("allowed: \"TND\""), std::string::npos) << message;
    }
}

TEST_F(PackedRejections, OfAnUnknownOrderOfStatistics) {
    EXPECT_EQ(first_phase_after([](auto& args) { args.softmax_out_layout = "NTD"; }), kIllegal);
    EXPECT_NE(message.find("softmaxOutLayout"), std::string::npos) << message;
    EXPECT_EQ(first_phase_after([](auto& args) { args.softmax_out_layout = nullptr; }), kAbsent);
    EXPECT_EQ(first_phase_after([](auto& args) { args.softmax_out_layout = ""; }), 0) << message;
}

// The operator knows calls without a rope; this variant does not.
TEST_F(RopeRejections, OfAnAbsentRope) {
    EXPECT_EQ(first_phase_after([](auto& args) {
                  args.query_rope = args.key_rope = args.dq_rope = args.dk_rope = {};
              }),
              kAbsent);
    EXPECT_NE(message.find("queryRope is NULL"), std::string::npos) << message;
    EXPECT_EQ(first_phase_after([](auto& args) { args.dk_rope = {}; }), kAbsent);
}

class SelectedRejections : public OperatorRejections<NsaSelectedAttention> {
protected:
    std::int32_t* indices() { return static_cast<std::int32_t*>(problem.args.topk_indices.data); }
};

// The first phase may come before the indices: what they are by then does not count.
TEST_F(SelectedRejections, OfIndicesComeWithTheWork) {
    const std::int32_t legal = indices()[4];
    indices()[4] = 3;  // 3 blocks in this sequence
    Descriptors descriptors;
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(NsaSelectedAttention::first_phase(problem.args, descriptors, &bytes, &executor), 0);
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
    ASSERT_EQ(aclnnNsaSelectedAttention(nullptr, bytes, executor, nullptr), 0);
    recent_message();
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), kIllegal);
    message = recent_message();
    EXPECT_NE(
        message.find("aclnnNsaSelectedAttention: topkIndices is 3 at [0, 1, 1]; allowed: [0, 3)"),
        std::string::npos)
        << message;
    const auto* out = static_cast<const std::uint8_t*>(problem.args.attention_out.data);
    for (std::int64_t i = 0; i < count_of(problem.args.attention_out) * 2; ++i)
        ASSERT_EQ(out[i], 0xa5) << "written";

    indices()[4] = legal;
    ASSERT_EQ(aclnnNsaSelectedAttention(nullptr, bytes, executor, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    EXPECT_NE(out[0] == 0xa5 && out[1] == 0xa5, true);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

class CompressRejections : public OperatorRejections<NsaCompress> {};

// The texts name the caller's parameters, everywhere in the sentence.
TEST_F(CompressRejections, SpeakOfTheCallersParameters) {
    EXPECT_EQ(first_phase_after([](auto& args) { args.compress_stride = 64; }), kIllegal);
    EXPECT_EQ(message,
              "aclnnNsaCompressGetWorkspaceSize: compressStride is 64; allowed: at most "
              "compressBlockSize, which is 48");
    EXPECT_EQ(first_phase_after([](auto& args) { args.act_seq_len = {nullptr, 0}; }), kAbsent);
    EXPECT_EQ(message,
              "aclnnNsaCompressGetWorkspaceSize: actSeqLenOptional is NULL; allowed: not NULL");
}

TEST_F(CompressRejections, OfTensorsWithoutAnAddressAndFormatsInBlocks) {
    const std::int64_t dims[] = {115, 3, 32};
    Descriptors descriptors;
    const auto& a = problem.args;
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    const auto call = [&](aclTensor* input) {
        const aclnnStatus status = aclnnNsaCompressGetWorkspaceSize(
            input, descriptors(a.weight), descriptors(a.act_seq_len), descriptors(a.layout),
            a.compress_block_size, a.compress_stride, a.act_seq_len_type, descriptors(a.output),
            &bytes, &executor);
        aclDestroyTensor(input);
        return status;
    };
    EXPECT_EQ(
        call(aclCreateTensor(dims, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, dims, 3, nullptr)),
        kAbsent);
    EXPECT_EQ(call(aclCreateTensor(dims, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_FRACTAL_NZ, dims, 3,
                                   a.input.data)),
              kIllegal);
    EXPECT_EQ(call(aclCreateTensor(dims, 3, ACL_FLOAT16, nullptr, INT64_MAX / 2, ACL_FORMAT_ND,
                                   dims, 3, a.input.data)),
              kIllegal);
    EXPECT_EQ(call(aclCreateTensor(dims, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_NCHW, dims, 3,
                                   a.input.data)),
              0);
}

}  // namespace
}  // namespace attncheck::aclnn
