"""The decoders that `--decode` names, tried in this order; what brokers write for themselves is decoded first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqtool.decoders.bounded import plain_value
from rmqtool.decoders.built_in import BUILT_IN
from rmqtool.decoders.decoder import Decode
from rmqtool.decoders.plugins import load_plugin, plugin_names
from rmqtool.decoders.system import SYSTEM, decode_system_message
from rmqtool.decoders.time_limit import DecoderTimeoutError, TimedDecoder
from rmqtool.errors import RmqtoolError, UnsupportedError, UsageError
from rmqtool.report.bodies import DecodedBody, MessageFacts
from rmqtool.report.names import unknown_name

REASON_MAX: Final = 300
"""Characters of an error that are shown: some carry the body."""


@dataclass
class DecoderChain:
    """Decodes bodies; a body that none of the decoders reads is told with the reasons of those that tried.

    Attributes:
        decoders: (name, decoder) in their order.
        failures: how many bodies could not be decoded.
    """

    decoders: Sequence[tuple[str, Decode]]
    failures: int = field(default=0, compare=False)

    def left_out(self, reason: str) -> DecodedBody:
        """A body that is longer than the limit, or cannot be had."""
        self.failures += 1
        return DecodedBody(None, None, reason)

    def decode(self, body: bytes, message: MessageFacts) -> DecodedBody:
        """What a body means; see `BodyDecoder`."""
        try:
            system = decode_system_message(body, message)
        except Exception as error:  # noqa: BLE001 - whatever is in a body, a person gets a sentence
            self.failures += 1
            return DecodedBody(None, SYSTEM, _reason(error))
        if system is not None and not system.carries_body:
            return DecodedBody(system.fields, SYSTEM, None)
        decoded = self._decoded(body, message)
        self.failures += decoded.error is not None
        if system is None:
            return decoded
        if decoded.error is not None:
            reason = f"{decoded.decoder}: {decoded.error}" if decoded.decoder is not None else decoded.error
            return DecodedBody(system.fields, SYSTEM, reason)
        value = decoded.value if decoded.decoder is not None else body.decode("utf-8", "backslashreplace")
        return DecodedBody({**system.fields, "body": value}, SYSTEM, None)

    def _decoded(self, body: bytes, message: MessageFacts) -> DecodedBody:
        reasons = []
        for name, decode in self.decoders:
            try:
                value = decode(body, message)
                if value is not ...:
                    return DecodedBody(plain_value(value), name, None)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a decoder may be anybody's
                reasons.append((name, _reason(error)))
        if not reasons:
            return DecodedBody(None, None, None)
        text = "; ".join(f"{name}: {reason}" for name, reason in reasons) if len(reasons) > 1 else reasons[0][1]
        return DecodedBody(None, reasons[0][0] if len(reasons) == 1 else None, text)


def make_chain(choices: Sequence[str]) -> DecoderChain | None:
    """The decoders of `--decode NAME[=ARG]`, which may be given several times; None without any.

    Raises:
        UsageError: there is no such decoder, or it does not take this argument.
        UnsupportedError: a library or plugin is missing or does not load.
    """
    return DecoderChain([_made(choice) for choice in choices]) if choices else None


def _made(choice: str) -> tuple[str, Decode]:
    name, separator, argument = choice.partition("=")
    given = argument if separator else None
    make = BUILT_IN.get(name)
    plugin = load_plugin(name) if make is None else None
    if make is None and plugin is None:
        raise UsageError(f"--decode: {unknown_name('decoder', name, (*BUILT_IN, *plugin_names()))}")
    timed = None if plugin is None else TimedDecoder(name, plugin, given)
    try:
        decode: Any = timed.start() if timed is not None else make(given) if make is not None else None
    except RmqtoolError:
        raise
    except DecoderTimeoutError as error:
        raise UnsupportedError(f"--decode {choice}: decoder {name!r} does not start: {error}") from error
    except ValueError as error:
        raise UsageError(f"--decode {choice}: {error}") from error
    except Exception as error:
        raise UnsupportedError(f"--decode {choice}: decoder {name!r} fails: {_reason(error)}") from error
    if not callable(decode):
        raise UnsupportedError(f"--decode {choice}: decoder {name!r} makes no function")
    return name, decode if timed is None else timed


def _reason(error: BaseException) -> str:
    """An exception as a short line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a plugin's exception may be anything
        text = ""
    kind = type(error).__name__
    text = f"{kind}: {text}" if text and not isinstance(error, (ValueError, DecoderTimeoutError)) else text or kind
    text = " ".join(text.split())
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}..."
