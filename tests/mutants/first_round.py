#!/usr/bin/env python3
"""How many killed mutants fall in the first round of a usual run, and after how many seconds.

    tests/mutants/first_round.py build/release/bin/attncheck build/release/lib/libattncheck_mutants.so --sample 64 --seed 7

Takes a sample of the mutants in scores/*.json, at least two of each family, runs `verify --jobs 2` on the operator that
killed each of them, and waits for the first counterexample to be shown.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import threading
import time

SCORES = pathlib.Path(__file__).resolve().parent / "scores"
FIRST_ROUND = 10  # seconds


def sample(size: int, seed: int) -> list[dict]:
    families = [[one for one in json.loads(path.read_text())["mutants"]
                 if one.get("killed") and not one["property"].endswith(".sampled")]
                for path in sorted(SCORES.glob("*.json"))]
    number = sum(map(len, families))
    chance = random.Random(seed)
    return [one for family in families
            for one in chance.sample(family, min(len(family), max(2, round(size * len(family) / number))))]


def seconds_until_shown(command: str, library: str, mutant: dict, seed: int) -> tuple[float, str] | None:
    words = [command, "verify", "--candidate", library, "--seed", str(seed), "--jobs", "2", "--shrink", "0",
             "--op", mutant["property"].split(".")[0]]
    start = time.monotonic()
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           env={**os.environ, "ATTNCHECK_MUTANT": mutant["id"]})
    limit = threading.Timer(2 * FIRST_ROUND, run.terminate)
    limit.start()
    try:
        for line in run.stdout:
            if shown := re.match(r"(?:found|FALSIFIED) (\S+):", line):
                return time.monotonic() - start, shown[1]
        return None
    finally:
        limit.cancel()
        run.terminate()
        run.wait()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("command")
    options.add_argument("library")
    options.add_argument("--sample", type=int, default=64)
    options.add_argument("--seed", type=int, default=7)
    given = options.parse_args()
    times = []
    for mutant in sample(given.sample, given.seed):
        shown = seconds_until_shown(given.command, given.library, mutant, given.seed)
        times.append(shown[0] if shown else float("inf"))
        print(f"{mutant['id']:<12} {times[-1]:6.1f} s  {shown[1] if shown else 'nothing'}", flush=True)
    times.sort()
    share = sum(one <= FIRST_ROUND for one in times) / len(times)
    print(f"{len(times)} mutants: {100 * share:.0f} % within {FIRST_ROUND} s, median {times[len(times) // 2]:.1f} s, "
          f"90 % within {times[9 * len(times) // 10]:.1f} s")


if __name__ == "__main__":
    main()
