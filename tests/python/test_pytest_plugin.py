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
