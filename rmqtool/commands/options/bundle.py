"""Reads the bundle of `rmqtool evidence` where a command takes a store."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.errors import UnsupportedError
from rmqtool.evidence.location import BundleLocation
from rmqtool.store.location import StoreLocation
from rmqtool.times import time_text


def store_of_bundle(place: StoreLocation, context: typer.Context) -> StoreLocation:
    """The store of a bundle, unpacked until the command ends; a place that is no bundle stays as it is.

    Raises:
        BundleError: it is damaged, or made to do harm.
        UnsupportedError: it does not have the commit log.
    """
    if place.path is None or not place.path.is_file():
        return place
    from rmqtool.evidence.bundle import is_bundle, unpack

    if not is_bundle(place.path):
        return place
    target = tempfile.TemporaryDirectory(prefix="rmqtool-evidence-")
    context.call_on_close(target.cleanup)
    manifest = unpack(place.path, Path(target.name))
    if not manifest.is_whole:
        raise UnsupportedError(
            f"{place}: was made without the commit log, so nothing is computed from it; unpack it with tar to read "
            f"findings.jsonl, the answer given on the store's machine: {manifest.verdict}"
        )
    messages = messages_of(context)
    messages.warn(f"the answer comes from the bundle {place}, made at {time_text(manifest.made_ms)}, not from a store")
    for difference in manifest.differences:
        messages.warn(f"the bundle does not give the store's own answer: {difference}")
    return BundleLocation(
        Path(target.name) / "store",
        None,
        manifest.store,
        manifest.properties,
        manifest.broker_version,
        manifest.commitlog_directories,
        manifest.sizes,
    )
