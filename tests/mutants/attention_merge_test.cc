// The library of mutants merges as plain loops do, and its defects show on a few rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "active_mutant.h"

namespace attncheck::mutants {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Errors of fp16 merges [parts,2,2,3] with distinct lses, one dead part of NaN and an empty row.
int count_merge_errors(std::int64_t parts, float shift, std::int64_t lse_step) {
    const std::int64_t rows = 4, dim = 3;
    std::vector<std::uint16_t> o(static_cast<std::size_t>(parts * rows * dim + 1)), out(12, 0x7e00);
    std::vector<float> lses(static_cast<std::size_t>(parts * rows * lse_step + 1), NAN);
    std::vector<float> lse(4, NAN);
    const auto at = [&](std::int64_t p, std::int64_t row) -> float& {
        return lses[static_cast<std::size_t>((p * rows + row) * lse_step)];
    };
    std::vector<double> sum(4), wanted(12);
    for (std::int64_t p = 0; p < parts; ++p)
        for (std::int64_t row = 0; row < rows; ++row) {
            const bool dead = row == 3 || (row == 2 && p == 0);
            at(p, row) = dead ? -kInfinity : shift + static_cast<float>((3 * p + 2 * row) % 7);
            const double weight = dead ? 0 : std::exp(double{at(p, row)} - shift);
            sum[static_cast<std::size_t>(row)] += weight;
            for (std::int64_t d = 0; d < dim; ++d) {
                o[static_cast<std::size_t>((p * rows + row) * dim + d)] =
                    dead ? 0x7e00 : static_cast<std::uint16_t>(0x3c00 + 64 * (p + d));  // 1 .. 2
                if (!dead)
                    wanted[static_cast<std::size_t>(row * dim + d)] +=
                        weight * (1 + static_cast<double>(p + d) / 16);
            }
        }
    attncheck_attention_merge_args args{};
    args.parts = {o.data(), ATTNCHECK_FLOAT16, 4, {parts, 2, 2, dim}, {12, 6, 3, 1}};
    args.lses = {lses.data(), ATTNCHECK_FLOAT32, 3, {parts, 2, 2},
                 {4 * lse_step, 2 * lse_step, lse_step}};
    args.out = {out.data(), ATTNCHECK_FLOAT16, 3, {2, 2, dim}, {6, 3, 1}};
    args.lse = {lse.data(), ATTNCHECK_FLOAT32, 2, {2, 2}, {2, 1}};
    if (attncheck_attention_merge(&args) != ATTNCHECK_OK) return 1000;
    int errors = 0;
    for (std::size_t row = 0; row < 4; ++row) {
        const bool empty = sum[row] == 0;
        errors += empty ? lse[row] != -kInfinity
                        : !(std::fabs(lse[row] - (shift + std::log(sum[row]))) < 1e-3);
        for (std::size_t d = 0; d < 3; ++d) {
            const std::uint16_t bits = out[row * 3 + d];
            // Between 1 and 4 a step of the bits is 2^-10 or 2^-9 of the number.
            const double got =
                bits < 0x4000 ? 1 + (bits - 0x3c00) / 1024.0 : 2 + (bits - 0x4000) / 512.0;
            errors += empty ? bits != 0
                            : !(std::fabs(got - wanted[row * 3 + d] / sum[row]) < 1.5e-3);
        }
    }
    return errors;
}

class AttentionMergeMutants : public testing::Test {
protected:
    void TearDown() override { attncheck_mutants_select(nullptr); }
};

int errors_of_all() {
    return count_merge_errors(3, 0, 1) + count_merge_errors(3, 1000, 2) +
           count_merge_errors(0, 0, 1);
}

TEST_F(AttentionMergeMutants, CorrectMergeAgreesWithPlainLoops) { EXPECT_EQ(errors_of_all(), 0); }

TEST_F(AttentionMergeMutants, ComputedDefectsShow) {
    for (const Mutant& mutant : kAttentionMergeMutants) {
        // 09 rounds by less than this comparison sees; 10, 12 and 13 need other cases; VAL rulings.
        const std::string id(mutant.id);
        if (id == "AM-09" || id == "AM-10" || id == "AM-12" || id == "AM-13" ||
            id.find("VAL-01") != id.npos || id.find("VAL-02") != id.npos)
            continue;
        attncheck_mutants_select(id.c_str());
        EXPECT_GT(errors_of_all(), 0) << id;
    }
}

}  // namespace
}  // namespace attncheck::mutants
