"""The catalog's findings about a tiered store in files."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import FindingType, error, warning

_TIERED: Final = "5.3.3 and later, with a tiered store"
_NOT_REPAIRED: Final = "rmqtool does not repair it; restore the file from another copy of the tiered store"

ENTRIES: Final[tuple[FindingType, ...]] = (
    error(
        "tiered.bad-record",
        "A range in a log segment of the tiered store is not a good record.",
        ((_TIERED, "not noticed; a pull returns the damaged bytes"),),
        _NOT_REPAIRED,
    ),
    error(
        "tiered.metadata-broken",
        "Neither `config/tieredStoreMetadata.json` nor its `.bak` can be read.",
        ((_TIERED, "finds none of the segments"),),
        _NOT_REPAIRED,
    ),
    error(
        "tiered.missing-segment",
        "A segment that the metadata of the tiered store names is not there.",
        ((_TIERED, "cannot serve the messages of this segment"),),
        _NOT_REPAIRED,
    ),
    error(
        "tiered.short-segment",
        "A segment of the tiered store is shorter than its metadata say.",
        ((_TIERED, "serves the messages at its end cut short, or not at all"),),
        _NOT_REPAIRED,
    ),
    warning(
        "tiered.wrong-unit",
        "A unit in a queue segment of the tiered store leads to no record of its size and queue offset.",
        ((_TIERED, "serves a wrong message, or none"),),
        _NOT_REPAIRED,
    ),
)
