"""`rmqtool patch`: one field or one range of a file, as a person says. What lies there is decided in `repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.run import pairs
from rmqtool.commands.repairs.repair_command import repair_command
from rmqtool.commands.repairs.repair_plan import Planner, RepairRun
from rmqtool.dump.target import place_in_store
from rmqtool.errors import NotAStoreError, UsageError
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.patch import PatchRequest, RangeCopy, plan_patch
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store


def _placed(file: Path) -> tuple[Path, str]:
    """The store of a file, and the file's path in it; NotAStoreError where a broker keeps none."""
    placed = place_in_store(file, directory=False)
    if placed is None:
        raise NotAStoreError(f"{file}: not in a store, or not a file that a broker reads")
    return placed


@repair_command(store_of=lambda file: _placed(file)[0])
def patch(
    _repair: RepairRun,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of the store, such as STORE/commitlog/000...0.")],
    position: Annotated[
        int | None, option("--at POSITION", "Where the record or unit begins in the file.", min=0)
    ] = None,
    values: Annotated[
        list[str] | None, option("--set FIELD=VALUE", "New value of a field; repeatable. 0x1F is hexadecimal.")
    ] = None,
    fix_crc: Annotated[bool, option("--fix-crc", "Compute the checksums of the record again, after --set.")] = False,
    source: Annotated[Path | None, option("--from FILE", "Copy bytes of this file over the range at --at.")] = None,
    source_position: Annotated[
        int | None, option("--from-at POSITION", "Where the copied bytes begin (default: as --at).", min=0)
    ] = None,
    length: Annotated[int | None, option("--length BYTES", "How many bytes to copy.")] = None,
) -> Planner:
    """Set fields of one record, unit, slot, header or checkpoint, or copy a range of bytes from another file.

    The plan shows the bytes before and after, and what a broker would do then. `rmqtool formats` lists the fields.
    Nothing is ever moved: a value is as long as the one it replaces. rmqtool undo restores the file.

    Example: rmqtool patch /home/rocketmq/store/commitlog/00000000000000000000 --at 4711 --set queue_id=3 --dry-run
    """
    if position is None:
        raise UsageError("pass --at POSITION, or --apply FILE with a saved plan")
    if source is None and (source_position is not None or length is not None):
        raise UsageError("--from-at, --length: they need --from FILE")
    if (source is None) == (not values and not fix_crc):
        raise UsageError("pass --set FIELD=VALUE or --fix-crc, or --from FILE with --length")
    copy = None
    if source is not None:
        if length is None:
            raise UsageError("--from: needs --length BYTES")
        copy = RangeCopy(source, position if source_position is None else source_position, length)
    fields = tuple(pairs(values or (), "--set", "FIELD=VALUE"))
    request = PatchRequest(_placed(file)[1], position, fields, fix_crc, copy)

    def plan(store: Store, _staging: Path, _on_progress: OnProgress) -> PlannedRepair:
        planned = plan_patch(store, request)
        return PlannedRepair(
            planned.steps,
            loss=planned.loss,
            abort_stays="a patch changes only what was named" if store.has_abort else None,
            details=planned.as_json(request),
            is_chosen=True,
        )

    return plan
