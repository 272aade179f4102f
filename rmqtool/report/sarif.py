"""Findings as SARIF 2.1.0, which code hosts and editors show; bytes of a store are byte regions of its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from rmqtool.report.text import escaped

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"error": "error", "warning": "warning", "note": "note"}


def sarif_text(version: str, rules: Iterable[tuple[str, str, str]], findings: Sequence[Mapping[str, Any]]) -> str:
    """The log.

    Args:
        version: of this program.
        rules: (id, severity, meaning) of every kind of finding.
        findings: objects as `verify --format json` writes them.
    """
    driver = {
        "name": "rmqtool",
        "version": version,
        "rules": [
            {"id": name, "shortDescription": {"text": meaning}, "defaultConfiguration": {"level": _LEVELS[severity]}}
            for name, severity, meaning in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(finding) for finding in findings],
        "columnKind": "utf16CodeUnits",
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=True) + "\n"


def _result(finding: Mapping[str, Any]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(str(finding["file"]), errors="surrogateescape")}}
    if finding["file_position"] is not None and finding["file_position"] >= 0:
        place["region"] = {"byteOffset": finding["file_position"], "byteLength": max(0, finding["length"] or 0)}
    kept = ("physical_offset", "topic", "queue_id", "queue_offset", "repair", "upstream")
    return {
        "ruleId": finding["id"],
        "level": _LEVELS[finding["severity"]],
        "message": {"text": escaped(finding["message"])},
        "locations": [{"physicalLocation": place}],
        "properties": {
            name: escaped(value) if isinstance(value, str) else value  # names of a store need not be Unicode
            for name in kept
            if (value := finding[name]) is not None
        },
    }
