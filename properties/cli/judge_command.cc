// `attncheck judge`: tensors made elsewhere, judged as an answer of a candidate would be.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include "properties/cli/command.h"
#include "properties/cli/tensor_file.h"

namespace attncheck::properties {

int judge_command(const Arguments& arguments) {
    // The reference of every long row takes megabytes and returns them: half of the time would go
    // into page faults.
    constexpr int kNeverReturned = 1 << 30;
    mallopt(M_MMAP_THRESHOLD, kNeverReturned);
    mallopt(M_TRIM_THRESHOLD, kNeverReturned);
    const TensorFile file = read_tensor_file(
        arguments.tensor_file, arguments.ops.empty() ? std::string() : arguments.ops.front());
    const attncheck::ref::RoundingClass rounding = rounding_of(arguments);
    GivenVerdict given;
    try {
        given = judge_given(*find_operator(file.op), file.call, rounding, arguments.profile,
                            arguments.samples);
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format("{}: {}", arguments.tensor_file, e.what()));
    }
    const Verdict& verdict = given.verdict;
    say("{}\n", print(given.spec));
    if (verdict.failed()) {
        say("FALSIFIED: {} (tier: {})\n  {}\n", verdict.failure, name_of(verdict.tier),
            verdict.message);
        return kFalsified;
    }
    if (verdict.kind != Verdict::Kind::held) {
        say("not judged\n");
        return kNotJudged;
    }
    say("{} held, worst error {:.3g} of its bound\n", fmt::join(given.judged, ", "),
        verdict.worst_ratio);
    if (!verdict.message.empty()) say("{}\n", verdict.message);
    return kHeld;
}

}  // namespace attncheck::properties
