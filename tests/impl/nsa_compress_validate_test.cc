#include "impl/operators/nsa_compress/validate.h"

#include <functional>
#include <limits>
#include <vector>

#include "rejection_checks.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

// Never dereferenced by the validator, so any non-null address will do.
attncheck_tensor tensor(std::vector<std::int64_t> shape) { return tensor_without_data(ATTNCHECK_FLOAT16, shape); }

const std::int64_t kLengths[] = {0, 48, 48, 80};  // block 32, stride 16: 0 + 2 + 0 + 1 windows

attncheck_nsa_compress_args forward_call() {
    return {tensor({96, 2, 16}), tensor({32, 2}), {kLengths, 4}, "TND", 32, 16, 0,
            tensor({3, 2, 16})};
}

attncheck_nsa_compress_grad_args gradient_call() {
    return {
        tensor({3, 2, 16}),  tensor({96, 2, 16}), tensor({32, 2}), {kLengths, 4}, 32, 16, 0, "TND",
        tensor({96, 2, 16}), tensor({32, 2})};
}

using Forward = attncheck_nsa_compress_args;
using Gradient = attncheck_nsa_compress_grad_args;

void forward_rejects(const std::function<void(Forward&)>& change, int status,
                     const std::string& parameter, const std::string& value,
                     const std::string& allowed) {
    Forward args = forward_call();
    change(args);
    expect_rejected(validate_nsa_compress(&args), status, parameter, value, allowed);
}

void gradient_rejects(const std::function<void(Gradient&)>& change, int status,
                      const std::string& parameter, const std::string& value,
                      const std::string& allowed) {
    Gradient args = gradient_call();
    change(args);
    expect_rejected(validate_nsa_compress_grad(&args), status, parameter, value, allowed);
}

constexpr int kNull = ATTNCHECK_ERR_NULLPTR, kInvalid = ATTNCHECK_ERR_INVALID;

TEST(NsaCompressValidateTest, LegalCallsPass) {
    const Forward forward = forward_call();
    const Gradient gradient = gradient_call();
    EXPECT_FALSE(validate_nsa_compress(&forward));
    EXPECT_FALSE(validate_nsa_compress_grad(&gradient));
}

TEST(NsaCompressValidateTest, AbsentArgumentsAreNullPointers) {
    expect_rejected(validate_nsa_compress(nullptr), kNull, "args", "NULL", "not NULL");
    expect_rejected(validate_nsa_compress_grad(nullptr), kNull, "args", "NULL", "not NULL");
    forward_rejects([](Forward& a) { a.input.data = nullptr; }, kNull, "input", "NULL", "not NULL");
    forward_rejects([](Forward& a) { a.weight.data = nullptr; }, kNull, "weight", "NULL",
                    "not NULL");
    forward_rejects([](Forward& a) { a.act_seq_len = {nullptr, 0}; }, kNull, "act_seq_len", "NULL",
                    "not NULL");
    forward_rejects([](Forward& a) { a.act_seq_len = {nullptr, -1}; }, kNull, "act_seq_len", "NULL",
                    "not NULL");
    forward_rejects([](Forward& a) { a.layout = nullptr; }, kNull, "layout", "NULL", "not NULL");
    forward_rejects([](Forward& a) { a.output.data = nullptr; }, kNull, "output", "NULL",
                    "not NULL");
    gradient_rejects([](Gradient& a) { a.output_grad.data = nullptr; }, kNull, "output_grad",
                     "NULL", "not NULL");
    gradient_rejects([](Gradient& a) { a.input.data = nullptr; }, kNull, "input", "NULL",
                     "not NULL");
    gradient_rejects([](Gradient& a) { a.weight.data = nullptr; }, kNull, "weight", "NULL",
                     "not NULL");
    gradient_rejects([](Gradient& a) { a.act_seq_len.values = nullptr; }, kNull, "act_seq_len",
                     "NULL", "not NULL");
    gradient_rejects([](Gradient& a) { a.input_grad.data = nullptr; }, kNull, "input_grad", "NULL",
                     "not NULL");
    gradient_rejects([](Gradient& a) { a.weight_grad.data = nullptr; }, kNull, "weight_grad",
                     "NULL", "not NULL");
}

// In the gradient an absent length array is one sequence of length T and an absent layout is "TND".
TEST(NsaCompressValidateTest, GradientHasTwoOptionalArguments) {
    Gradient args = gradient_call();
    args.act_seq_len = {nullptr, 0};
    args.layout = nullptr;
    args.output_grad = tensor({5, 2, 16});
    EXPECT_FALSE(validate_nsa_compress_grad(&args));
    gradient_rejects([](Gradient& a) { a.act_seq_len = {nullptr, -3}; }, kInvalid, "act_seq_len",
                     "-3", "size >= 1");
    gradient_rejects([](Gradient& a) { a.act_seq_len.size = 0; }, kInvalid, "act_seq_len", "size 0",
                     "size >= 1");
}

TEST(NsaCompressValidateTest, LayoutIsExactlyTnd) {
    for (const char* layout :
         {"", "tnd", "TN", "TNDX", "BSND", "a layout string that does not end soon"}) {
        forward_rejects([&](Forward& a) { a.layout = layout; }, kInvalid, "layout",
                        std::string(layout, 0, 4), "\"TND\"");
        gradient_rejects([&](Gradient& a) { a.layout = layout; }, kInvalid, "layout", "\"",
                         "\"TND\"");
    }
}

TEST(NsaCompressValidateTest, RanksMayBeGarbage) {
    for (const std::int32_t rank : {-5, 0, 1, 4, 9, 1000000}) {
        const std::string shown = "rank " + std::to_string(rank);
        forward_rejects([&](Forward& a) { a.input.rank = rank; }, kInvalid, "input", shown,
                        "rank 3");
        forward_rejects([&](Forward& a) { a.weight.rank = rank; }, kInvalid, "weight", shown,
                        "rank 2");
        forward_rejects([&](Forward& a) { a.output.rank = rank; }, kInvalid, "output", shown,
                        "rank 3");
        gradient_rejects([&](Gradient& a) { a.output_grad.rank = rank; }, kInvalid, "output_grad",
                         shown, "rank 3");
        gradient_rejects([&](Gradient& a) { a.input.rank = rank; }, kInvalid, "input", shown,
                         "rank 3");
        gradient_rejects([&](Gradient& a) { a.weight.rank = rank; }, kInvalid, "weight", shown,
                         "rank 2");
        gradient_rejects([&](Gradient& a) { a.input_grad.rank = rank; }, kInvalid, "input_grad",
                         shown, "rank 3");
        gradient_rejects([&](Gradient& a) { a.weight_grad.rank = rank; }, kInvalid, "weight_grad",
                         shown, "rank 2");
    }
}

TEST(NsaCompressValidateTest, DtypesAreHalvesAndEqual) {
    forward_rejects([](Forward& a) { a.input.dtype = 0; }, kInvalid, "input", "float32", "float16");
    forward_rejects([](Forward& a) { a.weight.dtype = 27; }, kInvalid, "weight", "bfloat16",
                    "1 (float16)");
    forward_rejects([](Forward& a) { a.output.dtype = -9; }, kInvalid, "output", "-9",
                    "1 (float16)");
    gradient_rejects([](Gradient& a) { a.input.dtype = 35; }, kInvalid, "input", "35", "bfloat16");
    gradient_rejects([](Gradient& a) { a.output_grad.dtype = 27; }, kInvalid, "output_grad", "27",
                     "float16");
    gradient_rejects([](Gradient& a) { a.weight.dtype = 27; }, kInvalid, "weight", "27", "float16");
    gradient_rejects([](Gradient& a) { a.input_grad.dtype = 27; }, kInvalid, "input_grad", "27",
                     "float16");
    gradient_rejects([](Gradient& a) { a.weight_grad.dtype = 0; }, kInvalid, "weight_grad", "0",
                     "float16");
}

TEST(NsaCompressValidateTest, AttributesStayInRange) {
    for (const std::int64_t block : {std::int64_t{0}, std::int64_t{-16}, std::int64_t{24},
                                     std::int64_t{144}, kInt64Max, kInt64Min}) {
        const std::string shown = std::to_string(block);
        const char* const name = "compress_block_size";
        forward_rejects([&](Forward& a) { a.compress_block_size = block; }, kInvalid, name, shown,
                        "[16, 128]");
        gradient_rejects([&](Gradient& a) { a.compress_block_size = block; }, kInvalid, name, shown,
                         "[16, 128]");
    }
    const char* const name = "compress_stride";
    for (const std::int64_t stride :
         {std::int64_t{0}, std::int64_t{-16}, std::int64_t{8}, kInt64Max, kInt64Min}) {
        const std::string shown = std::to_string(stride);
        const std::string allowed =
            stride % 16 == 0 && stride > 0 ? "32" : "positive multiple of 16";
        forward_rejects([&](Forward& a) { a.compress_stride = stride; }, kInvalid, name, shown,
                        allowed);
        gradient_rejects([&](Gradient& a) { a.compress_stride = stride; }, kInvalid, name, shown,
                         allowed);
    }
    forward_rejects([](Forward& a) { a.compress_stride = 48; }, kInvalid, name, "48",
                    "at most compress_block_size");
    gradient_rejects([](Gradient& a) { a.compress_stride = 32; }, kInvalid, name, "32",
                     "less than compress_block");
    for (const std::int64_t type : {std::int64_t{1}, std::int64_t{-1}, kInt64Max}) {
        const std::string shown = std::to_string(type);
        forward_rejects([&](Forward& a) { a.act_seq_len_type = type; }, kInvalid,
                        "act_seq_len_type", shown, "0");
        gradient_rejects([&](Gradient& a) { a.act_seq_len_type = type; }, kInvalid,
                         "act_seq_len_type", shown, "0");
    }
}

TEST(NsaCompressValidateTest, ExtentsStayInRange) {
    const auto with_extent = [](int dim, std::int64_t extent, const std::string& allowed) {
        const std::string shown = std::to_string(extent);
        forward_rejects([&](Forward& a) { a.input.shape[dim] = extent; }, kInvalid, "input", shown,
                        allowed);
        gradient_rejects([&](Gradient& a) { a.input.shape[dim] = extent; }, kInvalid, "input",
                         shown, allowed);
    };
    for (const std::int64_t extent : {std::int64_t{0}, std::int64_t{-1}, kInt64Min}) {
        with_extent(0, extent, "T >= 1");
        with_extent(1, extent, "[1, 128]");
        with_extent(2, extent, "[16, 256]");
    }
    with_extent(0, kInt64Max, "2^63");
    with_extent(1, 129, "[1, 128]");
    with_extent(1, kInt64Max, "[1, 128]");
    for (const std::int64_t extent :
         {std::int64_t{8}, std::int64_t{24}, std::int64_t{272}, kInt64Max}) {
        with_extent(2, extent, "[16, 256]");
    }
    forward_rejects([](Forward& a) { a.weight.shape[0] = 16; }, kInvalid, "weight", "[16, 2]",
                    "[32, 2]");
    gradient_rejects([](Gradient& a) { a.weight.shape[1] = 1; }, kInvalid, "weight", "[32, 1]",
                     "[32, 2]");
}

TEST(NsaCompressValidateTest, LengthsAreCumulativeAndFit) {
    const auto with_lengths = [](std::vector<std::int64_t> values, const std::string& shown,
                                 const std::string& allowed) {
        const attncheck_int_array lengths{values.data(), static_cast<std::int64_t>(values.size())};
        forward_rejects([&](Forward& a) { a.act_seq_len = lengths; }, kInvalid, "act_seq_len",
                        shown, allowed);
        gradient_rejects([&](Gradient& a) { a.act_seq_len = lengths; }, kInvalid, "act_seq_len",
                         shown, allowed);
    };
    with_lengths({-1, 96}, "-1 at index 0", ">= 0");
    with_lengths({kInt64Min}, "at index 0", ">= 0");
    with_lengths({64, 48}, "48 at index 1", "the one before is 64");
    with_lengths({48, 97}, "97 at index 1", "at most T, which is 96");
    with_lengths({0, kInt64Max}, "at index 1", "at most T, which is 96");
    forward_rejects([](Forward& a) { a.act_seq_len.size = 0; }, kInvalid, "act_seq_len", "size 0",
                    "size >= 1");
    forward_rejects([](Forward& a) { a.act_seq_len.size = kInt64Min; }, kInvalid, "act_seq_len",
                    "size -", "size >= 1");
}

TEST(NsaCompressValidateTest, ResultsHaveTheImpliedShape) {
    forward_rejects([](Forward& a) { a.output.shape[0] = 4; }, kInvalid, "output", "[4, 2, 16]",
                    "[3, 2, 16]");
    gradient_rejects([](Gradient& a) { a.output_grad.shape[2] = 32; }, kInvalid, "output_grad",
                     "[3, 2, 32]", "[3, 2, 16]");
    gradient_rejects([](Gradient& a) { a.input_grad.shape[0] = 95; }, kInvalid, "input_grad",
                     "[95, 2, 16]", "[96, 2, 16]");
    gradient_rejects([](Gradient& a) { a.weight_grad.shape[0] = 48; }, kInvalid, "weight_grad",
                     "[48, 2]", "[32, 2]");
    Forward empty = forward_call();
    const std::int64_t short_lengths[] = {31, 62};
    empty.act_seq_len = {short_lengths, 2};
    empty.output.shape[0] = 0;
    EXPECT_FALSE(validate_nsa_compress(&empty));
}

// Two mistakes at once: the one that comes first in the documented order is reported.
TEST(NsaCompressValidateTest, FirstFailureDecides) {
    forward_rejects(
        [](Forward& a) {
            a.output.data = nullptr;
            a.layout = "x";
        },
        kNull, "output", "NULL", "not NULL");
    forward_rejects(
        [](Forward& a) {
            a.layout = "x";
            a.input.rank = 1;
        },
        kInvalid, "layout", "x", "TND");
    forward_rejects(
        [](Forward& a) {
            a.output.rank = 1;
            a.input.dtype = 0;
        },
        kInvalid, "output", "rank 1", "rank 3");
    forward_rejects(
        [](Forward& a) {
            a.output.dtype = 0;
            a.compress_stride = 0;
        },
        kInvalid, "output", "float32", "1");
    forward_rejects(
        [](Forward& a) {
            a.act_seq_len_type = 1;
            a.input.shape[0] = 0;
        },
        kInvalid, "act_seq_len_type", "1", "0");
    forward_rejects(
        [](Forward& a) {
            a.weight.shape[0] = 1;
            a.act_seq_len.size = 0;
        },
        kInvalid, "weight", "[1, 2]", "32");
    forward_rejects(
        [](Forward& a) {
            a.act_seq_len.size = 0;
            a.output.shape[0] = 9;
        },
        kInvalid, "act_seq_len", "0", ">= 1");
}

TEST(NsaCompressValidateTest, EntryPointKeepsTheMessage) {
    Forward args = forward_call();
    args.compress_block_size = 24;
    EXPECT_EQ(attncheck_nsa_compress(&args), kInvalid);
    EXPECT_EQ(last_error_message(),
              "compress_block_size is 24; allowed: a multiple of 16 in [16, 128]");
}

}  // namespace
}  // namespace attncheck::impl
