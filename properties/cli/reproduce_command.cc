// `attncheck reproduce`: one case, shown and checked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "properties/cli/command.h"
#include "properties/search/large.h"
#include "properties/search/run.h"

namespace attncheck::properties {

int reproduce_command(const Arguments& arguments) {
    Spec spec;
    try {
        spec = parse(arguments.case_line, schemas());
    } catch (const std::invalid_argument& e) {
        throw UsageError(e.what());
    }
    spec.profile = arguments.profile;
    const Operator& op = *find_operator(spec.schema->op);
    if (const auto why = op.illegal(spec)) throw UsageError("case: " + *why);
    if (!arguments.property.empty() && !op.property(arguments.property)) {
        std::vector<std::string> known;
        for (const auto& property : op.properties()) known.push_back(property.name);
        throw UsageError(fmt::format("{} has no property '{}', known: {}", op.name(),
                                     arguments.property, fmt::join(known, " ")));
    }
    const bool is_large = arguments.property == "sampled" && spec.edits.empty();
    Call call;
    try {
        call = is_large ? op.outline(spec) : op.build(spec);
    } catch (const std::invalid_argument& e) {
        throw UsageError(e.what());
    }
    auto candidate = completed(open_candidate(arguments, true), {op.name()}, arguments);
    if (is_large) candidate = with_forwards(std::move(candidate), arguments);
    say("case      {}\ncandidate {}\n", print(spec), candidate->info().name);
    if (op.implemented_by(candidate->info()))
        for (const auto& source : sources_of(op, *candidate))
            say("  {:<27} of {}\n", source.op, source.implementation);
    for (const Tensor& tensor : call.tensors)
        say("  {:<12} {} [{}] strides [{}]{}{}\n", tensor.name,
                   attncheck::ref::dtype_name(tensor.type()), fmt::join(tensor.shape, ","),
                   fmt::join(tensor.strides, ","), tensor.output ? " output" : "",
                   tensor.present ? "" : " absent");
    for (const HostArray& array : call.arrays)
        say("  {:<12} {}\n", array.name,
                   array.present ? fmt::format("[{}]", fmt::join(array.values, ",")) : "absent");
    for (const Number& number : call.numbers)
        say("  {:<12} {}\n", number.name, number.value);
    const auto ruling = rule(call);
    say("  by the contract: {}\n\n",
               ruling.accepted() ? "legal" : fmt::format("{} ({})", ruling.status, ruling.message));
    if (!op.implemented_by(candidate->info())) {
        say("{} is not implemented by this library\n", op.name());
        return kNothingChecked;
    }
    PropertyContext context{*candidate, rounding_of(arguments, *candidate), nullptr,
                            arguments.samples,
                            missing_outputs(checked_features(arguments, *candidate), operators())};
    int checked = 0, falsified = 0;
    for (const Property& property : op.properties()) {
        if (!arguments.property.empty() && property.name != arguments.property) continue;
        if (property.validation ? spec.edits.empty() : !spec.edits.empty()) continue;
        if (property.domain && !property.domain(spec)) {
            say("{:<20} outside its domain\n", property.name);
            continue;
        }
        const Verdict verdict = check_case(property, spec, context);
        switch (verdict.kind) {
            case Verdict::Kind::held:
                ++checked;
                say("{:<20} held, worst error {:.3g} of its bound\n", property.name,
                           verdict.worst_ratio);
                if (!verdict.message.empty()) say("{}\n", verdict.message);
                break;
            case Verdict::Kind::failed:
                ++checked;
                ++falsified;
                say("{:<20} FALSIFIED: {}\n  {}\n", property.name, verdict.failure,
                           verdict.message);
                break;
            case Verdict::Kind::declined:
                say("{:<20} declined{}{}\n", property.name, verdict.message.empty() ? "" : ": ",
                    verdict.message);
                break;
            case Verdict::Kind::inapplicable:
                say("{:<20} does not apply to this case{}{}\n", property.name,
                    verdict.message.empty() ? "" : ": ", verdict.message);
                break;
        }
    }
    if (falsified > 0) return 1;
    if (checked == 0) say("nothing was checked\n");
    return checked == 0 ? kNothingChecked : 0;
}

}  // namespace attncheck::properties
