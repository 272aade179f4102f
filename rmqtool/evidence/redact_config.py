"""Rebuilds configuration files from what is declared of them; see `config_shapes`."""

from __future__ import annotations

from rmqtool.evidence.config_shapes import Rebuild, shape_of
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.redact_record import masked
from rmqtool.store.relaxed_json import JsonError


def redact_config(path: str, raw: bytes, pseudonyms: Pseudonyms) -> bytes:
    """A file with as many bytes as before; one that is no such JSON is masked, which is none either.

    Args:
        path: of a file of which something is declared.
    """
    shape = shape_of(path)
    assert shape is not None
    try:
        text = Rebuild(pseudonyms.names.each, pseudonyms.letters).text(raw, shape)
    except JsonError:
        return masked(raw)
    return text.ljust(len(raw)) if len(text) <= len(raw) else masked(raw)
