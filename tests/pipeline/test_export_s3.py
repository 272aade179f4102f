"""`export` into a bucket: the rows, the manifest, the second run and the increment, on a real S3 server."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from pyarrow import fs

from tests.commands.transcripts import Ran
from tests.conftest import Unpacked
from tests.pipeline.cluster import ROOT
from tests.pipeline.export_campaign import s3_settings
from tests.pipeline.stores import dump_rows
from tests.remote.s3_server import BUCKET, KEYS, require_server, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]


def export(port: int, folder: Path, *words: object) -> Ran:
    conf = [*s3_settings(port), "spark.sql.shuffle.partitions=2"]
    options = [word for setting in conf for word in ("--conf", setting)]
    ran = subprocess.run(
        [sys.executable, "-m", "rmqtool", "export", *map(str, words), "--master", "local[2]", *options],
        cwd=folder,
        env={**os.environ, **KEYS, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_an_export_goes_into_a_bucket(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_server()
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    path = golden("5.5.0-clean-basic")
    expected = [row["physical_offset"] for row in dump_rows(path)]
    with s3_server() as port:
        bucket = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        bucket.create_dir(BUCKET)

        def files(folder: str) -> dict[str, bytes]:
            root = f"{BUCKET}/{folder}/"
            listed = [one.path for one in bucket.get_file_info(fs.FileSelector(root, recursive=True)) if one.is_file]
            data = [place.removeprefix(root) for place in listed if place.endswith(".parquet")]
            return {name: bucket.open_input_file(root + name).readall() for name in data}

        def offsets(folder: str) -> list[int]:
            readers = [pyarrow.parquet.ParquetFile(pyarrow.BufferReader(file)) for file in files(folder).values()]
            tables = [reader.read(["physical_offset"]) for reader in readers]
            return sorted(offset for table in tables for offset in table["physical_offset"].to_pylist())

        words = (path, "--to", f"s3://{BUCKET}/plain", "--partition-by", "topic")
        ran = export(port, tmp_path, *words)
        assert ran.code == 0, ran.err
        assert offsets("plain") == expected
        manifest = json.loads(bucket.open_input_file(f"{BUCKET}/plain/_rmqtool-export.json").readall())
        written = {name: hashlib.sha256(content).hexdigest() for name, content in files("plain").items()}
        assert {file["path"]: file["sha256"] for file in manifest["files"]} == written
        assert export(port, tmp_path, *words).out == ran.out
        assert files("plain").keys() == written.keys()
        for batches in (1, 0):
            ran = export(port, tmp_path, path, "--to", f"s3://{BUCKET}/more", "--incremental")
            assert (ran.code, json.loads(ran.out)["batches"]) == (0, batches), ran.err
            assert offsets("more/messages") == expected
    assert list(tmp_path.iterdir()) == []
