#include <fmt/format.h>

#include "properties/case/printable.h"
#include "properties/report/markup.h"

namespace attncheck::properties {

std::string xml_escaped(const std::string& text) {
    std::string out;
    for (const char ch : printable(text)) {  // XML has no control characters, and UTF-8 only
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
        else
            out += ch;
    }
    return out;
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

}  // namespace attncheck::properties
