"""The HTML report in a browser: no errors on its console, and its numbers are those of the JSON.

    check_page.py ATTNCHECK CANDIDATE [--screenshots DIR]

Exit status 77 where no Chromium is installed: CTest counts the test as skipped.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser


class Page(HTMLParser):
    """Texts of the elements that have an id or a class, and the cells of table rows by class."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.texts, self.causes, self.smallest, self._cells, self._open = [], {}, 0, 0, None, []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "tr":
            self._cells = (attrs.get("class", ""), [])
        elif tag == "td" and self._cells:
            self._cells[1].append("")
        elif tag == "article" and "cause" in attrs.get("class", ""):
            self.causes += 1
        if tag == "script":
            self._script = True
        if "id" in attrs and tag != "script":
            self._open.append((tag, attrs["id"]))

    def handle_endtag(self, tag):
        if tag == "tr" and self._cells:
            self.rows.append(self._cells)
            self._cells = None
        if tag == "script":
            self._script = False
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data):
        if self._script:
            return
        self.smallest += data == "smallest case"
        if self._cells and self._cells[1]:
            self._cells[1][-1] += data
        if self._open:
            name = self._open[-1][1]
            self.texts[name] = self.texts.get(name, "") + data


def browser(chromium, *arguments, page):
    done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *arguments,
                           page.as_uri()], capture_output=True, text=True, timeout=120)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


def check(condition, *what):
    if not condition:
        sys.exit("check_page: " + " ".join(str(one) for one in what))


def counterexamples(law):
    return ([law["counterexample"]] if "counterexample" in law else []) + law.get("more_counterexamples", [])


def compare(page, report):
    laws = [cells for name, cells in page.rows if name == "law"]
    implemented = {p["op"] for p in report["properties"] if p["status"] != "not_implemented"}
    wanted = [p for p in report["properties"] if p["op"] in implemented]
    check(len(laws) == len(wanted), "the page has", len(laws), "laws, the report", len(wanted))
    for cells, law in zip(laws, wanted):
        check(cells[0] == law["property"] and cells[1] == law["status"].replace("_", " "), cells, "against", law["property"], law["status"])
        check(int(cells[2]) == law["cases"] and int(cells[3]) == law["declined"], cells, "against", law["cases"], law["declined"])
        if law["cases"]:
            ratio, shown = law["worst_error_ratio"], cells[4]
            check(shown == "∞" if ratio is None else abs(float(shown) - ratio) <= 0.005 * ratio + 1e-300, cells, "against", ratio)
    total = sum(p["cases"] for p in report["properties"])
    held = sum(p["status"] == "held" for p in report["properties"])
    check(f"{total} cases" in page.texts["totals"] and page.texts["totals"].startswith(f"{held} of "), page.texts["totals"])
    check(page.texts["verdict"].startswith(report["verdict"].replace("_", " ")), page.texts["verdict"])
    check(page.causes == len(report["causes"]), "the page has", page.causes, "causes, the report", len(report["causes"]))
    shrunk = [one for p in wanted for one in counterexamples(p) if not one["certificate"].startswith("not shrunk") and not one["certificate"].endswith("shown as found")]
    check(page.smallest == len(shrunk), "the page has", page.smallest, "smallest cases, the report", len(shrunk))
    binned = sum(bin["cases"] for p in wanted for bin in p["worst_errors"] if p["worst_error_ratio"] != 0)
    shown = sum(int(cells[1]) for name, cells in page.rows if name == "" and len(cells) == 2 and re.fullmatch(r"exact|[0-9.e+-]+", cells[0]))
    check(binned == shown, "the plots have", shown, "cases, the report", binned)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attncheck"), parser.add_argument("candidate")
    parser.add_argument("--screenshots")
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("no Chromium is installed: the page was not tested")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        page, data = folder / "report.html", folder / "report.json"
        done = subprocess.run([args.attncheck, "verify", "--op", "nsa_compress", "--property", "agreement", "--property", "memory",
                               "--property", "deviation", "--cases", "40", "--seed", "1", "--candidate", args.candidate,
                               "--html", page, "--json", data], env={"XDG_CACHE_HOME": str(folder), "PATH": "/usr/bin:/bin"},
                              capture_output=True, text=True)
        check(done.returncode == 1, done.stdout, done.stderr)
        report = json.loads(data.read_text())
        # One case as the run leaves it that had no time to shrink it.
        found = next(one for law in report["properties"] for one in counterexamples(law))
        page.write_text(page.read_text().replace(json.dumps(found["certificate"]), '"not shrunk to its end"', 1))
        found["certificate"] = "not shrunk to its end"
        dom, console = browser(chromium, "--dump-dom", page=page)
        check(not console, "the console says", *console)
        compare(Page(dom), report)
        # The check sees what is wrong: an error of the page, and another number.
        broken = folder / "broken.html"
        broken.write_text(page.read_text().replace("'use strict';", "'use strict'; missing();", 1))
        check(browser(chromium, "--dump-dom", page=broken)[1], "an error of the page was not seen")
        report["properties"][0]["cases"] += 1
        try:
            compare(Page(dom), report)
        except SystemExit:
            pass
        else:
            check(False, "another number was not seen")
        if args.screenshots:
            for mode, scheme in (("dark", 0), ("light", 1)):
                for name, width in (("wide", 1200), ("phone", 400)):
                    browser(chromium, f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={width},4000",
                            f"--screenshot={pathlib.Path(args.screenshots, f'{mode}_{name}.png').absolute()}", page=page)
    print("the page has no errors, and the numbers of the report")
    return 0


if __name__ == "__main__":
    sys.exit(main())
