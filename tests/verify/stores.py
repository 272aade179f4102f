"""Verifies a store in one call, and gives findings in a form that tests compare."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding, Severity
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import StoreView, open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import Summary


def writer_of(name: str) -> str:
    """Version of the broker that wrote a golden store."""
    found = re.search(r"\d\.\d\.\d", name)
    assert found is not None
    return found.group()


def verified(
    store: Path | StoreView | Store,
    version: str,
    options: VerifyOptions | None = None,
    settings: Settings | None = None,
) -> tuple[Summary, list[Finding]]:
    """Summary and findings."""
    found: list[Finding] = []
    if not isinstance(store, Store):
        store = survey(open_directory(store) if isinstance(store, Path) else store, settings)
    return verify_store(store, rules_for(version), options, found.append), found


def above_note(found: list[Finding]) -> Counter[str]:
    """Ids of errors and warnings."""
    return Counter(each.id for each in found if each.severity is not Severity.NOTE)
