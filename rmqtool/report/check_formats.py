"""Findings in the formats of CI systems.

As a JUnit report, which every one shows: one test case a file, its findings as the failure's text. As SARIF 2.1.0,
which code hosts annotate with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

from rmqtool.report.text import escaped

FAILING = ("error", "warning")


def junit_text(store: str, findings: Sequence[Mapping[str, Any]], files: Sequence[str]) -> str:
    """The report on findings, objects of `verify --format json`, file by file; a file without one passes."""
    of_files = {file: list(group) for file, group in groupby(findings, key=lambda finding: str(finding["file"]))}
    names = sorted({*files, *of_files})
    failed = {file for file, group in of_files.items() if any(row["severity"] in FAILING for row in group)}
    suite = ElementTree.Element(
        "testsuite",
        name=f"rmqtool verify {escaped(store)}",
        tests=str(len(names)),
        failures=str(len(failed)),
        errors="0",
    )
    for name in names:
        case = ElementTree.SubElement(suite, "testcase", classname="rmqtool.verify", name=escaped(name))
        if name in failed:
            first = next(finding for finding in of_files[name] if finding["severity"] in FAILING)
            failure = ElementTree.SubElement(case, "failure", type=str(first["id"]), message=escaped(first["message"]))
            failure.text = "\n".join(_line(finding) for finding in of_files[name])
        elif name in of_files:
            ElementTree.SubElement(case, "system-out").text = "\n".join(_line(finding) for finding in of_files[name])
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _line(finding: Mapping[str, Any]) -> str:
    place = "" if finding["file_position"] is None else f" at {finding['file_position']}"
    return f"{finding['severity']} {finding['id']}{place}: {escaped(finding['message'])}"


SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"error": "error", "warning": "warning", "note": "note"}


def sarif_text(version: str, rules: Iterable[tuple[str, str, str]], findings: Sequence[Mapping[str, Any]]) -> str:
    """The log of this version of the program: findings, objects as `verify --format json` writes them, and the rules,
    which are id, severity and meaning of every kind of finding.
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
