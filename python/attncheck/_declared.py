"""What the features of a mark say of the numbers of a call."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Mapping

ALIGNS = ("top_left", "bottom_right")
# The numbers of the words of case lines (properties/case/attention_fields.cc). rsqrt needs the width of a head.
_SCALES = {"one": 1.0, "eighth": 0.125, "zero": 0.0, "negative": -0.2, "tenth": 0.1, "large": 3.0}
_UNITS = {"one": 1, "eighth": 8, "tenth": 10}
_RANGE = re.compile(r"(-?\d+)(?:\.\.(-?\d+)(?:/(\d+))?)?")
_NEAR = 1e-6  # relative: far more than a rounding to fp32, far less than declared values lie apart


@dataclass(frozen=True)
class _Range:
    low: int
    high: int
    step: int

    def may_hold(self, x: float) -> bool:
        """Numbers between two whole ones hold: a feature cannot name them."""
        near = _NEAR * max(1.0, abs(x))
        if not self.low - near <= x <= self.high + near:
            return False
        return abs(x - round(x)) > near or (round(x) - self.low) % self.step == 0


def _ranges(values: str) -> list[_Range] | None:
    """ "0,5..30/5"; None for anything else, of which nothing is known."""
    found = [_RANGE.fullmatch(word) for word in values.split(",") if word]
    if not found or not all(found):
        return None
    return [_Range(int(m[1]), int(m[2] or m[1]), int(m[3] or 1) or 1) for m in found if m]


class DeclaredNumbers:
    """The numbers of the neutral operators that a mark declares: windows, align, softcap and scale."""

    def __init__(self, features: str, arguments: list[dict[str, Any]]) -> None:
        words = dict(word.split("=", 1) for word in features.split() if "=" in word)
        numbers = {a["name"] for a in arguments if a["kind"] in ("integer", "real")}
        self._texts = {name: text for name, text in words.items() if name in numbers}
        self._ranges = {}
        for name in ("window_left", "window_right", "softcap"):
            ranges = _ranges(self._texts.get(name, ""))
            if ranges:
                self._ranges[name] = ranges
        units = words.get("softcap_unit", ",".join(_UNITS)).split(",")
        self._units = [_UNITS.get(unit, 0) for unit in units]
        self._words = {name: self._texts[name].split(",") for name in ("align", "scale") if name in self._texts}

    def outside(self, values: Mapping[str, Any]) -> str:
        """ "window_left=40, declared is window_left=0..16": why a call is outside for sure; empty where it may be inside.

        Numbers that no call may have are for the kernel to reject.
        """
        for name, text in self._texts.items():
            if not self._may_hold(name, values[name], values):
                return f"{name}={values[name]}, declared is {name}={text}"
        return ""

    def _may_hold(self, name: str, x: float, values: Mapping[str, Any]) -> bool:
        if not math.isfinite(x):
            return True
        if name in self._ranges:
            if x < (0 if name == "softcap" else -1):
                return True
            units = self._units if name == "softcap" else [1]
            return not all(units) or any(one.may_hold(x * unit) for one in self._ranges[name] for unit in units)
        words = self._words.get(name, [])
        if name == "align":
            return x not in (0, 1) or not set(words) <= set(ALIGNS) or ALIGNS[int(x)] in words
        if name == "scale":
            known = dict(_SCALES)
            query = values.get("query")
            if query is not None and query.ndim and query.shape[-1]:
                known["rsqrt"] = query.shape[-1] ** -0.5
            return not set(words) <= set(known) or any(abs(x - known[word]) <= _NEAR for word in words)
        return True
