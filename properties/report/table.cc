#include "properties/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <string_view>

#include "properties/case/number_text.h"
#include "properties/judge/bound_evidence.h"
#include "properties/report/cause_text.h"
#include "properties/report/causes.h"
#include "properties/report/conclusion.h"
#include "properties/report/exit_status.h"
#include "properties/report/summary.h"
#include "properties/report/terminal.h"

namespace attncheck::properties {

std::string ratio_text(double ratio) { return ratio == 0 ? "0" : fmt::format("{:.3g}", ratio); }

std::string table_of(const std::vector<ReportRow>& rows) {
    std::size_t width = 8;
    for (const ReportRow& row : rows) width = std::max(width, row.op.size());
    std::string out = fmt::format("{:<{}} {:<20} {:<14} {:>7} {:>8} {:>9}  {}\n", "operator", width,
                                  "property", "status", "cases", "declined", "worst err", "note");
    for (const ReportRow& row : rows)
        out += fmt::format("{:<{}} {:<20} {:<14} {:>7} {:>8} {:>9}  {}\n", row.op, width, row.property,
                           row.status, row.cases, row.declined, row.ratio, row.note);
    return out;
}

std::string pairs_table(const std::vector<PairCoverage>& pairs) {
    std::string out;
    for (const PairCoverage& one : pairs)
        out +=
            fmt::format("{}  {:<27} {}\n", out.empty() ? "\npairs of classes in one case:\n" : "",
                        one.op, pairs_text(one.reached(), one.possible));
    return out;
}

namespace {

std::string title_of(const PropertyReport& property, const Counterexample& found) {
    return fmt::format("{}.{}: {} ({})", property.op, property.property, found.failure,
                       found.case_number > 0 ? fmt::format("case {}", found.case_number) : "replayed");
}

/// Why, where a library declined every case.
std::string nothing_checked(const RunReport& report) {
    const auto why = std::ranges::find_if(report.properties, [](const PropertyReport& p) {
        return p.status == PropertyReport::Status::declined && !p.note.empty();
    });
    return why == report.properties.end()
               ? "nothing was checked\n"
               : fmt::format("nothing was checked: {}: {}\n", why->op, why->note);
}

bool has_several_operators(const RunReport& report) {
    std::set<std::string_view> ops;
    for (const PropertyReport& p : report.properties)
        if (p.status != PropertyReport::Status::not_implemented) ops.insert(p.op);
    return ops.size() > 1;
}

/// Why a run ends with neither a failure nor a verdict, and what to do.
std::string nothing_decided(const RunReport& report) {
    const auto inconclusive = std::ranges::count(
        report.properties, PropertyReport::Status::inconclusive, &PropertyReport::status);
    if (inconclusive == 0)
        return std::ranges::all_of(report.properties, [](const auto& p) { return p.cases + p.replayed == 0; })
                   ? nothing_checked(report)
                   : "inconclusive: nothing falsified, but not every law was run\n";
    std::string text = fmt::format("inconclusive: nothing falsified, but {} of {} properties met too few cases",
                                   inconclusive, std::ranges::count_if(report.properties, applies));
    if (const std::int64_t time = sufficient_time(report); time > 0)
        text += fmt::format("; --time {} is about enough{}", time, has_several_operators(report) ? ", --op checks less" : "");
    return text + "\n";
}

}  // namespace

void print_counterexample(std::ostream& out, const RunReport& report,
                          const PropertyReport& property, const Counterexample& found) {
    const Failure failure{property.op, property.property, found.failure, message_of(found), {}, found.tier, {}, found.certificate};
    out << "\n"
        << shaded(out, Shade::bad, "FALSIFIED") << " " << title_of(property, found) << (is_wrong_alone(failure) ? kWhenAlone : "") << "\n";
    const std::string& message = message_of(found);
    out << fitted(out, "  " + message + "\n", 4);
    if (found.tier == Tier::filter || found.tier == Tier::deviation) {
        if (found.found_message != message)
            out << fitted(out,
                          "  on the case as found: " +
                              found.found_message.substr(0, found.found_message.find('\n')) + "\n",
                          4);
        out << fitted(out,
                      "  a statistical verdict: below the smallest case the same defect drowns in "
                      "rounding\n",
                      4);
    } else if (const std::string picture = picture_of(found.found_message);
               !picture.empty() && picture_of(message).empty()) {
        out << "  on the case as found, " << picture << "\n";
    }
    const bool is_as_found = found.original == found.spec;
    if (!is_as_found) out << "  found    " << print(found.original) << "\n";
    out << (is_as_found ? "  found    " : is_of_stopped(found.certificate) ? "  smaller  " : "  smallest ") << shaded(out, Shade::strong, print(found.spec)) << "\n";
    if (!found.matters.empty()) out << fitted(out, "  matters  one by one: " + found.matters + "\n", 11);
    if (found.tier == Tier::validation && message.starts_with("returned 0,"))
        out << fitted(out, "  a library that checks no arguments: --no-validation leaves such calls out\n", 4);
    out << fitted(out,
                  fmt::format("  {} ({} steps, {} neighbours tried, {:.1f} s)\n", found.certificate,
                              found.steps_taken, found.neighbours_tried, found.shrink_seconds),
                  4);
    out << "  replay   " << reproduce_command(report, property, found) << "\n";
}

void print_found(std::ostream& out, const PropertyReport& property, const Counterexample& found) {
    out << shaded(out, Shade::bad, "found") << " "
        << fitted(out, title_of(property, found) + ", shrinking\n", 6) << "      " << print(found.original) << "\n";
}

void print_another(std::ostream& out, const PropertyReport& property, const Counterexample& found) {
    out << fitted(out, "also " + title_of(property, found) + "\n", 5);
}

void print_end(std::ostream& out, const RunReport& report, const std::vector<Cause>& causes, int status, bool verbose) {
    std::int64_t cases = 0, replayed = 0, waived = 0;
    for (const auto& p : report.properties) {
        cases += p.cases;
        replayed += p.replayed;
        waived += p.waived;
    }
    if (waived > 0) {
        out << "\nwaived:\n";
        for (const auto& p : report.properties)
            for (const auto& reason : p.waivers)
                out << fmt::format("  {}.{}: {}\n", p.op, p.property, reason);
    }
    std::string totals = fmt::format("\n{}: {}", report.candidate, counted(cases, "case"));
    if (replayed > 0) totals += fmt::format(" and {} replayed", replayed);
    totals += fmt::format(
        " in {:.1f} s ({:.0f} cases/s), seed {}. worst err: largest error in units of its bound.\n",
        report.duration_s,
        report.duration_s > 0 ? static_cast<double>(cases + replayed) / report.duration_s : 0.0,
        report.seed);
    out << fitted(out, totals, 2);
    if (!report.sandbox.empty())
        out << fitted(out, fmt::format("sandbox: {}\n", report.sandbox), 2);
    if (const std::string observed = observed_precision(report); !observed.empty())
        out << fitted(out,
                      fmt::format("precision: declared {}; errors look like {}\n", report.precision,
                                  observed),
                      2);
    if (const std::string wider = wider_than_seen(report); !wider.empty())
        out << fitted(out, fmt::format("precision: {}\n", wider), 2);
    if (verbose) out << fitted(out, beside_rigorous(observed_bounds(report)), 2);
    std::int64_t differing = 0;
    for (const auto& p : report.properties) differing += p.differing;
    if (const std::string text = order_text(differing); !text.empty())
        out << fitted(out, fmt::format("order: {}\n", text), 2);
    for (const std::string& note : report.notes) out << fitted(out, fmt::format("note: {}\n", note), 2);
    if (report.interrupted) out << "interrupted: this is what was found so far\n";
    switch (status) {
        case kHeld:
            out << shaded(out, Shade::good, "every property held")
                << (waived > 0 ? ", " + counted(waived, "case") + " waived\n" : "\n");
            break;
        case kFalsified:
            out << shaded(out, Shade::bad, "falsified") << verdict_text(causes, report) << "\n";
            break;
        case kInterrupted:
            out << "nothing falsified so far\n";
            break;
        case kNotJudged:
            out << fmt::format("{} of {} properties could not be judged; nothing was falsified\n",
                               std::ranges::count(report.properties, PropertyReport::Status::error,
                                                  &PropertyReport::status),
                               std::ranges::count_if(report.properties, [](const PropertyReport& one) {
                                   return one.status != PropertyReport::Status::not_implemented;
                               }));
            break;
        default:
            out << fitted(out, nothing_decided(report), 2);
    }
}

void print_table(std::ostream& out, const RunReport& report, bool verbose) {
    std::vector<ReportRow> rows;
    std::map<std::string, std::map<std::string, std::int64_t>> labels;
    for (const auto& p : report.properties) {
        if (p.status == PropertyReport::Status::not_implemented) continue;  // the summary names the operators once
        std::string note = p.note;
        for (const auto& found : p.counterexamples)
            note += (note.empty() ? "" : "; ") + found.failure;
        if (p.replayed > 0)
            note += fmt::format("{}{} replayed", note.empty() ? "" : "; ", p.replayed);
        if (p.waived > 0) note += fmt::format("{}{} waived", note.empty() ? "" : "; ", p.waived);
        if (p.elements.unjudged > 0)
            note += fmt::format("{}{:.2g} % of elements unjudged", note.empty() ? "" : "; ",
                                100 * p.elements.share());
        rows.push_back({p.op, p.property, std::string(name_of(p.status)), std::to_string(p.cases),
                        std::to_string(p.declined), std::to_string(p.waived),
                        ratio_text(p.worst_ratio), note});
        for (const auto& [label, count] : p.labels) labels[p.op][label] += count;
    }
    out << "\n" << (verbose ? fitted(out, table_of(rows), 31) + not_implemented_by(report) : summary_of(report));
    const std::vector<Cause> causes = print_causes(out, report, verbose);
    for (const auto& [op, counts] : labels) {
        if (!verbose) break;
        std::string classes = fmt::format("\nclasses reached by {}:", op);
        for (const auto& [label, count] : counts) classes += fmt::format(" {}={}", label, count);
        out << fitted(out, classes + "\n", 2);
    }
    if (verbose) out << pairs_table(report.pairs);
    for (const auto& [op, taken] : report.taken)
        out << "\n"
            << fitted(out, fmt::format("{} takes only {}\n", op, taken.text), 2)
            << (taken.refusals.empty()
                    ? ""
                    : fitted(out, fmt::format("  what keeps most cases outside: {}\n", taken.refusals), 4));
    std::string composition;
    for (const auto& source : report.sources) {
        if (!verbose) break;
        if (source.composition != composition)
            out << fmt::format("\noperators of {}:\n", source.composition);
        composition = source.composition;
        out << fmt::format("  {:<27} {}\n", source.op, source.implementation);
    }
    print_end(out, report, causes, exit_status(report), verbose);
}

}  // namespace attncheck::properties
