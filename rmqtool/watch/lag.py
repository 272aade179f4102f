"""How far dispatch, flush and index are behind the log, and the alerts where that is too far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Lags:
    """Lags at one look; None where a store does not show them.

    Attributes:
        log_end: physical offset after the last record, as far as the broker has written.
        dispatch_bytes: from the last record with a unit to the end of the log.
        flush_ms: from the store time of the last flushed record, by the checkpoint, to that of the last one.
        index_bytes: from the last record with an index entry to the last one with a unit.
    """

    log_end: int | None = None
    dispatch_bytes: int | None = None
    flush_ms: int | None = None
    index_bytes: int | None = None


@dataclass(frozen=True)
class Alert:
    """A limit that was passed, or no longer is."""

    name: str
    is_raised: bool
    value: int | None
    limit: int | None
    message: str

    def as_json(self) -> dict[str, Any]:
        """The alert with JSON's types."""
        fields = asdict(self)
        state = "raised" if fields.pop("is_raised") else "cleared"
        return {"alert": fields.pop("name"), "state": state, **fields}


_TEXTS: Final = {
    "dispatch-lag": "records up to {value} bytes before the end of the log are in no queue yet",
    "flush-lag": "the last flushed record is {value} ms older than the last one",
    "index-lag": "records up to {value} bytes before the last one with a unit are not in the index",
}


@dataclass
class Alarms:
    """Which limits are passed; one counts once two looks in a row see it passed.

    Attributes:
        limits: by the name of an alert; None without one.
    """

    limits: dict[str, int | None]
    _passed: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)

    def look(self, lags: Lags) -> Iterator[Alert]:
        """The alerts that this look raises and clears."""
        values = {
            "dispatch-lag": lags.dispatch_bytes,
            "flush-lag": lags.flush_ms,
            "index-lag": lags.index_bytes,
        }
        for name, value in values.items():
            limit = self.limits.get(name)
            if limit is None:
                continue
            is_passed = value is not None and value > limit
            yield from self._note(name, value, limit, is_passed=is_passed)

    def _note(self, name: str, value: int | None, limit: int, *, is_passed: bool) -> Iterator[Alert]:
        text = _TEXTS[name].format(value=value)
        if not is_passed:
            self._passed.discard(name)
            if name in self.raised:
                self.raised.discard(name)
                yield Alert(name, False, value, limit, f"{text}: within the limit of {limit} again")
        elif name in self._passed and name not in self.raised:
            self.raised.add(name)
            yield Alert(name, True, value, limit, f"{text}, the limit is {limit}")
        self._passed |= {name} if is_passed else set()

    @property
    def is_uncertain(self) -> bool:
        """Whether a limit is passed that was not so before, so that another look decides."""
        return bool(self._passed - self.raised)
