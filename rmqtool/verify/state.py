"""Remembers which splits of the log are done, so that a run with a time limit continues where the last one stopped.

The file is JSON and lies wherever the person wants it, never in the store. A split counts as done as long as its file
has the same size and modification time.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import RefusedError
from rmqtool.report.own_file import OwnFile, read_own, replace_own
from rmqtool.store.directory import Segment
from rmqtool.verify.catalog.finding import Finding, Severity
from rmqtool.verify.survey.result import Missing, SplitResult

_FORMAT: Final = "rmqtool-verify-state-2"
_SIZE_MAX: Final = 1 << 30
_MISSING: Final = ("missing", "missing_in_second")


@dataclass
class State:
    """The splits that are done, by path; `rules` and `depth` say what for."""

    path: Path | None
    rules: str
    depth: str
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None, rules: str, depth: str, root: str) -> State:
        """The state in a file; an empty one where there is none, or it is of other rules.

        Raises:
            RefusedError: the file is no state of `verify`, or would lie in the store.
            UnreadableError: it may not be read.
        """
        state = cls(path, rules, depth)
        if path is None:
            return state
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
            raise RefusedError(f"{path}: the state file must be outside the store, because verify never writes to it")
        raw = read_own(path, OwnFile.VERIFY_STATE, _SIZE_MAX)
        if raw is None:
            return state
        try:
            document = json.loads(raw)
            known, made_for = document["format"] == _FORMAT, (document["rules"], document["depth"])
            if known and made_for == (rules, depth):
                state.done = dict(document["done"])
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(f"{path}: the state file of verify is damaged; remove it to start again") from error
        if not known:
            raise RefusedError(f"{path}: a state file of another version of verify; remove it to start again")
        return state

    def result(self, segment: Segment) -> SplitResult | None:
        """The result of a split that is done."""
        entry = self.done.get(segment.path)
        if entry is None or entry["file"] != [segment.size, segment.entry.mtime_ns]:
            return None
        try:
            return _decoded(entry["result"])
        except (KeyError, TypeError, ValueError):
            return None

    def add(self, segment: Segment, result: SplitResult) -> None:
        """Remember a split and write the file.

        Raises:
            RefusedError: another file is there.
            WriteError: it cannot be written.
        """
        if self.path is None:
            return
        self.done[segment.path] = {"file": [segment.size, segment.entry.mtime_ns], "result": _encoded(result)}
        document = {"format": _FORMAT, "rules": self.rules, "depth": self.depth, "done": self.done}
        replace_own(self.path, OwnFile.VERIFY_STATE, json.dumps(document))


def _encoded(result: SplitResult) -> dict[str, Any]:
    return {
        **{name: value for name, value in asdict(result).items() if name != "placed"},
        "findings": [finding.as_json() for finding in result.findings],
        **{name: [[run[0].decode("latin-1"), *run[1:]] for run in getattr(result, name)] for name in _MISSING},
    }


def _decoded(encoded: dict[str, Any]) -> SplitResult:
    findings = [
        Finding(**{**finding, "severity": Severity(finding["severity"]), "upstream": tuple(finding["upstream"])})
        for finding in encoded["findings"]
    ]
    last = encoded["last_record"]
    return SplitResult(
        **{
            **encoded,
            "findings": findings,
            **{name: [Missing(run[0].encode("latin-1"), *run[1:]) for run in encoded[name]] for name in _MISSING},
            "missing_keys": [tuple(run) for run in encoded["missing_keys"]],
            "last_record": None if last is None else tuple(last),
        }
    )
