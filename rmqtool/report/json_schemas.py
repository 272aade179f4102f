"""The JSON schemas of all output, as they ship with the package: which command's output has which."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

JsonObject = Mapping[str, Any]
"""An object of a command's output, as its schema describes it."""
JsonRow = dict[str, Any]
"""The mutable form of a row."""

SCHEMAS: Final = MappingProxyType(
    {
        "info": "info",
        "dump": "dump",
        "get": "get",
        "verify": "verify",
        "verify STORE...": "verify-fleet",
        "watch": "watch",
        "forecast": "forecast",
        "diff": "diff",
        "diff --make-manifest": "manifest",
        "recover": "plan",
        "rebuild": "plan",
        "convert": "plan",
        "salvage": "plan",
        "patch": "plan",
        "salvage --export": "salvage-export",
        "undo": "undo",
        "append": "append",
        "extract": "extract",
        "merge": "extract",
        "replay": "replay",
        "mirror": "mirror",
        "export": "export",
        "stats": "stats",
        "search": "search",
        "evidence": "evidence",
        "fixture list": "fixture-list",
        "fixture damage": "fixture-damage",
        "fixture check": "fixture-check",
        "formats": "formats",
        "--progress json": "progress",
    }
)
"""Schema by command. Where a command writes rows the schema is that of a row."""


def schema_text(name: str) -> str | None:
    """The text of a schema, by its own name or a command's; None where there is none."""
    name = SCHEMAS.get(name, name)
    if name not in SCHEMAS.values():
        return None
    return (files("rmqtool.report") / "schemas" / f"{name}.json").read_text("utf-8")
