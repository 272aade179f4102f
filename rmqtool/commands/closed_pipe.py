"""Behavior of a command once its output is no longer read, as after `| head -1`: the rule of docs/exit-codes.md.

A command continues, what it prints is discarded, and it ends with the code that it would have had: a verdict stays a
verdict, and a repair or an append is not stopped halfway. Only where a command prints while it reads, and its reading
has no other purpose, it stops (`ends_unread`): the rest may be hours of a terabyte.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer

from rmqtool.answer.exit_codes import ExitCode


class PipeOutput(io.FileIO):
    """A file descriptor that is written to, though its other end may be closed; an error if it `needs_reader`."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.needs_reader = False

    def write(self, data: Any, /) -> int:
        """Write, or discard; BrokenPipeError where nobody reads, and the command needs a reader."""
        try:
            return super().write(data)
        except BrokenPipeError:
            if self.needs_reader:
                raise
            return memoryview(data).nbytes


@contextmanager
def reader_needed() -> Iterator[None]:
    """Within, output that nobody reads raises BrokenPipeError."""
    buffer = getattr(sys.stdout, "buffer", None)
    output = getattr(buffer, "raw", buffer)
    if not isinstance(output, PipeOutput):
        yield
        return
    output.needs_reader = True
    try:
        yield
    finally:
        output.needs_reader = False


@contextmanager
def ends_unread(code: ExitCode) -> Iterator[None]:
    """Within, output that nobody reads ends the command with this code."""
    try:
        with reader_needed():
            yield
    except BrokenPipeError as error:
        raise typer.Exit(code) from error


def surviving(stream: TextIO) -> TextIO:
    """A standard stream on an output of this kind."""
    if not isinstance(stream, io.TextIOWrapper):  # closed, or replaced by whoever runs this
        return stream
    stream.flush()
    output = PipeOutput(stream.fileno())
    return io.TextIOWrapper(
        io.BufferedWriter(output) if isinstance(stream.buffer, io.BufferedWriter) else output,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
