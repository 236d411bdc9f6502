// `attncheck judge`: tensors made elsewhere, judged as an answer of a candidate would be.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>

#include "properties/case/derived.h"
#include "properties/cli/command.h"
#include "properties/cli/tensor_file.h"

namespace attncheck::properties {
namespace {

/// The word ` key=...` of a case line that ends in a brace; where it is not there it is added in front of that.
void set_word(std::string& line, const std::string& key, const std::string& value) {
    const std::string word = fmt::format(" {}={}", key, value);
    const std::size_t at = line.find(fmt::format(" {}=", key));
    if (at == std::string::npos)
        line.insert(line.size() - 1, word);
    else
        line.replace(at, line.find_first_of(" }", at + 1) - at, word);
}

/// The case as it was given: with the values that no case has, and without data, which are its own.
std::string taken(const Spec& spec, const GivenArguments& given) {
    constexpr std::size_t kMostEntries = 8;
    std::string line = print(spec);
    for (const char* of_data : {" data=", " seed="})
        if (const std::size_t at = line.find(of_data); at != std::string::npos)
            line.erase(at, line.find_first_of(" }", at + 1) - at);
    for (const Real& real : outline_of(extents_of(spec)).reals)
        if (const auto it = given.reals.find(real.name); it != given.reals.end() && it->second != real.value)
            set_word(line, real.name, fmt::format("{:g}", it->second));
    for (const auto& [name, entries] : given.arrays) {
        if (spec.schema->number(name) < 0 || entries.empty()) continue;
        const std::size_t shown = std::min(entries.size(), kMostEntries);
        set_word(line, name, fmt::format("[{}{}]", fmt::join(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(shown), ","),
                                         shown < entries.size() ? ",..." : ""));
    }
    return line + " with the given data";
}

}  // namespace

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
    say("{}\n", taken(given.spec, file.call.arguments));
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
