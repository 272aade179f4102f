"""Findings as a JUnit report: a case for each file, failing where a finding needs something to be done."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from rmqtool.report.check_formats import junit_text


def finding(file: str, severity: str, **more: Any) -> dict[str, Any]:
    return {"id": "a.b", "severity": severity, "file": file, "message": "text", "file_position": None, **more}


def test_files_pass_or_fail_by_their_findings() -> None:
    findings = [
        finding("a", "note"),
        finding("b", "note"),
        finding("b", "error", message="broken", file_position=7),
        finding("c", "warning"),
    ]
    suite = ElementTree.fromstring(junit_text("/store", findings, ["c", "d"]))
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    assert [case.get("name") for case in suite] == ["a", "b", "c", "d"]
    assert [[child.tag for child in case] for case in suite] == [["system-out"], ["failure"], ["failure"], []]
    failure = suite[1][0]
    assert failure.get("message") == "broken"
    assert failure.text == "note a.b: text\nerror a.b at 7: broken"


def test_what_xml_cannot_hold_is_escaped() -> None:
    text = junit_text("/s\x00", [finding("f\x1b\udce9", "error", message="<\x07&")], [])
    suite = ElementTree.fromstring(text)
    assert suite[0].get("name") == "f\\x1b\\udce9"
    assert suite[0][0].get("message") == "<\\x07&"
