"""Reads the bundle of `rmqtool evidence` where a command takes a store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

import rmqtool
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.errors import UnsupportedError
from rmqtool.evidence.location import BundleLocation
from rmqtool.report.json_schemas import JsonObject
from rmqtool.store.location import StoreLocation
from rmqtool.times import time_text

if TYPE_CHECKING:
    from rmqtool.evidence.recorded import RecordedAnswers
    from rmqtool.forecast.result import Forecast

_COMPARED: Final = ("verdict", "headline", "findings", "checked", "left_out_bytes", "complete")


def store_of_bundle(place: StoreLocation, context: typer.Context) -> StoreLocation:
    """The store of a bundle, unpacked until the command ends; any other place as it is. Errors as of `recorded_of`."""
    if place.path is None or not place.path.is_file():
        return place
    from rmqtool.evidence.bundle import is_bundle, unpack

    if not is_bundle(place.path):
        return place
    target = tempfile.TemporaryDirectory(prefix="rmqtool-evidence-")
    context.call_on_close(target.cleanup)
    manifest, answers = unpack(place.path, Path(target.name))
    messages = messages_of(context)
    messages.warn(f"the answer comes from the bundle {place}, made at {time_text(manifest.made_ms)}, not from a store")
    return BundleLocation(
        Path(target.name) / "store",
        None,
        manifest.store,
        manifest.properties,
        manifest.broker_version,
        answers,
        manifest.gives_own_answers,
        manifest.differences if manifest.is_whole else None,
        tuple(file.path for file in manifest.files),
    )


def recorded_of(place: StoreLocation, messages: Messages, *, asks_more: bool) -> RecordedAnswers | None:
    """The answers that were recorded where the store is, if a bundle does not give them; None for all other stores.

    BundleError where they are damaged, or made to do harm; UnsupportedError where options ask for another answer than
    the recorded one, which the bundle cannot give.
    """
    if not isinstance(place, BundleLocation) or place.gives_own_answers:
        return None
    if asks_more and place.differences is None:
        raise UnsupportedError(
            f"{place}: the bundle does not have all of the commit log, so that only the answers without options, "
            "recorded on the machine of the store, can be shown"
        )
    if asks_more:
        for difference in place.differences or ():
            messages.warn(f"the bundle does not give the store's own answer: {difference}")
        return None
    from rmqtool.evidence.recorded import parse_answers

    messages.warn("it was recorded on the machine of the store, because the bundle does not have all that it takes")
    return replace(parse_answers(place.answers), files=place.files)


def demand_as_recorded(place: StoreLocation, computed: JsonObject, forecasts: Sequence[Forecast] | None = None) -> None:
    """Refuse, as BundleError, an answer from the files of a bundle that is another one than was recorded where the
    store is: of `forecast`, or what `verify` sums up in JSON. Neither is known to be the store's.
    """
    if not isinstance(place, BundleLocation) or not place.gives_own_answers:
        return
    from rmqtool.evidence.bundle import BundleError
    from rmqtool.evidence.recorded import parse_answers
    from rmqtool.evidence.shown_values import with_bounds

    answers = parse_answers(place.answers)
    recorded = answers.verify.summary() if forecasts is None else answers.forecast.ending()
    is_same = all(with_bounds(computed.get(name)) == recorded.get(name) for name in _COMPARED)
    if forecasts is not None and not answers.forecast.is_cut:
        by_version = {forecast.broker_version: forecast.as_json() for forecast in answers.forecast.forecasts}
        own = [(forecast.broker_version, with_bounds(forecast.as_json())) for forecast in forecasts]
        is_same = is_same and all(by_version.get(version, forecast) == forecast for version, forecast in own)
    if not is_same:
        raise BundleError(
            f"{place}: two answers, of which neither may be the store's. Recorded on its machine: "
            f"{recorded['headline']!r}. Computed from the bundle: {computed['headline']!r}. The bundle was changed, or "
            f"made by an rmqtool that judges otherwise than {rmqtool.__version__}"
        )
