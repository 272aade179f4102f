"""Result of a forecast: plain data, with the names that the JSON of `rmqtool forecast` has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class StopsAt:
    """Where the scan of the log stops, and the finding that lies there; None for untouched space or the log's end."""

    physical_offset: int
    finding: str | None


@dataclass(frozen=True)
class Lost:
    """Messages that are intact in the log now and not served after the start; `bytes` are those of their records."""

    messages: int = 0
    bytes: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ServedDamage:
    """Damage inside the log that the start does not notice: it stays, and is served as it is."""

    finding: str
    file: str
    physical_offset: int
    length: int


@dataclass(frozen=True, slots=True)
class QueueForecast:
    """A queue after the start.

    Attributes:
        next_queue_offset: what the next message put gets.
        offsets_repeat: whether messages had that offset, or a higher one, before.
        last_physical_offset: the broker's maxPhysicOffset, after the last record entered.
    """

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    next_queue_offset: int
    offsets_repeat: bool
    last_physical_offset: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Forecast:
    """Forecast of the next start of a broker version. Offsets in the log are physical, files as in the store.

    Attributes:
        broker_version: the version asked for.
        starts: whether it loads and starts at all; where not, `why_not` says it and the rest describes what is known.
        mode: "normal" after a clean stop, "abnormal" where `abort` is there.
        scan_start_offset, log_end_offset: what the recovery reads; None where it does not come to that.
        deleted_topics: messages of deleted topics that are not served, by topic; they wait for their files to expire.
        misplaces_new_messages: the log ends in a file of zeros beyond its last record; what is stored there is served
            until the next start and lost with it.
        deleted_files: files of log and queues that the start unlinks, even if it then fails.
        unnoticed_damage: at most as many places as the options allow; `unnoticed_damage_count` are all.
        filler_units: units without a message that stand before the first one of a queue.
        unindexed_messages: messages with a key that is not in the index afterwards.
        counted_from: losses, damage and missing keys are counted from this physical offset on.
        not_simulated: what the store has beside that no forecast is made of, as sentences.
        messages_without_log: messages that the queues point to, in files of the log that are missing or too short.
        assumptions: file sizes and topics that nothing in the store proves, as sentences.
    """

    broker_version: str
    starts: bool
    why_not: str | None
    mode: str
    scan_start_offset: int | None = None
    log_end_offset: int | None = None
    stops_at: StopsAt | None = None
    deleted_files: tuple[str, ...] = ()
    lost: Lost = field(default_factory=Lost)
    unnoticed_damage: tuple[ServedDamage, ...] = ()
    unnoticed_damage_count: int = 0
    queues: tuple[QueueForecast, ...] = ()
    filler_units: int = 0
    unindexed_messages: int = 0
    duplicate_index_entries: int = 0
    dropped_index_files: tuple[str, ...] = ()
    counted_from: int | None = None
    not_simulated: tuple[str, ...] = ()
    messages_without_log: int = 0
    assumptions: tuple[str, ...] = ()
    misplaces_new_messages: bool = False
    deleted_topics: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object of the JSON contract."""
        document = asdict(self)
        for queue in document["queues"]:
            del queue["last_physical_offset"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in document.items()}


def side_harms(forecasts: Sequence[Forecast], *, has_index: bool = True) -> list[str]:
    """Harm to consumers and queries though no message is lost, as sentences; the worst of several starts.

    Args:
        has_index: whether the broker makes an index, as far as anything tells; without one no key is missed.
    """
    unindexed = max((forecast.unindexed_messages for forecast in forecasts), default=0)
    repeating = max((sum(queue.offsets_repeat for queue in forecast.queues) for forecast in forecasts), default=0)
    harms = []
    if unindexed and has_index:
        harms.append(f"keys of {unindexed} message{'s' * (unindexed > 1)} would not be found in the index")
    if repeating:
        queues = "1 queue gets" if repeating == 1 else f"{repeating} queues get"
        harms.append(f"{queues} new messages at offsets that messages had before, so consumers skip them")
    if any(forecast.misplaces_new_messages for forecast in forecasts):
        harms.append("new messages are stored where the start after that loses them")
    return harms


@dataclass(frozen=True)
class TakenRun:
    """Messages that consumers no longer get at their queue offsets.

    Attributes:
        queue_offset, count: the offsets at which they get them now.
        moved_to: the offset at which they get the first one afterwards; None where they do not get it any more.
    """

    topic: str
    queue_id: int
    queue_offset: int
    count: int
    moved_to: int | None


@dataclass(frozen=True)
class Floor:
    """Effect of a plan on the messages that consumers get; all numbers are messages.

    Attributes:
        kept: at the same offset before and after.
        added: only afterwards.
        taken_away: only before.
        moved: before at one offset, and afterwards at another one of their queue.
        restored_topics: topics that somebody deleted and of which consumers, or a broker, get messages again.
        runs: what is taken away or moved, up to a limit.
    """

    kept: int = 0
    added: int = 0
    taken_away: int = 0
    moved: int = 0
    restored_topics: tuple[str, ...] = ()
    runs: tuple[TakenRun, ...] = field(default=(), compare=False)

    def as_json(self) -> dict[str, Any]:
        """The object of the JSON contract."""
        return {
            **asdict(self),
            "restored_topics": list(self.restored_topics),
            "runs": [asdict(run) for run in self.runs],
        }
