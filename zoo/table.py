"""The tables of zoo/README.md, from zoo/results.json and zoo/findings.toml."""

import tomllib


def finding_of(known, key, finding):
    """The entry of findings.toml that explains a counterexample; None: nobody has looked at it yet."""
    text = f"{finding['property']}: {finding['failure']}: {finding['message']}: {finding['case']}"
    for one in known:
        if (any(word in key for word in one["subjects"]) and not any(part in text for part in one.get("without", []))
                and any(all(part in text for part in words) for words in one["signs"])):
            return one
    return None


def rows(results, known):
    for key, entry in results.items():
        states = entry["properties"].values()
        ids = []
        for finding in entry["findings"]:
            one = finding_of(known, key, finding)
            ids.append(f"[{one['id']}](#{one['id'].lower()})" if one else f"not classed ({finding['property']})")
        name, _, env = key.partition(" ")
        said = entry.get("error") or ", ".join(dict.fromkeys(ids)) or "none"
        yield (f"| {entry['title']}: `{name.partition(':')[2]}` | {entry['version']} | `{entry.get('operator', '')}` | "
               f"{entry.get('cases', 0)} | {sum(s == 'held' for s in states)} | {sum(s == 'falsified' for s in states)} | "
               f"{sum(s not in ('held', 'falsified') for s in states)} | {said} |")


def features(results):
    for key, entry in results.items():
        takes = entry.get("takes", "").rpartition(" (")[0] or "everything"
        yield f"| `{key}` | {takes} | {entry.get('precision', '')} | [source]({entry['source'].split(' ')[0]}) |"


def texts(known):
    for one in known:
        yield f"\n### {one['id']}\n\n**{one['title']}.** {one['class'].capitalize()}. {one['versions']}\n"
        yield f"Smallest case, as a program without attncheck: `attncheck reproduce '{one['case']}' --emit numpy`\n"
        yield (f"Second proof: {one['proof']} Documented: {one['documented']} Upstream: {one['upstream']} "
               f"Text: [findings/{one['id']}.md](findings/{one['id']}.md), script: [findings/{one['id']}.py](findings/{one['id']}.py).")


def write(folder, results, re):
    known = tomllib.loads((folder / "findings.toml").read_text()).get("finding", [])
    missing = tomllib.loads((folder / "findings.toml").read_text()).get("not_run", [])
    parts = {"results": ["| subject | version | operator | cases | held | falsified | not judged | findings |",
                         "|---|---|---|---:|---:|---:|---:|---|", *rows(results, known)],
             "features": ["| run | features | precision | declared from |", "|---|---|---|---|", *features(results)],
             "findings": list(texts(known)),
             "not-run": ["| subject | reason |", "|---|---|", *(f"| {m['subject']} | {m['reason']} |" for m in missing)]}
    path = folder / "README.md"
    text = path.read_text()
    for name, lines in parts.items():
        begin, end = f"<!-- zoo:{name}:begin -->", f"<!-- zoo:{name}:end -->"
        text = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: "\n".join([begin, *lines, end]), text, flags=re.S)
    path.write_text(text)
