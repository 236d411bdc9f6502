#!/usr/bin/env python3
"""Writes properties/search/law_order.txt from the mutation scores: the laws by kills per second.

    tests/mutants/law_order.py            # writes the table
    tests/mutants/law_order.py --check    # exit status 1 if the table is not that of the scores
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "properties/search/law_order.txt"
# A law with one quick kill does not come before one with hundreds: that much time counts for every law.
SECONDS_BEFORE = 10
HEAD = """# Laws by kills per second, from tests/mutants/scores/*.json; written by tests/mutants/law_order.py.
# cases: 95 of 100 kills need no more. seconds: until the kills, all together.
# law kills seconds cases
"""


def table() -> str:
    kills: dict[str, list[tuple[float, int]]] = {}
    for path in sorted((ROOT / "tests/mutants/scores").glob("*.json")):
        for mutant in json.loads(path.read_text())["mutants"]:
            if mutant.get("killed"):
                law = mutant["property"].split(".")[1]
                if law == "sampled":  # of `--large`, which no usual run has
                    continue
                kills.setdefault(law, []).append((mutant["seconds"], mutant["cases"]))

    def rate(law: str) -> float:
        return len(kills[law]) / (SECONDS_BEFORE + sum(seconds for seconds, _ in kills[law]))

    text = HEAD
    for law in sorted(kills, key=lambda law: (-rate(law), law)):
        cases = sorted(count for _, count in kills[law])
        text += (f"{law} {len(cases)} {sum(seconds for seconds, _ in kills[law]):.1f} "
                 f"{cases[(95 * len(cases) - 1) // 100]}\n")
    return text


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if TABLE.read_text() != table():
            sys.exit(f"{TABLE} is not that of the scores: run {__file__}")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        TABLE.write_text(table())
