"""Remembers which splits of the log are done, so that a run with a time limit continues where the last one stopped.

The file is JSON and lies wherever the person wants it, never in the store. A split counts as done as long as its file
has the same size and modification time.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from rmqtool.errors import RefusedError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import BY_ID
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.report.own_file import OwnFile, read_own, replace_own
from rmqtool.store.directory import Segment
from rmqtool.verify.survey.result import Missing, SplitResult

_FORMAT: Final = "rmqtool-verify-state-2"
_SIZE_MAX: Final = 1 << 30
_MISSING: Final = ("missing", "missing_in_second")


_Number = Annotated[int, msgspec.Meta(ge=0, le=JAVA_LONG_MAX)]
_Signed = Annotated[int, msgspec.Meta(ge=-JAVA_LONG_MAX - 1, le=JAVA_LONG_MAX)]
_Run = tuple[str, _Signed, bool, _Signed, _Number, _Number, _Number, _Number, bool, bool]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """A result as the file has it."""

    physical_offset: _Number
    path: str
    begin: _Number
    end: _Number
    last_record: tuple[_Number, _Signed] | None
    first_timestamp_ms: _Signed
    last_unseen: _Signed
    newest_ms: _Signed
    scanned_end: _Number
    findings: list[Finding]
    missing: list[_Run]
    missing_in_second: list[_Run]
    missing_keys: list[tuple[_Number, _Number, _Number, bool, bool]]
    record_count: _Number
    keyed_count: _Number
    file_size: _Number
    checked_bytes: _Number
    tail_bytes: _Number
    reported_bytes: _Number
    left_out_bytes: _Number


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
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RefusedError(f"{path}: the state file of verify is damaged; remove it to start again") from error
        if not known:
            raise RefusedError(f"{path}: a state file of another version of verify; remove it to start again")
        return state

    def result(self, segment: Segment) -> SplitResult | None:
        """The result of a split that is done; None where there is none, or it cannot be: the split is checked again."""
        entry = self.done.get(segment.path)
        try:
            if entry is None or entry["file"] != [segment.size, segment.entry.mtime_ns]:
                return None
            stored = msgspec.convert(entry["result"], _Stored)
            runs = {
                name: [Missing(run[0].encode("latin-1"), *run[1:]) for run in getattr(stored, name)]
                for name in _MISSING
            }
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        result = SplitResult(**{**msgspec.structs.asdict(stored), **runs})
        return result if _can_be(result, segment) else None

    def add(self, segment: Segment, result: SplitResult) -> None:
        """Remember a split and write the file.

        Raises:
            RefusedError: another file is there.
            WriteError: it cannot be written.
        """
        if self.path is None:
            return
        stored = {
            **{name: value for name, value in asdict(result).items() if name != "placed"},
            "findings": [finding.as_json() for finding in result.findings],
            **{name: [[run[0].decode("latin-1"), *run[1:]] for run in getattr(result, name)] for name in _MISSING},
        }
        self.done[segment.path] = {"file": [segment.size, segment.entry.mtime_ns], "result": stored}
        document = {"format": _FORMAT, "rules": self.rules, "depth": self.depth, "done": self.done}
        replace_own(self.path, OwnFile.VERIFY_STATE, json.dumps(document))


def _can_be(result: SplitResult, segment: Segment) -> bool:
    """Whether a result accounts for the file that it is of, and names no place outside of it."""
    accounted = result.checked_bytes + result.tail_bytes + result.reported_bytes + result.left_out_bytes
    first, end = segment.start, segment.start + segment.size
    places = [result.begin, result.end, result.scanned_end, *(result.last_record or ())[:1]]
    for missing in (*result.missing, *result.missing_in_second):
        places += missing.physical_offset, missing.last_physical_offset
    places += [place for keys in result.missing_keys for place in keys[:2]]
    return (
        (result.path, result.file_size, accounted) == (segment.path, segment.size, segment.size)
        and result.physical_offset == first
        and all(first <= place <= end or place == 0 for place in places)
        and all(finding.id in BY_ID for finding in result.findings)
    )
