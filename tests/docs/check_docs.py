"""Every command of README and docs/ runs, or is listed here with the reason why it does not; generated tables are current; every
field of a case is explained.

    check_docs.py SOURCE ATTNCHECK FAILING_CANDIDATE

Commands run as they stand, in a folder of their own, but shorter: few cases, half a second. A status of 2 (usage) or of a
signal fails the test, and so does a command that is neither known nor listed.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

# What does not run here, with the reason. A pattern that matches no command fails the test.
NOT_RUN = {
    r"^\./attncheck test": "it runs this test",
    r"^\./attncheck verify --op attention$": "it takes a minute; tests/acceptance has each operator",
    r"--resume report\.json": "needs a stopped run; resume_test.cc has one",
    r"the line of a counterexample": "stands for a line",
    r"\bOP|law_order": "of an operator that is new",
    r"^cmake ": "presets take minutes; the project's CI builds them",
    r"^tests/coverage/measure": "minutes, and another build",
    r"--candidate aclnn:": "needs the vendor's libraries; tests/aclnn_adapter has stand-ins",
    r"^g\+\+ .*(aclnn|nsa_module)": "tests/aclnn and tests/examples build and run these programs",
    r"--large": "minutes; tests/large has smaller ones",
    r"seq=\[65536\]|q=\[65536\]": "minutes; tests/large has smaller ones",
    r"^fuzz/": "needs clang and minutes of processor time",
    r"_replay -operator=\w+ FILE": "FILE stands for a file",
    r"attncheck mutants": "twenty minutes; tests/mutants grades a part in CTest",
    r"^attncheck_speed|/attncheck_speed": "a measurement of many minutes",
    r"^pip ": "installs; tests/python builds and installs the wheel",
    r"python:": "needs the package for Python; tests/python runs its examples",
    r"^attncheck judge ": "the page shows how call.npz is made; tests/python/test_testing.py has one",
    r"--html all\.html$": "the shards are those of the page above; report_files_test.cc merges two",
    r"--op nsa_module": "the module takes seconds; tests/acceptance has it",
}
STATUSES = (0, 1, 3)  # held, falsified, too few cases: the runs are short


def blocks(text):
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)


def commands(text):
    """Lines of code blocks that begin with a program."""
    programs = r"(\./attncheck|attncheck |build/release/bin/|cc |g\+\+ |cmake |tests/|fuzz/|pip )"
    for language, block in blocks(text):
        if language not in ("", "sh", "bash"):
            continue
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if re.match(programs, line):
                yield from (part.strip() for part in re.sub(r"\s{2,}#.*|\s#\s.*", "", line).split(";") if part.strip())


def shorter(words):
    """The command with little work."""
    out, k = [], 0
    while k < len(words):
        if words[k] in ("--time", "--cases", "--budget") and k + 1 < len(words):
            out += [words[k], "0.5" if words[k] == "--time" else "2"]
            k += 2
            continue
        if words[k] != "--thorough":
            out.append(words[k])
        k += 1
    if "verify" in out and not {"--time", "--cases", "--budget"} & set(out):
        out += ["--cases", "2"]
    if "verify" in out and not {"--op", "--candidate"} & set(out):
        out += ["--op", "nsa_compress"]
    return out


def check(condition, *what):
    if not condition:
        sys.exit("check_docs: " + " ".join(str(one) for one in what))


def run_commands(source, attncheck, failing):
    pages = [source / "README.md", *sorted((source / "docs").glob("*.md"))]
    unused, ran, listed = set(NOT_RUN), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("include", "examples", "properties", "tests"):
            (folder / name).symlink_to(source / name)
        kernel = next(block for language, block in blocks((source / "README.md").read_text()) if language == "c")
        (folder / "kernel.c").write_text(kernel)
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        # What an earlier run left: something that failed, a library, and a report to compare with.
        compile_line = "cc -std=c11 -shared -fPIC -Iinclude kernel.c -o libmykernel.so"
        subprocess.run(shlex.split(compile_line), cwd=folder, check=True)
        first = [attncheck, "verify", "--op", "nsa_compress", "--property", "memory", "--cases", "2", "--candidate", failing,
                 "--json", "before.json"]
        check(subprocess.run(first, cwd=folder, env=env, capture_output=True).returncode == 1, "nothing failed first")
        for page in pages:
            for line in commands(page.read_text()):
                reasons = [pattern for pattern in NOT_RUN if re.search(pattern, line)]
                unused -= set(reasons)
                if reasons:
                    listed += 1
                    continue
                words = shorter(shlex.split(line))
                output = None
                if ">" in words:
                    words, output = words[:words.index(">")], words[words.index(">") + 1]
                if words[0] in ("./attncheck", "attncheck", "build/release/bin/attncheck"):
                    words[0] = attncheck
                done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
                if output:
                    (folder / output).write_text(done.stdout)
                check(done.returncode in STATUSES, f"{page.name}: {line}\n  status {done.returncode}\n",
                      done.stdout[-1000:], done.stderr[-1000:])
                ran += 1
    check(not unused, "no page has a command for", sorted(unused))
    print(f"{ran} commands ran, {listed} are listed as not run")


def check_tables(source):
    """The tables of scores have as many mutants as the files that `attncheck mutants` writes."""
    text = (source / "docs/judgement.md").read_text()
    families = re.findall(r"<!-- score:(\w+):begin -->\n(.*?)<!-- score:\1:end -->", text, re.S)
    files = sorted(path.stem for path in (source / "tests/mutants/scores").glob("*.json"))
    check(sorted(name for name, _ in families) == files, "docs/judgement.md has families", [n for n, _ in families], "there are", files)
    for name, table in families:
        mutants = json.loads((source / f"tests/mutants/scores/{name}.json").read_text())["mutants"]
        mutants = [one for one in mutants if one["status"] != "contract-dependent"]  # as the table has them
        rows = re.findall(r"\| (\d+)/(\d+) \|$", table, re.M)
        total = sum(int(all_) for _, all_ in rows)
        check(total == len(mutants), f"docs/judgement.md has {total} mutants of {name}, its scores have {len(mutants)}")
    schema = json.loads((source / "docs/schema/report.json").read_text())
    check(schema["title"], "the schema has no title")


def check_workflow(source, attncheck):
    """The workflow to copy gives the command options that it has."""
    text = (source / "examples/ci/attncheck.yml").read_text()
    options = set(re.findall(r"--[a-z-]+", text[text.index("attncheck\" verify"):text.index("tee output")]))
    known = subprocess.run([attncheck, "verify", "--help"], capture_output=True, text=True).stdout
    check(options, "the workflow has no options")
    for option in options:
        check(re.search(rf"^  (-\w,)?{option}\b", known, re.M), "the workflow has", option, "which verify does not know")


def check_job_files(source, attncheck, library):
    """The job files for Slurm, as its tasks see them: one that dies goes on with its report."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        env = {**os.environ, "ATTNCHECK": attncheck, "SLURM_ARRAY_TASK_COUNT": "2", "XDG_CACHE_HOME": str(folder / "cache")}
        options = ["--op", "attention_merge", "--property", "memory", "--property", "repeatable", "--cases", "8"]

        def run(name, *words, **variables):
            done = subprocess.run(["bash", source / "examples/slurm" / name, *words], cwd=folder, env={**env, **variables},
                                  capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

        for task in ("1", "2"):
            status, printed = run("attncheck.sbatch", library, *options, SLURM_ARRAY_TASK_ID=task)
            check(status == 0, "a task ended with", status, printed)
        report = folder / "attncheck-reports/2.json"
        whole = json.loads(report.read_text())
        report.write_text(json.dumps({**whole, "interrupted": True, "finished": []}, indent=1))
        status, printed = run("attncheck.sbatch", library, *options, SLURM_ARRAY_TASK_ID="2")
        check(status == 0 and "taken over from" in printed, "the task did not go on:", printed)
        status, printed = run("merge.sbatch")
        check(status == 0, "the merge ended with", status, printed)
        merged = json.loads((folder / "attncheck.json").read_text())
        check([one["property"] for one in merged["properties"]] == ["memory", "repeatable"], "properties of the merged report")


def check_cases(source, attncheck):
    """docs/cases.md and the page of an operator explain each of its fields, and cases can be replayed."""
    text = (source / "docs/cases.md").read_text()
    pages = {page.name: page.read_text().partition("\n") for page in (source / "docs/cases").glob("*.md")}

    def explained(op):
        """The page of an operator, with those that it refers to."""
        own = "".join(body for title, _, body in pages.values() if f"`{op}`" in title)
        check(own, "docs/cases/ has no page of", op)
        return own + "".join(explained(other) for other in re.findall(r"those\s+of\s+`(\w+)`", own) if other != op)

    listed = subprocess.run([attncheck, "list"], capture_output=True, text=True, check=True).stdout
    for op in re.findall(r"^(\w+)$", listed, re.M):
        printed = subprocess.run([attncheck, "cases", op], capture_output=True, text=True, check=True).stdout
        fields = re.findall(r"^  ([\w.]+) ", printed, re.M)
        check(len(fields) > 5, "the fields of", op, "were not read:", printed)
        for field in fields:
            check(f"`{field}`" in text + explained(op), "docs/cases/ does not explain the field", field, "of", op)
    lines = [line for _, block in blocks(text) for line in block.splitlines() if re.fullmatch(r"\w+\{.*\}", line)]
    check(lines, "docs/cases.md has no case")
    for line in lines:
        done = subprocess.run([attncheck, "reproduce", line, "--property", "memory"], capture_output=True, text=True, timeout=60)
        check(done.returncode == 0, line, "\n", done.stdout[-500:], done.stderr[-500:])


def check_links(source):
    """Pages link to files that exist."""
    for page in (source / "README.md", *sorted((source / "docs").rglob("*.md"))):
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose):
            check((page.parent / target).exists(), f"{page.name} links to {target}, which is not there")
    check(len((source / "README.md").read_text().splitlines()) <= 150, "README has more than 150 lines")


def main():
    source, attncheck, failing = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    check_links(source)
    check_tables(source)
    check_workflow(source, attncheck)
    check_cases(source, attncheck)
    if not shutil.which("cc"):
        print("no cc: the commands did not run")
        return 77
    check_job_files(source, attncheck, sys.argv[4])
    run_commands(source, attncheck, failing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
