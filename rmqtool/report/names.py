"""A name that does not exist, and the ones that were probably meant: the one wording of every command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """The most similar name, as the tail of a sentence; empty where none is near."""
    by_folded = {known.casefold(): known for known in names}
    close = [by_folded[folded] for folded in difflib.get_close_matches(name.casefold(), list(by_folded), n=3)]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def unknown_name(what: str, name: str, names: Iterable[str], listed_by: str = "") -> str:
    """Error for an unknown name, as a sentence: with the nearest names, else with all, or the command that has them."""
    known = tuple(names)
    all_names = f"; to list all {len(known)}: {listed_by}" if listed_by else f"; there are {', '.join(known)}"
    return f"no {what} {name!r}" + (nearest(name, known) or all_names)
