"""Screen of `evidence`: the content of the bundle, and whether it gives the store's own answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import counted, escaped, headline, labelled, size_text

_INCLUDED: Final = {
    "whole": "whole",
    "redacted": "redacted",
    "ranges": "in ranges",
    "size-only": "with size and time only",
    "not-a-file": "no plain files, with name only",
}
README: Final = """\
A support bundle of rmqtool. `rmqtool verify FILE` and `rmqtool forecast FILE` read it.

manifest.json   the files of the store with sizes and times, and what of each is in the bundle
files/N         the bytes of file N of the manifest (counted from 0) up to its last byte that is not zero; if it has
                `ranges` (position and length), these ranges, one after the other
answers.json    what verify and forecast said about the store: at most 10,000 findings, without their texts
logs/N          the end of log N of the manifest, of the broker, with those parts of its lines that are known
manifest.blake2b  digest of the manifest, which has one of every other member

Where `is_redacted` is true, bodies, keys, tags and property values are replaced by others of the same length.
"""


def evidence_lines(path: str, size: int, manifest: JsonObject, width: int, *, color: bool = False) -> Iterator[str]:
    """The lines of the screen for a bundle and its manifest."""
    is_same = manifest["is_whole"] and not manifest["differences"]
    has_ranges = any(file["ranges"] for file in manifest["files"])
    text = f"Wrote {escaped(path)} ({size_text(size)})."
    yield from headline(text, "good", width, color=color)
    yield ""
    yield from labelled("Store", escaped(manifest["store"]), width)
    yield from labelled("Verdict", manifest["verdict"].upper().replace("-", " "), width)
    if is_same:
        yield from labelled("Answers", "verify and forecast give the same from the bundle", width)
    else:
        why = "the bundle does not have all of the commit log" if not manifest["is_whole"] else "see below"
        text = f"verify and forecast show the answers of this machine, recorded in the bundle ({why})"
        yield from labelled("Answers", text, width)
    if has_ranges:
        text = "larger than --max-size: of each file only its start and what is around damage is in the bundle"
        yield from labelled("Store size", text, width)
    for difference in manifest["differences"]:
        yield from labelled("Differs", escaped(difference), width)
    counts = Counter(file["included"] for file in manifest["files"])
    parts = [f"{counts.pop(included)} {words}" for included, words in _INCLUDED.items() if counts[included]]
    assert not +counts
    yield from labelled("Files", "; ".join(parts) or "none", width)
    if manifest["left_out_files"]:
        yield from labelled("Not listed", counted(manifest["left_out_files"], "further file"), width)
    if manifest["is_redacted"]:
        yield from labelled("Left out", "bodies, keys, tags and property values", width)
        kept = "" if manifest["hides_names"] else "names of topics and groups, hosts, "
        yield from labelled("Still in it", f"{kept}times, sizes, hashes of keys and tags", width)
    else:
        yield from labelled("Contains", "bodies, keys, tags and property values, as --with-bodies asked", width)
    if manifest["logs"]:
        text = f"{counted(len(manifest['logs']), 'log')} of the broker; look at it before you send the bundle: "
        yield from labelled(
            "Contains", f"{text}its lines have times, numbers, names and the words that brokers use", width
        )
