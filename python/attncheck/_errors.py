"""Problems of what a user wrote, said in one line."""

from __future__ import annotations


class CandidateError(Exception):
    """A module or a function cannot be used as a candidate: what, what was given, what is allowed."""


class OutputError(Exception):
    """What a kernel returned is not what its outputs are."""

    def __init__(self, output: str, what: str) -> None:
        super().__init__(what)
        self.output = output
