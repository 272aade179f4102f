"""Settings of the broker in a bundle: what a broker does depends on them, and nothing of a customer is in them."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from rmqtool.engine.rules.settings import all_settings
from rmqtool.evidence.location import shareable_settings
from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked

CANARY = "c4nary"
SECRETS = {
    "initAuthenticationUser": '{"username":"c4nary","password":"c4nary"}',
    "metricsGrpcExporterHeader": "Authorization:Bearer c4nary",
    "sasl.jaas.config": "c4nary",
    "jdbcUrl": "jdbc:mysql://c4nary:c4nary@db/x",
    "rocketmqHome": "/home/c4nary",
    "aclFile": "/etc/c4nary",
    "tieredStoreFilePath": "/mnt/c4nary",
    "readOnlyCommitLogStorePaths": "/mnt/c4nary",
    "storePathCommitLog": "/mnt/c4nary",
    "brokerName": "c4nary",
    "namesrvAddr": "c4nary:9876",
    "c4nary": "1",
    "the c4nary of a line without a sign": "",
}
KEPT = {
    "mappedFileSizeCommitLog": "65536",
    "maxHashSlotNum": " 100",
    "storeType": "defaultRocksDB",
    "brokerRole": "SYNC_MASTER",
    "messageIndexEnable": "true",
    "messageDelayLevel": "1s 5s 1m",
    "dLegerSelfId": "n0",
}


def test_only_what_a_broker_goes_by_is_shared() -> None:
    assert shareable_settings({**SECRETS, **KEPT}) == KEPT


@pytest.mark.parametrize("value", [CANARY, f"1 {CANARY}", f"{CANARY} true", f"default{CANARY}", f"n0{CANARY}", ""])
def test_no_setting_takes_another_text_along(value: str) -> None:
    assert shareable_settings(dict.fromkeys(all_settings(), value)) == {}


@pytest.mark.parametrize("options", [(), ("--hide-names",), ("--with-bodies",)])
def test_nothing_else_of_the_properties_file_is_in_a_bundle(
    golden: Unpacked, tmp_path: Path, options: tuple[str, ...]
) -> None:
    store, conf, bundle = golden("5.5.0-clean-basic"), tmp_path / "broker.conf", tmp_path / "bundle"
    idle = {name: CANARY for name, setting in all_settings().items() if setting.effect == "none"}
    secrets = {name: value for name, value in SECRETS.items() if "StorePath" not in name and "storePath" not in name}
    settings = {**idle, **secrets, "forceVerifyPropCRC": CANARY, "checkCRCOnRecover": "false"}
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    ran = rmqtool("evidence", store, "--output", bundle, "--broker-conf", conf, *options)
    assert ran.code in (0, 3), ran.err
    content = unpacked(bundle)
    assert CANARY.encode() not in content
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        assert json.load(manifest)["properties"] == {"checkCRCOnRecover": "false"}
    assert json_answer("verify", bundle)[0] == json_answer("verify", store, "--broker-conf", conf)[0]


def unpacked(bundle: Path) -> bytes:
    with bundle.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as plain:
        content: bytes = plain.read()
        return content
