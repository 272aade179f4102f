"""`rmqtool --compile`: compiles what commands would compile at their first run or at each, as a step of an install."""

from __future__ import annotations

import compileall
import sys
import tempfile
from contextlib import closing
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Final

from rmqtool.commands.command_list import COMMANDS
from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request, fields_of_kind
from rmqtool.dump.target import DumpKind, Target
from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.dispatch.index_entries import KERNEL
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.report.bodies import BodyChoice, BodyForm
from rmqtool.report.rows import RowBlock
from rmqtool.report.writers import row_writer
from rmqtool.scan import digest
from rmqtool.scan.compiled import is_available, load_kernel
from rmqtool.scan.kernels.code_folder import writable_folder
from rmqtool.scan.log import ScanOptions, plan_segments, scan_log
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

_MESSAGES: Final = 600
_SLOTS: Final = 100


def compile_kernels() -> Path:
    """Run everything that is compiled over a small store; the folder in which the code is kept.

    Raises:
        UnsupportedError: nothing can be compiled here, or no folder can keep it.
    """
    if not is_available():
        raise UnsupportedError("nothing can be compiled here: the plain reader does all the work")
    folder = writable_folder()
    if folder is None:
        raise UnsupportedError("no folder can keep what is compiled: none can be written to by its user alone")
    load_kernel(KERNEL)
    with tempfile.TemporaryDirectory(prefix="rmqtool-") as name:
        root = Path(name) / "store"
        rules, config = rules_for(NEWEST), WriterConfig(commitlog_file_size=1 << 20, index_slot_count=_SLOTS)
        with new_store(root, rules, config) as writer:
            message = Message(topic="topic", body=b"body", properties={"KEYS": "a b", "TAGS": "c", "UNIQ_KEY": "d"})
            writer.put_all([message] * _MESSAGES)
        store = survey(open_directory(root))
        verify_store(store, rules, VerifyOptions(compiled=True))
        _digests(store)
        _json_lines(store)
    _compile_modules()
    return folder


def _digests(store: Store) -> None:
    with closing(plan_segments(store.view.open, store.commitlog)) as plan:
        for batch in scan_log(plan, ScanOptions(compiled=True)):
            digest.batch_digests(batch, batch.as_array(), by_content=False, record_crc=False)


def _json_lines(store: Store) -> None:
    target = Target(DumpKind.COMMITLOG, store.view, tuple(segment.entry for segment in store.commitlog))
    body = BodyChoice(BodyForm.TEXT)
    writer = row_writer("jsonl", StringIO(), fields_of_kind(target.kind, body))
    for rows in LogDump(target, Request(body=body, broker_version=NEWEST), compiled=True).rows():
        if isinstance(rows, RowBlock):
            writer.write_block(rows)


def _compile_modules() -> None:
    """Write the bytecode of all that commands import: some installers leave it to the first run, some settings to each.

    A folder that cannot be written to stays as it is.
    """
    for target, _help in COMMANDS.values():
        import_module(target.partition(":")[0])
    for module in tuple(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.has_location and spec.cached is not None:
            compileall.compile_file(str(spec.origin), quiet=2)
