"""The decoders that `--decode` names, tried in this order; the brokers' own records are decoded first."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

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
        """Decode a body."""
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
                    return DecodedBody(_Limits().plain(value), name, None)
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
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a plugin's exception may be anything
        text = ""
    kind = type(error).__name__
    text = f"{kind}: {text}" if text and not isinstance(error, (ValueError, DecoderTimeoutError)) else text or kind
    text = " ".join(text.split())
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}..."


# Makes what a decoder gives out plain JSON of a bounded size: no value of a library or a plugin goes further.


VALUES_MAX: Final = 100_000
TEXT_MAX: Final = 4 << 20
"""Characters of all texts and names together."""
DEPTH_MAX: Final = 100
_LONG_BITS: Final = 64
"""Integers with more are texts: JSON readers cannot hold them, and Python refuses to print long ones."""
_PRINTED: Final = (Decimal, UUID, timedelta)


@dataclass
class _Limits:
    """The rest of the limits."""

    values: int = VALUES_MAX
    text: int = TEXT_MAX

    def plain(self, value: Any, depth: int = 0) -> Any:
        """The value with JSON's types only; bytes are base64, times ISO 8601, decimals and long numbers text.

        Raises:
            ValueError: it is too large, or holds what is no value.
        """
        self.values -= 1
        if self.values < 0:
            raise ValueError(f"the result has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise ValueError(f"the result is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, Mapping):
            return {self._name(name): self.plain(part, depth + 1) for name, part in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.plain(part, depth + 1) for part in value]
        return self._leaf(value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            number = int(value)
            return number if number.bit_length() <= _LONG_BITS else self._text(hex(number))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(float(value))
        if isinstance(value, str):
            return self._text(str(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(base64.b64encode(value).decode("ascii"))
        if isinstance(value, (datetime, date, time)):
            return self._text(value.isoformat())
        if isinstance(value, _PRINTED):
            return self._text(str(value))
        raise ValueError(f"the result holds a {type(value).__name__}, which is not a JSON value")

    def _name(self, name: Any) -> str:
        return self._text(name if isinstance(name, str) else str(self._leaf(name)))

    def _text(self, text: str) -> str:
        self.text -= len(text)
        if self.text < 0:
            raise ValueError(f"the result has more than {TEXT_MAX} characters")
        return text
