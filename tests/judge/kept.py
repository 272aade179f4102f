"""Cases that somebody must look at: the damaged store and its base, packed, with a recipe beside them."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from tests.judge.bases import FILE, Base, plan_of
from tests.judge.case import Case


def keep(case: Case, folder: Path) -> None:
    """Pack a case into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = {
        "case": case.name,
        "version": case.version,
        "config": dict(case.base.plan.config),
        "topics": case.base.plan.topic_settings,
        "runs": case.base.plan.runs,
        "features": sorted(case.base.plan.features),
        "told": [str(option) for option in case.told],
        "faults": [asdict(fault) for fault in case.faults],
        "disagreements": [asdict(row) for row in case.disagreements],
    }
    (folder / f"{case.name}.json").write_text(json.dumps(recipe, indent=1, ensure_ascii=False))
    shutil.copy2(case.conf, case.folder / "store.conf")
    names = ["store", "store.conf"]
    command = ["tar", "--sparse", "-cJf", str(folder / f"{case.name}.tar.xz"), "-C", str(case.folder), *names]
    subprocess.run([*command, "-C", str(case.base.path.parent), *_of_base(case.base)], check=True, timeout=300)


def _of_base(base: Base) -> list[str]:
    return [base.path.name, *(["early"] if base.early is not None else [])]


def kept_base(name: str, archive: Path, folder: Path) -> Base:
    """The base of a kept case, unpacked; the damaged store lies beside it."""
    queues, seed, writer, number = parts_of(name)[:4]
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xJf", str(archive), "-C", str(folder)], check=True, timeout=300)
    path = next(iter(folder.glob("run-*")))
    early = folder / "early"
    return Base(plan_of(seed, writer, number, queues), path, early if early.exists() else None)


def parts_of(name: str) -> tuple[str, int, str, int, int, str]:
    """Where the queues are, seed, writer's version, base, case and the version asked, out of a case's name."""
    queues, _, rest = name.rpartition("-")
    cells = rest.split(".")
    return queues or FILE, int(cells[0]), ".".join(cells[1:4]), int(cells[4]), int(cells[5]), ".".join(cells[6:9])
