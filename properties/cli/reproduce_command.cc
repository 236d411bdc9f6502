// `attncheck reproduce`: one case, shown and checked.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "properties/cli/case_values.h"
#include "properties/cli/command.h"
#include "properties/cli/names.h"
#include "properties/report/conclusion.h"
#include "properties/report/last_report.h"
#include "properties/report/terminal.h"
#include "properties/search/declared_calls.h"
#include "properties/search/large.h"
#include "properties/search/run.h"

namespace attncheck::properties {

namespace {

/// The number of "@N"; 0: the text is a case line.
int number_in(const std::string& text) {
    if (!text.starts_with('@')) return 0;
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + 1, end, number);
    if (read.ec != std::errc{} || read.ptr != end || number < 1)
        throw UsageError(fmt::format("'{}' is no counterexample, expected @ and a number from 1", text));
    return number;
}

constexpr std::string_view kByChance = "concurrent";

/// Which calls of several threads meet is a matter of timing: a law that asks for that is asked again, until it fails.
Verdict check_for_seconds(const Property& property, const Spec& spec, PropertyContext& context) {
    constexpr int kTries = 30;
    constexpr double kSeconds = 5;
    const auto begin = std::chrono::steady_clock::now();
    Verdict verdict;
    int tries = 0;
    do {
        verdict = check_case(property, spec, context);
        ++tries;
    } while (verdict.kind == Verdict::Kind::held && tries < kTries &&
             std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(kSeconds));
    if (verdict.kind == Verdict::Kind::held)
        verdict.message = fmt::format("  in {} tries; which calls meet is a matter of timing", tries);
    if (verdict.failed() && tries > 1) verdict.message += fmt::format("\n  in try {}", tries);
    return verdict;
}

/// "held, worst error 0.4 of its bound", or why that says little.
std::string held_text(const Verdict& verdict, std::string_view law) {
    const auto& [compared, unjudged] = verdict.elements;
    if (law == kComparing && compared == 0) return "held: no element to compare";
    if (compared > 0 && unjudged == compared)
        return fmt::format("held: any result is accepted, the bounds of all {} elements are as wide as the type",
                           compared);
    std::string text = fmt::format("held, worst error {:.3g} of its bound", verdict.worst_ratio);
    if (unjudged > 0) text += fmt::format("; the bound is as wide as the type for {} of {} elements", unjudged, compared);
    return text;
}

}  // namespace

Arguments with_counterexample(Arguments arguments) {
    const int number = number_in(arguments.case_line);
    if (number == 0 && !arguments.report.empty())
        throw UsageError("--report names a report, but the case is given: expected @N");
    if (number == 0) return arguments;
    const std::string path = arguments.report.empty() ? last_report_path() : arguments.report;
    if (path.empty())
        throw UsageError(fmt::format("{}: without HOME or XDG_CACHE_HOME no run keeps its report; --report names a JSON report", arguments.case_line));
    if (arguments.report.empty() && !std::filesystem::exists(path))
        throw UsageError(fmt::format("{}: no run has found anything yet; --report names a JSON report",
                                     arguments.case_line));
    const Replay replay = replay_of(path, number);
    arguments.case_line = replay.case_line;
    arguments.source = fmt::format("of the run {}({})", replay.date.empty() ? "" : fmt::format("that ended at {} ", replay.date), path);
    if (!replay.note.empty()) arguments.source += "\nnote      " + printable_line(replay.note, kLongestMessage);
    if (arguments.property.empty()) arguments.property = replay.property;
    if (arguments.candidate.empty()) arguments.candidate = replay.library;
    if (arguments.python.empty()) arguments.python = replay.python;
    if (arguments.precision.empty()) arguments.precision = replay.precision;
    if (arguments.variables.empty()) arguments.variables = replay.variables;
    for (const SandboxMode mode : {SandboxMode::off, SandboxMode::on, SandboxMode::strict})
        if (!arguments.given.contains("--sandbox") && name_of(mode) == replay.sandbox) arguments.sandbox = mode;
    if (!arguments.given.contains("--timeout") && replay.timeout > 0) arguments.timeout = replay.timeout;
    if (!arguments.given.contains("--memory") && replay.memory > 0) arguments.memory = replay.memory;
    if (replay.samples > 0) arguments.samples = replay.samples;
    const auto profile = std::ranges::find(kProfileNames, replay.profile);
    if (profile != kProfileNames.end())
        arguments.profile = static_cast<Profile>(profile - kProfileNames.begin());
    return arguments;
}

LegalCase legal_case(const Arguments& arguments) {
    LegalCase legal;
    legal.spec = case_of(arguments.case_line);
    legal.spec.profile = arguments.profile;
    legal.op = find_operator(legal.spec.schema->op);
    if (const auto why = legal.op->illegal(legal.spec)) throw UsageError("case: " + *why);
    return legal;
}

int reproduce_command(const Arguments& given) {
    const Arguments arguments = with_counterexample(given);
    const LegalCase legal = legal_case(arguments);
    const Operator& op = *legal.op;
    const Spec& spec = legal.spec;
    if (!arguments.property.empty() && !op.property(arguments.property)) {
        std::vector<std::string> known;
        for (const auto& property : op.properties()) known.push_back(property.name);
        throw UsageError(op.name() + ": " + unknown_name("property", arguments.property, known));
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
    prepare_terminal(std::cout, STDOUT_FILENO);
    if (!arguments.source.empty()) say("{:<9} {}\n", given.case_line, arguments.source);
    say("case      {}\ncandidate {}{}\n", print(spec), candidate->info().name,
        arguments.candidate.empty() ? " (--candidate runs another one)" : "");
    for (const std::string& note : unset_variables(arguments)) say("note      {}\n", note);
    const Arguments usual;
    if (arguments.timeout != usual.timeout) say("timeout   {:g} s for one call\n", arguments.timeout);
    if (arguments.memory != usual.memory) say("memory    {} MiB for the library\n", arguments.memory);
    if (arguments.sandbox != usual_sandbox()) say("sandbox   {}\n", sandbox_level(arguments));
    if (op.implemented_by(candidate->info()))
        for (const auto& source : sources_of(op, *candidate))
            say("  {:<27} of {}\n", source.op, source.implementation);
    print_arguments(call);
    const auto ruling = rule(call);
    say("  by the contract: {}\n\n",
               ruling.accepted() ? "legal" : fmt::format("{} ({})", ruling.status, ruling.message));
    if (!op.implemented_by(candidate->info())) {
        say("{} is not implemented by this library\n", op.name());
        return kNothingChecked;
    }
    const std::string features = checked_features(arguments, *candidate);
    DeclaredCalls declared(*candidate, declared_cases(features, operators()));
    PropertyContext context{declared,
                            rounding_of(arguments, *candidate),
                            nullptr,
                            arguments.samples,
                            missing_outputs(features, operators()),
                            declared_cases(features, operators()),
                            companion_calls};
    const bool has_call = op.schema().entry.pack && !is_large;
    if (has_call && (!arguments.dump.empty() || spec.edits.empty())) {
        const CaseValues values = values_of(op, spec, call, *candidate, context.rounding);
        const bool printed = print_outputs(values);
        if (!arguments.dump.empty()) {
            dump_values(values, print(spec), arguments.dump);
            say("tensors are in {}\n", arguments.dump);
        }
        if (printed || !arguments.dump.empty()) say("\n");
    } else if (!arguments.dump.empty()) {
        throw UsageError("--dump writes the tensors of one call: `sampled` has rows only, and a composition "
                         "has calls of other operators");
    }
    int checked = 0, falsified = 0;
    for (const Property& property : op.properties()) {
        if (!arguments.property.empty() && property.name != arguments.property) continue;
        if (property.validation ? spec.edits.empty() : !spec.edits.empty()) continue;
        if (property.domain && !property.domain(spec)) {
            say("{:<20} outside its domain\n", property.name);
            continue;
        }
        declared.turn(!property.validation && context.takes(spec));
        const Verdict verdict = arguments.property == kByChance ? check_for_seconds(property, spec, context)
                                                                : check_case(property, spec, context);
        switch (verdict.kind) {
            case Verdict::Kind::held:
                ++checked;
                say("{:<20} {}\n", property.name, held_text(verdict, property.name));
                if (!verdict.message.empty()) say("{}\n", verdict.message);
                break;
            case Verdict::Kind::failed:
                ++checked;
                ++falsified;
                std::cout << fitted(std::cout,
                                    fmt::format("{:<20} FALSIFIED: {}\n  {}\n", property.name, verdict.failure,
                                                verdict.message),
                                    4);
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
