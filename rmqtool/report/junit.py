"""Findings as a JUnit report, which every CI system shows: one test case a file, its findings as the failure's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from rmqtool.report.text import escaped

FAILING = ("error", "warning")


def junit_text(store: str, findings: Sequence[Mapping[str, Any]], files: Sequence[str]) -> str:
    """The report.

    Args:
        findings: objects as `verify --format json` writes them, file by file.
        files: every file that was looked at; one without a finding passes.
    """
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
