"""The plugin: properties as items, a counterexample in the failure, what failed once first."""

from __future__ import annotations

import numpy  # noqa: F401: NumPy cannot be imported again by every run in this process
import pytest

PLUGIN = ["-p", "attncheck.pytest_plugin"]
RIGHT = '''
import numpy as np
import pytest

@pytest.mark.attncheck(op="attention_merge", features="dtype=fp32 dead=none parts=1..8 weights=equal,near", cases=10)
def merge(parts, lses):
    weights = np.exp(lses - lses.max(axis=0))
    total = weights.sum(axis=0)
    out = (weights[..., None] * parts).sum(axis=0) / total[..., None]
    return out, lses.max(axis=0) + np.log(total)
'''


@pytest.fixture
def pytester(pytester, request):
    if request.config.pluginmanager.hasplugin("attncheck"):
        PLUGIN.clear()  # installed as a plugin already
    return pytester


def test_every_property_is_an_item(pytester):
    pytester.makepyfile(RIGHT)
    result = pytester.runpytest(*PLUGIN, "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::merge[[]agreement]", "*::merge[[]memory]"])
    result.stdout.no_fnmatch_line("*validation*")


def test_a_kernel_holds_and_a_broken_one_shows_its_counterexample(pytester):
    pytester.makepyfile(RIGHT)
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(passed=1)
    pytester.makepyfile(RIGHT.replace("/ total[..., None]", ""))
    result = pytester.runpytest(*PLUGIN, "-k", "agreement")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["FALSIFIED attention_merge.agreement: out is wrong*", '@attncheck.example("attention_merge{*}", "agreement")']
    )


def test_kernels_import_what_their_tests_may(pytester):
    pytester.makeini("[pytest]\npythonpath = src\n")
    (pytester.mkdir("src") / "mylib.py").write_text(RIGHT[:RIGHT.index("@pytest")] + RIGHT[RIGHT.index("def merge"):])
    marked = RIGHT[RIGHT.index("@pytest"):RIGHT.index("def merge")] + "def merge_of_mine(parts, lses):\n    return merge(parts, lses)\n"
    pytester.makepyfile("import pytest\nfrom mylib import merge\n" + marked)
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(passed=1)


def test_a_package_of_tests_may_import_its_helpers(pytester):
    package = pytester.mkpydir("checks")
    (package / "helper.py").write_text(RIGHT)
    (package / "test_merge.py").write_text("from .helper import merge\n")
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(passed=1)


def test_parametrize_is_refused(pytester):
    pytester.makepyfile(RIGHT.replace("def merge", "@pytest.mark.parametrize('n', [1, 2])\ndef merge"))
    result = pytester.runpytest(*PLUGIN)
    result.stdout.fnmatch_lines(["*parametrize has no effect on kernel merge, allowed: a function for each"])


CAUSAL = '''
import numpy as np
import pytest

@pytest.mark.attncheck(op="attention", precision="hidden=times_zero", cases=10, shrink=1, features="dtype=fp32 layout=bshd group=1 "
                       "softcap=0 window_left=-1 window_right=0 align=top_left bias=none mask=none kv_length=none sink=none outputs=out")
def causal(query, key, value, scale):
    with np.errstate(all="ignore"):
        s = np.einsum("bihd,bjhd->bhij", query, key) * np.float32(scale)
        p = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))  # the mask is forgotten
        return np.einsum("bhij,bjhd->bihd", p / p.sum(axis=-1, keepdims=True), value)
'''


@pytest.mark.parametrize("law", ["agreement", "deviation"])
def test_a_failure_has_its_diagnosis(pytester, law):
    pytester.makepyfile(CAUSAL)
    result = pytester.runpytest(*PLUGIN, "-k", law)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"FALSIFIED attention.{law}: out *", "  replay * attncheck reproduce *",
                                 "  looks like *window_right not applied*", "@attncheck.example(*"])
    result.stdout.no_fnmatch_line("*reproduce @*")  # of the last run, not of this item


def test_a_broken_diagnosis_is_whole():
    from attncheck.pytest_plugin import _counterexamples

    text = "FALSIFIED x\n\noperator  held\n\n@1 x\n  looks like  out: one,\n              two\n  smallest    x{}\n"
    assert _counterexamples(text) == "FALSIFIED x\n  looks like  out: one,\n              two"


def test_a_pinned_case_is_an_item(pytester):
    case = "attention_merge{dtype=fp32 parts=2 rows=1 heads=1 dim=1 weights=equal data=zeros seed=0}"
    pinned = RIGHT.replace("@pytest.mark", f'@attncheck.example("{case}", "agreement")\n@pytest.mark').replace(
        "import pytest", "import attncheck\nimport pytest"
    )
    pytester.makepyfile(pinned)
    pytester.runpytest(*PLUGIN, "-k", "example0").assert_outcomes(passed=1)


def test_a_wrong_mark_is_one_line(pytester):
    pytester.makepyfile(RIGHT.replace('op="attention_merge"', 'op="merge"'))
    result = pytester.runpytest(*PLUGIN)
    result.stdout.fnmatch_lines(["*mark of merge: op='merge', allowed: op= one of *"])


BROKEN = RIGHT.replace("/ total[..., None]", "").replace("cases=10", "cases=3, shrink=0")


def test_stopping_and_running_again_what_failed(pytester):
    pytester.makepyfile(BROKEN)
    both = ("-k", "agreement or memory")
    result = pytester.runpytest(*PLUGIN, *both, "-x")
    result.assert_outcomes(failed=1)
    result = pytester.runpytest(*PLUGIN, *both, "--lf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*run-last-failure: rerun previous 1 failure*"])


def test_what_failed_is_kept_and_comes_first(pytester):
    path = pytester.makepyfile(BROKEN)
    first = pytester.runpytest(*PLUGIN, "-k", "agreement")
    first.assert_outcomes(failed=1)
    kept = list(pytester.path.glob(".pytest_cache/d/attncheck/*/merge/agreement/*"))
    assert kept and "attention_merge{" in kept[0].read_text(), kept
    # Without any generated case the one that is kept fails again.
    path.write_text(BROKEN.replace("cases=3", "cases=0"))
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(failed=1)


def test_the_line_of_a_failure_pins_it(pytester):
    pytester.makepyfile(BROKEN)
    result = pytester.runpytest(*PLUGIN, "-k", "agreement")
    pin = next(line for line in result.outlines if line.startswith("@attncheck.example("))
    pinned = BROKEN.replace("@pytest.mark", f"{pin}\n@pytest.mark").replace("import pytest", "import attncheck\nimport pytest")
    pytester.makepyfile(pinned)
    result = pytester.runpytest(*PLUGIN, "-k", "example0")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*FALSIFIED: out is wrong*"])


def test_items_run_on_several_processes(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile(RIGHT.replace("cases=10", "cases=3"))
    pytester.runpytest_subprocess(*PLUGIN, "-n", "2", "-k", "agreement or memory").assert_outcomes(passed=2)


def marked(*lines, head="", kernel=BROKEN):
    """The kernel with lines of Python above its mark, and others behind the imports."""
    above = "".join(f"{line}\n" for line in lines)
    return kernel.replace("import pytest\n", f"import pytest\n{head}\n").replace("@pytest.mark", f"{above}@pytest.mark", 1)


def line_of(source, text):
    """The number of the line, without the first that makepyfile strips."""
    return next(k for k, line in enumerate(source.strip().splitlines(), 1) if text in line)


SKIPS = {
    "skip": dict(lines=['@pytest.mark.skip(reason="no device")']),
    "skipif": dict(lines=['@pytest.mark.skipif(True, reason="no device")']),
    "text": dict(lines=['@pytest.mark.skipif("DEVICE is None", reason="no device")'], head="DEVICE = None"),
    "module": dict(lines=[], head='pytestmark = pytest.mark.skip(reason="no device")'),
    "modules": dict(lines=[], head='pytestmark = [pytest.mark.slow, pytest.mark.skipif(True, reason="no device")]'),
}


@pytest.mark.parametrize("form", SKIPS)
def test_a_skipped_kernel_is_not_run_and_has_a_place(pytester, form):
    source = marked(*SKIPS[form]["lines"], head=SKIPS[form].get("head", ""))
    path = pytester.makepyfile(source)
    result = pytester.runpytest(*PLUGIN, "-rs", "-k", "agreement")
    result.assert_outcomes(skipped=1)
    # The first decorator, as for any test.
    first = line_of(source, (SKIPS[form]["lines"] or ["@pytest.mark.attncheck"])[0])
    result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] *{path.name}:{first}: no device"])


def test_a_condition_that_is_false_skips_nothing(pytester):
    pytester.makepyfile(marked('@pytest.mark.skipif(False, reason="no device")', "@pytest.mark.xfail(False, reason='x')"))
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(failed=1)


RIGHT_IN_3_CASES = RIGHT.replace("cases=10", "cases=3")


@pytest.mark.parametrize("kernel, mark, outcomes", [
    (BROKEN, "xfail", dict(xfailed=1)),
    (BROKEN, "xfail(strict=True)", dict(xfailed=1)),
    (BROKEN, "xfail(run=False)", dict(xfailed=1)),
    (BROKEN, "xfail(raises=OSError)", dict(failed=1)),
    (RIGHT_IN_3_CASES, "xfail", dict(xpassed=1)),
    (RIGHT_IN_3_CASES, "xfail(strict=True)", dict(failed=1)),
])
def test_an_expected_failure(pytester, kernel, mark, outcomes):
    pytester.makepyfile(marked(f"@pytest.mark.{mark}", kernel=kernel))
    result = pytester.runpytest(*PLUGIN, "-k", "agreement")
    result.assert_outcomes(**outcomes)
    if kernel is RIGHT_IN_3_CASES and "failed" in outcomes:
        result.stdout.fnmatch_lines(["*XPASS(strict)*"])


@pytest.mark.parametrize("place", ["function", "module"])
def test_marks_select_kernels(pytester, place):
    slow = "@pytest.mark.slow"
    pytester.makepyfile(marked(slow) if place == "function" else marked(head="pytestmark = pytest.mark.slow"))
    for words, is_there in {"not slow": False, "slow": True, "attncheck": True}.items():
        result = pytester.runpytest(*PLUGIN, "--collect-only", "-q", "-m", words)
        assert ("::merge[agreement]" in result.stdout.str()) == is_there, words
    # The usual recipe of a conftest.py.
    pytester.makeconftest('''
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow"))
''')
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(skipped=1)


def test_runs_go_without_the_cache_of_pytest(pytester):
    pytester.makepyfile(RIGHT_IN_3_CASES)
    pytester.runpytest(*PLUGIN, "-p", "no:cacheprovider", "-k", "agreement").assert_outcomes(passed=1)


def test_marks_without_an_effect_do_no_harm(pytester):
    lines = ['@pytest.mark.usefixtures("held")', '@pytest.mark.filterwarnings("ignore")', '@pytest.mark.unknown(1, two=2)']
    fixture = "@pytest.fixture(autouse=True)\ndef held():\n    yield\n"
    pytester.makepyfile(marked(*lines, kernel=RIGHT_IN_3_CASES).replace("import pytest\n", f"import pytest\n{fixture}"))
    pytester.runpytest(*PLUGIN, "-k", "agreement").assert_outcomes(passed=1)


@pytest.mark.parametrize("source", [
    "class TestOne:\n    pytestmark = pytest.mark.skip(reason='x')\n    def test_one(self): assert 0",
    "from unittest.mock import call\n@pytest.mark.skip\ndef test_one(): assert 0",
    "class Proxy:\n    def __call__(self): pass\n    def __getattr__(self, name): raise RuntimeError(name)\nproxy = Proxy()\n"
    "@pytest.mark.skip\ndef test_one(): assert 0",
], ids=["class", "call", "proxy"])
def test_files_without_a_kernel_are_collected_as_ever(pytester, source):
    pytester.makepyfile(f"import pytest\n{source}")
    pytester.runpytest(*PLUGIN).assert_outcomes(skipped=1)


def test_a_kernel_in_a_class_is_an_error(pytester):
    body = "    @pytest.mark.attncheck(op='attention_merge')\n    def merge(parts, lses): return parts[0], lses[0]"
    pytester.makepyfile(f"import pytest\nclass TestOne:\n{body}")
    result = pytester.runpytest(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["kernel merge is in class TestOne, allowed: functions of a module"])


def test_reports_name_the_file_and_line_of_a_kernel(pytester):
    pytester.makepyfile(kernels=RIGHT.replace("cases=10", "cases=0"))
    path = pytester.makepyfile("from kernels import merge")
    result = pytester.runpytest(*PLUGIN, "-rs", "-k", "agreement")
    result.assert_outcomes(skipped=1)  # nothing was checked
    line = line_of(RIGHT, "@pytest.mark.attncheck")
    result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] *kernels.py:{line}: *"])
    items, _ = pytester.inline_genitems(*PLUGIN, path)
    assert {item.location[:2] for item in items} == {("kernels.py", line - 1)}
