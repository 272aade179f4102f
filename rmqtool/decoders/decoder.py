"""What a decoder is: a function of a body and what is known of its message, made from the option's argument.

A plugin is an entry point of the group `rmqtool.decoders` that is such a maker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqtool.report.bodies import MessageFacts

Decode = Callable[[bytes, MessageFacts], Any]
"""Gives the value of a body, decompressed and whole; `...` (Ellipsis) leaves the message to the next decoder.

An exception, whichever, says why the body is none of this kind.
"""
MakeDecoder = Callable[[str | None], Decode]
"""Makes a decoder of the text after `=`; None where there is none. A ValueError says what is wrong with the text."""
