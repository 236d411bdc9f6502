#include "properties/report/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "properties/report/json.h"
#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

Json to_json_value(const RunReport& report, const PropertyReport& property,
                   const Counterexample& found) {
    return {{"case", print(found.spec)},
            {"original_case", print(found.original)},
            {"shrinks", found.steps_taken},
            {"message", found.failure + ": " + found.message},
            {"reproduce", reproduce_command(report, property, found)},
            {"failure", found.failure},
            {"tier", found.tier},
            {"message_as_found", found.found_message},
            {"certificate", found.certificate},
            {"found_after_cases", found.case_number},
            {"repeatable", found.repeatable},
            {"shrink_seconds", found.shrink_seconds}};
}

}  // namespace

std::string ratio_text(double ratio) { return ratio == 0 ? "0" : fmt::format("{:.3g}", ratio); }

std::string table_of(const std::vector<ReportRow>& rows) {
    std::string out = fmt::format("{:<18} {:<20} {:<15} {:>7} {:>8} {:>9}  {}\n", "operator",
                                  "property", "status", "cases", "declined", "worst err", "note");
    for (const ReportRow& row : rows)
        out += fmt::format("{:<18} {:<20} {:<15} {:>7} {:>8} {:>9}  {}\n", row.op, row.property,
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

int status_code(const std::vector<std::string>& statuses, std::int64_t checked) {
    for (const auto& status : statuses)
        if (status == "falsified" || status == "error") return 1;
    return checked == 0 ? 3 : 0;
}

std::string shell_quoted(const std::string& text) {
    std::string out = "'";
    for (const char ch : text) out += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
    return out + "'";
}

std::string xml_escaped(const std::string& text) {
    std::string out;
    for (const char ch : text) {
        if (ch == '&')
            out += "&amp;";
        else if (ch == '<')
            out += "&lt;";
        else if (ch == '>')
            out += "&gt;";
        else if (ch == '"')
            out += "&quot;";
        else if (ch == '\n')
            out += "&#10;";
        else if (static_cast<unsigned char>(ch) < 0x20)
            out += '?';
        else
            out += ch;
    }
    return out;
}

int exit_status(const RunReport& report) {
    std::vector<std::string> statuses;
    std::int64_t checked = 0;
    for (const auto& property : report.properties) {
        statuses.emplace_back(name_of(property.status));
        checked += property.cases + property.replayed;
    }
    return status_code(statuses, checked);
}

std::string observed_precision(const RunReport& report) {
    std::vector<CastEvidence> all;
    for (const auto& p : report.properties)
        for (const CastEvidence& cast : p.casts) add_evidence(all, cast);
    return words_of(all);
}

std::string reproduce_command(const RunReport& report, const PropertyReport& property,
                              const Counterexample& found) {
    std::string command = "attncheck reproduce " + shell_quoted(print(found.spec)) +
                          " --property " + property.property;
    if (report.samples != PropertyContext::kSamples && property.property == "sampled")
        command += fmt::format(" --samples {}", report.samples);
    if (report.profile != Profile{})
        command += fmt::format(" --profile {}", name_of(report.profile));
    if (!report.precision_option.empty())
        command += " --precision " + shell_quoted(report.precision_option);
    if (!report.library.empty()) command += " --candidate " + shell_quoted(report.library);
    return command;
}

void print_counterexample(std::ostream& out, const RunReport& report,
                          const PropertyReport& property, const Counterexample& found) {
    out << fmt::format(
        "\nFALSIFIED {}.{}: {} ({})\n", property.op, property.property, found.failure,
        found.case_number > 0 ? fmt::format("case {}", found.case_number) : "replayed");
    out << "  " << found.message << "\n";
    if (found.tier == "filter" || found.tier == "deviation") {
        if (found.found_message != found.message)
            out << "  on the case as found: "
                << found.found_message.substr(0, found.found_message.find('\n')) << "\n";
        out << "  a statistical verdict: below the smallest case the same defect drowns in "
               "rounding\n";
    }
    out << "  found    " << print(found.original) << "\n";
    out << "  smallest " << print(found.spec) << "\n";
    out << fmt::format("  {} ({} steps, {} neighbours tried, {:.1f} s)\n", found.certificate,
                       found.steps_taken, found.neighbours_tried, found.shrink_seconds);
    out << "  replay   " << reproduce_command(report, property, found) << "\n";
}

void print_table(std::ostream& out, const RunReport& report) {
    std::vector<ReportRow> rows;
    std::map<std::string, std::map<std::string, std::int64_t>> labels;
    std::int64_t cases = 0, replayed = 0, waived = 0;
    for (const auto& p : report.properties) {
        std::string note = p.note;
        for (const auto& found : p.counterexamples)
            note += (note.empty() ? "" : "; ") + found.failure;
        if (p.replayed > 0)
            note += fmt::format("{}{} replayed", note.empty() ? "" : "; ", p.replayed);
        if (p.waived > 0) note += fmt::format("{}{} waived", note.empty() ? "" : "; ", p.waived);
        rows.push_back({p.op, p.property, std::string(name_of(p.status)), std::to_string(p.cases),
                        std::to_string(p.declined), std::to_string(p.waived),
                        ratio_text(p.worst_ratio), note});
        for (const auto& [label, count] : p.labels) labels[p.op][label] += count;
        cases += p.cases;
        replayed += p.replayed;
        waived += p.waived;
    }
    out << "\n" << table_of(rows);
    for (const auto& [op, counts] : labels) {
        out << "\nclasses reached by " << op << ":";
        for (const auto& [label, count] : counts) out << fmt::format(" {}={}", label, count);
        out << "\n";
    }
    out << pairs_table(report.pairs);
    std::string composition;
    for (const auto& source : report.sources) {
        if (source.composition != composition)
            out << fmt::format("\noperators of {}:\n", source.composition);
        composition = source.composition;
        out << fmt::format("  {:<27} {}\n", source.op, source.implementation);
    }
    if (waived > 0) {
        out << "\nwaived:\n";
        for (const auto& p : report.properties)
            for (const auto& reason : p.waivers)
                out << fmt::format("  {}.{}: {}\n", p.op, p.property, reason);
    }
    out << fmt::format("\n{}: {} cases", report.candidate, cases);
    if (replayed > 0) out << fmt::format(" and {} replayed", replayed);
    out << fmt::format(
        " in {:.1f} s ({:.0f} cases/s), seed {}. worst err: largest error in units of its bound.\n",
        report.duration_s,
        report.duration_s > 0 ? static_cast<double>(cases + replayed) / report.duration_s : 0.0,
        report.seed);
    if (const std::string observed = observed_precision(report); !observed.empty())
        out << fmt::format("precision: declared {}; errors look like {}\n", report.precision,
                           observed);
    if (report.interrupted) out << "interrupted: this is what was found so far\n";
    switch (exit_status(report)) {
        case 0:
            out << (report.interrupted ? "nothing falsified so far\n" : "every property held\n");
            break;
        case 1:
            out << "falsified\n";
            break;
        default:
            out << "nothing was checked\n";
    }
}

std::string to_json(const RunReport& report) {
    Json properties = Json::array();
    for (const auto& p : report.properties) {
        Json entry{{"op", p.op},
                   {"property", p.property},
                   {"status", name_of(p.status)},
                   {"cases", p.cases},
                   {"declined", p.declined},
                   {"labels", Json::object()},
                   {"worst_error_ratio", number_or_text(p.worst_ratio)},
                   {"waived", p.waived},
                   {"replayed", p.replayed},
                   {"seconds", p.seconds}};
        for (const auto& [label, count] : p.labels) entry["labels"][label] = count;
        if (!p.casts.empty()) entry["casts"] = casts_json(p.casts);
        if (!p.note.empty()) entry["note"] = p.note;
        if (!p.coverage.empty()) entry["coverage"] = p.coverage;
        if (!p.waivers.empty()) entry["waivers"] = p.waivers;
        if (!p.counterexamples.empty())
            entry["counterexample"] = to_json_value(report, p, p.counterexamples.front());
        for (std::size_t k = 1; k < p.counterexamples.size(); ++k)
            entry["more_counterexamples"].push_back(to_json_value(report, p, p.counterexamples[k]));
        properties.push_back(std::move(entry));
    }
    Json whole{
        {"schema", 1},
        {"candidate", report.candidate},
        {"seed", report.seed},
        {"duration_s", report.duration_s},
        {"interrupted", report.interrupted},
        {"precision", {{"declared", report.precision}, {"looks_like", observed_precision(report)}}},
        {"properties", properties}};
    for (const PairCoverage& one : report.pairs)
        whole["pairs"][one.op] = pairs_json(one.possible, one.missing);
    for (const auto& source : report.sources)
        whole["implementations"][source.composition][source.op] = source.implementation;
    return whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_junit(const RunReport& report) {
    std::string pairs, cases;
    for (const PairCoverage& one : report.pairs)
        pairs += fmt::format("    <property name=\"{}\" value=\"{}\"/>\n", xml_escaped(one.op),
                             pairs_text(one.reached(), one.possible));
    if (!pairs.empty()) pairs = "  <properties>\n" + pairs + "  </properties>\n";
    int failures = 0, errors = 0, skipped = 0;
    for (const auto& p : report.properties) {
        cases +=
            fmt::format("  <testcase classname=\"attncheck.{}\" name=\"{}\" time=\"{:.3f}\">\n",
                        xml_escaped(p.op), xml_escaped(p.property), p.seconds);
        switch (p.status) {
            case PropertyReport::Status::held:
                break;
            case PropertyReport::Status::falsified:
                ++failures;
                for (const auto& found : p.counterexamples)
                    cases += fmt::format(
                        "    <failure type=\"{}\" message=\"{}\">{}&#10;{}&#10;{}</failure>\n",
                        xml_escaped(found.failure), xml_escaped(found.message),
                        xml_escaped(print(found.spec)), xml_escaped(found.certificate),
                        xml_escaped(reproduce_command(report, p, found)));
                break;
            case PropertyReport::Status::error:
                ++errors;
                cases += fmt::format("    <error message=\"{}\"/>\n", xml_escaped(p.note));
                break;
            default:
                ++skipped;
                cases += fmt::format("    <skipped message=\"{}\"/>\n", name_of(p.status));
        }
        cases += "  </testcase>\n";
    }
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"attncheck {}\" tests=\"{}\" "
        "failures=\"{}\" "
        "errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n{}{}</testsuite>\n",
        xml_escaped(report.candidate), report.properties.size(), failures, errors, skipped,
        report.duration_s, pairs, cases);
}

void write_file(const std::string& path, const std::string& text) {
    const std::string temporary = fmt::format("{}.{}.part", path, getpid());
    {
        std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
        out << text;
        out.flush();
        if (!out) {
            std::remove(temporary.c_str());
            throw std::runtime_error(fmt::format("cannot write {}", path));
        }
    }
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
        std::remove(temporary.c_str());
        throw std::runtime_error(fmt::format("cannot write {}", path));
    }
}

void check_writable(const std::string& path) {
    if (std::filesystem::is_directory(path))
        throw std::runtime_error(fmt::format("cannot write {}: it is a directory", path));
    const std::string temporary = fmt::format("{}.{}.part", path, getpid());
    const int fd = open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd < 0) throw std::runtime_error(fmt::format("cannot write {}", path));
    close(fd);
    std::remove(temporary.c_str());
}

}  // namespace attncheck::properties
