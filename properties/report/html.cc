// The run as one self-contained page.
#include <fmt/format.h>

#include "properties/report/markup.h"

namespace attncheck::properties {

namespace {

/// The list of what is missing, folded.
std::string missing_html(const std::vector<std::string>& missing) {
    std::string list;
    for (const std::string& pair : missing) list += xml_escaped(pair) + "\n";
    return missing.empty() ? list
                           : "<details><summary>missing</summary><pre>" + list + "</pre></details>";
}

}  // namespace

std::string to_html(const RunReport& report) {
    std::string rows, details;
    for (const auto& p : report.properties) {
        rows += fmt::format(
            "<tr class=\"{0}\"><td>{1}<td>{2}<td>{0}<td>{3}<td>{4}<td>{5:.3g}<td>{6}</tr>\n",
            name_of(p.status), xml_escaped(p.op), xml_escaped(p.property), p.cases, p.declined,
            p.worst_ratio, xml_escaped(p.note));
        for (const auto& found : p.counterexamples)
            details += fmt::format(
                "<h2>{}.{}: {}</h2>\n<pre>{}\n\nfound    {}\nsmallest {}\n{}\n\n{}</pre>\n",
                xml_escaped(p.op), xml_escaped(p.property), xml_escaped(found.failure),
                xml_escaped(found.message), xml_escaped(print(found.original)),
                xml_escaped(print(found.spec)), xml_escaped(found.certificate),
                xml_escaped(reproduce_command(report, p, found)));
    }
    std::string pairs;
    for (const PairCoverage& one : report.pairs)
        pairs += fmt::format("<li>{}: {}{}\n", xml_escaped(one.op),
                             pairs_text(one.reached(), one.possible), missing_html(one.missing));
    if (!pairs.empty()) pairs = "<h2>pairs of classes in one case</h2>\n<ul>\n" + pairs + "</ul>\n";
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>attncheck: {0}</title>\n"
        "<style>body{{font:15px "
        "sans-serif;margin:2em}}table{{border-collapse:collapse}}td,th{{padding:2px "
        "12px;text-align:left;"
        "border-bottom:1px solid "
        "#ddd}}.falsified,.error{{background:#fdd}}pre{{white-space:pre-wrap;background:#f4f4f4;"
        "padding:1em}}"
        "</style>\n<h1>{0}</h1>\n<p>seed {1}, {2:.1f} "
        "s{3}</p>\n<table><tr><th>operator<th>property<th>status<th>cases<th>declined"
        "<th>worst error / bound<th>note</tr>\n{4}</table>\n{6}{5}</html>\n",
        xml_escaped(report.candidate), report.seed, report.duration_s,
        report.interrupted ? ", interrupted" : "", rows, details, pairs);
}

}  // namespace attncheck::properties
