"""The stores of the truth table: what is done to a golden store, and what is true of it then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests import rocksdb_cases

CLEAN = "5.5.0-clean-basic"


def spoil(path: Path, row: str) -> None:
    """One row of the table."""
    log = sorted((path / "commitlog").iterdir()) if (path / "commitlog").is_dir() else []
    match row:
        case "tables overwritten":
            for file in path.glob("consumequeue/*.sst"):
                file.write_bytes(bytes(range(100)))
        case "CURRENT empty":
            (path / "consumequeue/CURRENT").write_bytes(b"")
        case "units removed":
            for file in [*path.glob("consumequeue/*.sst"), *path.glob("consumequeue/*.log")]:
                file.unlink()
        case "three units removed":
            rocksdb_cases.BY_NAME["rocksdb-units-missing"].apply(path)
        case "wheel cut":
            os.truncate(path / "timerwheel", 1000)
        case "timer log half zeroed":
            (file,) = path.glob("timerlog/*")
            with file.open("r+b") as opened:
                opened.seek(52)
                opened.write(bytes(file.stat().st_size // 2))
        case "compaction log overwritten":
            for file in path.glob("compaction/compactionLog/*/*/*"):
                file.write_bytes(bytes(range(256)) * 8)
        case "compaction log cut":
            for file in path.glob("compaction/compactionLog/*/*/*"):
                os.truncate(file, 1000)
        case "DLedger overwritten":
            file = max(path.glob("dledger-*/data/*"), key=lambda each: each.stat().st_size)
            with file.open("r+b") as opened:
                opened.seek(200)
                opened.write(b"x" * 300)
        case "topics lost":
            for name in ("topics.json", "topics.json.bak"):
                (path / "config" / name).unlink(missing_ok=True)
        case "log missing" | "log empty":
            shutil.rmtree(path / "commitlog")
            if row == "log empty":
                (path / "commitlog").mkdir()
        case "last log file short":
            os.truncate(log[-1], log[-1].stat().st_size - 4096)
        case "stray file":
            (path / "commitlog/00000000000000000000.bak").write_bytes(b"x")
        case "middle file missing":
            log[2].unlink()


TABLE = [
    ("tables overwritten", "5.5.0-rocksdb-cq", "will-not-start", None),
    ("CURRENT empty", "5.5.0-rocksdb-cq", "will-not-start", None),
    ("units removed", "5.5.0-rocksdb-cq", "will-not-start", None),
    ("three units removed", "5.5.0-rocksdb-cq", "inconsistent", None),
    ("wheel cut", "broker-5.5.0-timer", "will-not-start", "timer log"),
    ("timer log half zeroed", "broker-5.5.0-timer", "inconsistent", "timer log"),
    ("compaction log overwritten", "broker-5.5.0-compaction", "inconsistent", "compaction log"),
    ("compaction log cut", "broker-5.5.0-compaction", "inconsistent", "compaction log"),
    ("DLedger overwritten", "broker-5.3.3-dledger", "damaged", "DLedger"),
    ("topics lost", "broker-5.5.0-mixed-clean", "inconsistent", None),
    ("log missing", CLEAN, "log-missing", None),
    ("log empty", CLEAN, "log-missing", None),
    ("last log file short", CLEAN, "will-not-start", None),
    ("stray file", CLEAN, "will-not-start", None),
    ("middle file missing", CLEAN, "damaged", None),
]
"""What is done, to which store, the verdict of verify, and the kind of file that a command may not look at."""
