"""What verify and forecast say about a store, small enough to be compared with what they say about its bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.engine.rules.versions import BrokerRules, rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.store.directory import Store
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

ROWS_MAX: Final = 10_000
_SUM_BYTES: Final = 16
_FIELDS: Final = (
    "id", "severity", "file", "file_position", "physical_offset", "length", "topic", "queue_id", "queue_offset",
    "count",
)  # fmt: skip
"""Of a finding what no customer wrote; its texts may show bytes of the store."""


@dataclass
class Answers:
    """What was said.

    Attributes:
        rows: the first findings, without their texts.
        digests: of all findings, by id, whatever their order.
        summary: of verify.
        forecasts: by version; why there is none where that is so.
    """

    rows: list[dict[str, Any]]
    digests: dict[str, int]
    summary: dict[str, Any]
    forecasts: dict[str, dict[str, Any] | str]

    def differences(self, other: Answers) -> Iterator[str]:
        """In what two answers differ, as short texts."""
        for kind in sorted(self.digests.keys() | other.digests.keys()):
            if self.digests.get(kind) != other.digests.get(kind):
                count, other_count = self.summary["findings"].get(kind, 0), other.summary["findings"].get(kind, 0)
                yield f"{kind}: {count} in the store, {other_count} in the bundle"
        for name in ("checked", "left_out_bytes", "complete", "not_looked_at"):
            if self.summary[name] != other.summary[name]:
                yield f"verify: {name}"
        for version, forecast in self.forecasts.items():
            if forecast != other.forecasts.get(version):
                yield f"forecast of {version}"


def ask(
    store: Store,
    rules: BrokerRules,
    options: VerifyOptions,
    forecast_options: ForecastOptions,
    versions: Sequence[str],
    take: Callable[[Finding], None] | None = None,
) -> Answers:
    """Verify a store and forecast its start with each version.

    Args:
        take: is handed each finding.
    """
    rows: list[dict[str, Any]] = []
    digests: dict[str, int] = {}

    def keep(finding: Finding) -> None:
        row = {name: value for name, value in finding.as_json().items() if name in _FIELDS}
        digest = hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=_SUM_BYTES).digest()
        digests[finding.id] = (digests.get(finding.id, 0) + int.from_bytes(digest)) % (1 << 8 * _SUM_BYTES)
        if len(rows) < ROWS_MAX:
            rows.append(row)
        if take is not None:
            take(finding)

    summary = verify_store(store, rules, options, keep, lambda _done, _total: None, None).as_json()
    forecasts: dict[str, dict[str, Any] | str] = {}
    shared = None if len(versions) == 1 else SharedStarts()
    for version in versions:
        try:
            forecasts[version] = forecast_store(store, rules_for(version), forecast_options, shared).as_json()
        except RmqtoolError as error:
            forecasts[version] = type(error).__name__
    return Answers(rows, digests, summary, forecasts)
