"""The decoders that a person names, and what is said of bodies that they could not decode."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.commands.messages import Messages
from rmqtool.errors import UsageError
from rmqtool.report.bodies import BodyChoice, BodyForm


def body_choice(form: BodyForm, limit: int, raw: bool, decode: Sequence[str] | None) -> BodyChoice:
    """What is to be shown of bodies; UsageError for options that do not fit, UnsupportedError for a missing library."""
    if decode and raw:
        raise UsageError("--decode and --raw exclude each other: a decoder reads the decompressed body")
    if decode and form is BodyForm.REDACTED:
        raise UsageError("--decode and --body redacted exclude each other")
    if not decode:
        return BodyChoice(form, limit, raw)
    from rmqtool.decoders.chain import make_chain  # loads numpy

    return BodyChoice(form, limit, raw, make_chain(decode))


def tell_failures(choice: BodyChoice, messages: Messages) -> None:
    """Warn of bodies that were not decoded."""
    if choice.decoder is not None and choice.decoder.failures:
        messages.warn(f"bodies that could not be decoded: {choice.decoder.failures}")
