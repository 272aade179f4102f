"""The table `findings`: the result of `verify` for each store; a store is one task, as its parts are
judged together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rmqtool.engine.reading.version_evidence import infer_version
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.findings.finding import Finding
from rmqtool.pipeline.tables.schemas import arrow_schema
from rmqtool.report.fields import FINDING_TABLE
from rmqtool.store.directory import Store
from rmqtool.store.probe_lock import lock_report
from rmqtool.store.view import DirectoryView
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

SCHEMA: Final = arrow_schema(FINDING_TABLE)
BATCH_ROWS: Final = 4096


@dataclass(frozen=True)
class StoreCheck:
    """One store, and by whose rules it is judged; None: by those of the broker that its files show."""

    store: Store
    rules: BrokerRules | None

    def chosen_rules(self) -> BrokerRules:
        """The given rules, or those that the store's files show."""
        if self.rules is not None:
            return self.rules
        releases = infer_version(self.store)
        return rules_for(releases.rules if releases is not None else NEWEST)

    def is_in_use(self) -> bool:
        """True if a broker on this machine uses the store now."""
        view = self.store.view
        if not isinstance(view, DirectoryView):
            return False
        directories = [Path(view.label) / named for named in self.store.settings.commitlog_directories]
        return lock_report(Path(view.label), directories).is_in_use


def store_check(store: Store, broker_version: str | None) -> StoreCheck:
    """Choose the checks of a store.

    Raises:
        UsageError: the version is none.
    """
    return StoreCheck(store, None if broker_version is None else rules_for(broker_version))


def read_findings(check: StoreCheck) -> Iterator[pa.RecordBatch]:
    """The record batches of all findings of a store, in the order of `verify`."""
    findings: list[Finding] = []
    verify_store(
        check.store, check.chosen_rules(), VerifyOptions(threads=1, broker_runs=check.is_in_use()), findings.append
    )
    for first in range(0, len(findings), BATCH_ROWS):
        rows = [finding_row(check.store, one) for one in findings[first : first + BATCH_ROWS]]
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def finding_row(store: Store, one: Finding) -> dict[str, Any]:
    """The row of a finding, by column."""
    row = {"store": store.view.label, **one.as_json()}
    return {name: row[name] for name in SCHEMA.names}
