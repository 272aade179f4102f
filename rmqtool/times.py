"""Points in time: one function prints them, one parses typed text, both in the time zone of the run.

A zone of None is the machine's own one. Without `show_in` the zone is UTC; the commands call it at their start.
"""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from datetime import time as time_of_day
from typing import Final

from rmqtool.errors import UsageError
from rmqtool.quantities import JAVA_LONG_MAX

_ZONE: ContextVar[tzinfo | None] = ContextVar("zone", default=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_MS: Final = 3_600_000
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_AGO: Final = re.compile(r"(?:\d{1,9}[wdhms])+")
_DAY: Final = re.compile(r"(today|yesterday)(?:[ T]+(\S+))?")
_OFFSET: Final = re.compile(r"([+-])(\d{1,2})(?::?([0-5]\d))?")
_EXAMPLES: Final = (
    "examples: 2024-05-31T08:00 (in the time zone of the output), 2024-05-31T08:00:00Z, 2024-05-31T08:00:00+08:00, "
    "2h (ago), yesterday 14:00, now, 1717142400000 (milliseconds since 1970)"
)
_SECONDS_DIGITS: Final = 10
"""Digits of today's seconds since 1970; as milliseconds they would be a day in 1970."""


def show_in(zone: tzinfo | None) -> None:
    """Print times in this zone from here on, and parse those without a zone in it."""
    _ZONE.set(zone)


def zone_named(name: str) -> tzinfo:
    """The zone of a name such as Asia/Shanghai, UTC or +08:00.

    Raises:
        UsageError: there is none.
    """
    if (offset := _OFFSET.fullmatch(name)) is not None and int(offset[2]) < 24:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name.upper() in ("UTC", "Z"):
        return UTC
    from zoneinfo import ZoneInfo  # here: it loads more than all of `rmqtool --help`

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # no such key, a path, a directory of the database
        hint = "" if _has_database() else "; this machine has no time zone database, so only UTC and offsets work"
        raise UsageError(
            f"no time zone {name!r}: use a name such as Asia/Shanghai, or an offset such as +08:00{hint}"
        ) from None


def time_text(timestamp_ms: int) -> str:
    """A time in ms as ISO 8601 with the offset of its zone, to the millisecond; the number where no calendar has it."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(_ZONE.get())
        text = moment.isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def time_width() -> int:
    """Columns of a time as it is printed."""
    return 24 if _ZONE.get() is UTC else 29


def hour_begin(timestamp_ms: int) -> int:
    """The first ms of the hour that a clock of the run's zone shows then; the hour of UTC where no calendar has it."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(_ZONE.get())
    except (OverflowError, ValueError, OSError):
        return timestamp_ms - timestamp_ms % _HOUR_MS
    since = timedelta(minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond)
    return timestamp_ms - since // timedelta(milliseconds=1)


def parse_time(text: str, option: str, now_ms: int | None = None) -> int:
    """A point in time as a person writes it, in ms: the forms are those of the examples in the error.

    Args:
        option: named in the error.
        now_ms: what `now`, `2h` and `yesterday` start from; the clock's time by default.

    Raises:
        UsageError: it has none of the forms.
    """
    if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) and abs(int(text)) <= JAVA_LONG_MAX:
        _demand_milliseconds(text, option)
        return int(text)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    words = text.strip().lower()
    if words == "now":
        return now
    if _AGO.fullmatch(words):
        return now - 1000 * sum(int(count) * _SECONDS[unit] for count, unit in re.findall(r"(\d+)([a-z])", words))
    try:
        moment = _moment(words, now) if _DAY.fullmatch(words) else datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:  # of two that a clock shows the first
            zone = _ZONE.get()
            moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
        since = moment - _EPOCH
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option}: {text!r} is not a time; {_EXAMPLES}") from None
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _demand_milliseconds(digits: str, option: str) -> None:
    """Refuse numbers that are meant as seconds or as a date: they would be a time in 1970."""
    if len(digits) == _SECONDS_DIGITS and digits[0] != "-":
        raise UsageError(f"{option}: {digits} looks like seconds since 1970; use milliseconds: {digits}000")
    if len(digits) == len("20240531") and digits.startswith(("19", "20")):
        raise UsageError(
            f"{option}: {digits} looks like a date; write {digits[:4]}-{digits[4:6]}-{digits[6:]}, "
            "or milliseconds since 1970"
        )


def _moment(words: str, now_ms: int) -> datetime:
    """The time of a day that a word names; its start where no time is given."""
    match = _DAY.fullmatch(words)
    assert match is not None
    today = (_EPOCH + timedelta(milliseconds=now_ms)).astimezone(_ZONE.get()).date()
    day = today - timedelta(days=1) if match[1] == "yesterday" else today
    return datetime.combine(day, time_of_day.fromisoformat((match[2] or "00:00").upper()))


def _has_database() -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo("Europe/Berlin")
    except (ValueError, OSError, KeyError):
        return False
    return True
