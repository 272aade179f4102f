"""What brokers make of `consumerOffset.json` that is not quite JSON; tests/broker/test_relaxed_config.py asks them.

4.9.7 reads with fastjson 1.2, 5.3.3 with both, 5.5.0 with fastjson2. Where the three differ, rmqtool, which does not
know which of them reads the file next, does what one of them does.
"""

from __future__ import annotations

from typing import Final

Offsets = dict[str, dict[int, int]]
REFUSED: Final[Offsets] = {"B@B": {0: 9}}
"""The broker reads the copy instead, which has this."""
BACKUP: Final = '{"offsetTable":{"B@B":{0:9}}}'
ONE: Final[Offsets] = {"T@G": {0: 1}}
VERSIONS: Final = ("4.9.7", "5.3.3", "5.5.0")

CASES: Final[dict[str, tuple[str, Offsets | tuple[Offsets, Offsets, Offsets]]]] = {
    "plain": ('{"offsetTable":{"T@G":{"0":1}}}', ONE),
    "numeric": ('{"offsetTable":{"T@G":{0:1}}}', ONE),
    "negkey": ('{"offsetTable":{"T@G":{-1:1}}}', {"T@G": {-1: 1}}),
    "line-comment": ('// x\n{"offsetTable":{"T@G":{0:1}}}', ONE),
    "block-comment": ('/* x */{"offsetTable":{"T@G":{0:1}}}', ONE),
    "comment-inside": ('{"offsetTable":/* x */{"T@G":{0:1}}}', (ONE, ONE, REFUSED)),
    "comment-in-map": ('{"offsetTable":{"T@G":{/* x */0:1}}}', ONE),
    "line-comment-inside": ('{"offsetTable":// x\n{"T@G":{0:1}}}', (ONE, ONE, REFUSED)),
    "hash-comment": ('# x\n{"offsetTable":{"T@G":{0:1}}}', REFUSED),
    "comment-at-end": ('{"offsetTable":{"T@G":{0:1}}}// x', ONE),
    "block-at-end": ('{"offsetTable":{"T@G":{0:1}}}/* x */', ONE),
    "single-quotes": ("{'offsetTable':{'T@G':{'0':1}}}", ONE),
    "unquoted-key": ('{offsetTable:{"T@G":{0:1}}}', (ONE, ONE, REFUSED)),
    "unquoted-at-key": ('{"offsetTable":{T@G:{0:1}}}', REFUSED),
    "trailing-comma-map": ('{"offsetTable":{"T@G":{0:1,}}}', ONE),
    "trailing-comma-object": ('{"offsetTable":{"T@G":{0:1}},}', ONE),
    "trailing-comma-mid": ('{"offsetTable":{"T@G":{0:1},}}', ONE),
    "double-comma": ('{"offsetTable":{"T@G":{0:1,,1:2}}}', REFUSED),
    "leading-comma": ('{,"offsetTable":{"T@G":{0:1}}}', (ONE, ONE, REFUSED)),
    "no-comma": ('{"offsetTable":{"T@G":{0:1 1:2}}}', {"T@G": {0: 1, 1: 2}}),
    "duplicate-queue": ('{"offsetTable":{"T@G":{0:1,0:2}}}', {"T@G": {0: 2}}),
    "duplicate-group": ('{"offsetTable":{"T@G":{0:1},"T@G":{1:2}}}', {"T@G": {1: 2}}),
    "duplicate-table": ('{"offsetTable":{"T@G":{0:1}},"offsetTable":{"T@H":{0:2}}}', {"T@H": {0: 2}}),
    "both-keys": ('{"offsetTable":{"T@G":{0:1,"0":2}}}', {"T@G": {0: 2}}),
    "bom": ('\ufeff{"offsetTable":{"T@G":{0:1}}}', ONE),
    "truncated": ('{"offsetTable":{"T@G":{0:1}', REFUSED),
    "truncated-1": ('{"offsetTable":{"T@G":{0:1}}', REFUSED),
    "truncated-number": ('{"offsetTable":{"T@G":{0:1', REFUSED),
    "truncated-key": ('{"offsetTable":{"T@G":{"0', REFUSED),
    "truncated-string": ('{"offsetTable":{"T@G', REFUSED),
    "trailing-text": ('{"offsetTable":{"T@G":{0:1}}}x', REFUSED),
    "second-object": ('{"offsetTable":{"T@G":{0:1}}}{}', REFUSED),
    "extra-brace": ('{"offsetTable":{"T@G":{0:1}}}}', REFUSED),
    "zeros-after": ('{"offsetTable":{"T@G":{0:1}}}\x00\x00\x00', ONE),
    "zeros-only": ("\x00\x00\x00\x00", REFUSED),
    "space": ("  \n", ({}, REFUSED, REFUSED)),
    "null": ("null", {}),
    "list": ("[1]", REFUSED),
    "number": ("7", REFUSED),
    "string": ('"x"', REFUSED),
    "true": ("true", REFUSED),
    "null-table": ('{"offsetTable":null}', {}),
    "list-table": ('{"offsetTable":[]}', REFUSED),
    "number-table": ('{"offsetTable":1}', REFUSED),
    "empty-object": ("{}", {}),
    "null-queues": ('{"offsetTable":{"T@G":null}}', REFUSED),
    "list-queues": ('{"offsetTable":{"T@G":[1]}}', REFUSED),
    "text-offset": ('{"offsetTable":{"T@G":{0:"1"}}}', ONE),
    "float-offset": ('{"offsetTable":{"T@G":{0:1.5}}}', ONE),
    "whole-float-offset": ('{"offsetTable":{"T@G":{0:1.0}}}', ONE),
    "exp-offset": ('{"offsetTable":{"T@G":{0:1e3}}}', {"T@G": {0: 1000}}),
    "null-offset": ('{"offsetTable":{"T@G":{0:null}}}', REFUSED),
    "true-offset": ('{"offsetTable":{"T@G":{0:true}}}', (REFUSED, ONE, ONE)),
    "empty-offset": ('{"offsetTable":{"T@G":{0:""}}}', REFUSED),
    "word-offset": ('{"offsetTable":{"T@G":{0:"x"}}}', REFUSED),
    "huge-offset": ('{"offsetTable":{"T@G":{0:99999999999999999999}}}', REFUSED),
    "long-offset": ('{"offsetTable":{"T@G":{0:9223372036854775807}}}', {"T@G": {0: 9223372036854775807}}),
    "L-offset": ('{"offsetTable":{"T@G":{0:1L}}}', ONE),
    "plus-offset": ('{"offsetTable":{"T@G":{0:+1}}}', ONE),
    "leading-zero": ('{"offsetTable":{"T@G":{0:01}}}', ONE),
    "hex-offset": ('{"offsetTable":{"T@G":{0:0x10}}}', REFUSED),
    "text-with-comma": ('{"offsetTable":{"T@G":{0:"1,000"}}}', {"T@G": {0: 1000}}),
    "text-space": ('{"offsetTable":{"T@G":{0:" 1"}}}', REFUSED),
    "word-queue": ('{"offsetTable":{"T@G":{"x":1}}}', REFUSED),
    "huge-queue": ('{"offsetTable":{"T@G":{99999999999:1}}}', REFUSED),
    "null-queue": ('{"offsetTable":{"T@G":{null:1}}}', REFUSED),
    "empty-queue": ('{"offsetTable":{"T@G":{"":1}}}', REFUSED),
    "escape": ('{"offsetTable":{"T\\u0040G":{0:1}}}', ONE),
    "hex-escape": ('{"offsetTable":{"T\\x40G":{0:1}}}', ONE),
    "other-escape": ('{"offsetTable":{"T@\\G":{0:1}}}', REFUSED),
    "newline-in-text": ('{"offsetTable":{"T@G\n":{0:1}}}', {"T@G\n": {0: 1}}),
    "type-key": ('{"@type":"java.util.HashMap","offsetTable":{"T@G":{0:1}}}', (REFUSED, ONE, ONE)),
    "ref": (
        '{"offsetTable":{"T@G":{0:1},"T@H":{"$ref":"$.offsetTable.T@G"}}}',
        (REFUSED, REFUSED, {"T@G": {0: 1}, "T@H": {0: 1}}),
    ),
    "unknown-field": ('{"x":[1,{"y":2}],"offsetTable":{"T@G":{0:1}}}', ONE),
    "broken-version": ('{"dataVersion":1,"offsetTable":{"T@G":{0:1}}}', (ONE, REFUSED, REFUSED)),
    "semicolon": ('{"offsetTable":{"T@G":{0:1;1:2}}}', REFUSED),
    "undefined": ('{"offsetTable":{"T@G":{0:undefined}}}', REFUSED),
    "nan": ('{"offsetTable":{"T@G":{0:NaN}}}', REFUSED),
    "vertical-space": ('\x0b{"offsetTable":{"T@G":{0:1}}}', (ONE, ONE, REFUSED)),
    "nbsp": ('\xa0{"offsetTable":{"T@G":{0:1}}}', REFUSED),
    "formfeed": ('\x0c\x08{"offsetTable":{"T@G":{0:1}}}', ONE),
    "dq-unescaped": ('{"offsetTable":{"T"@G":{0:1}}}', REFUSED),
    "missing-value": ('{"offsetTable":{"T@G":{0:}}}', REFUSED),
    "missing-colon": ('{"offsetTable":{"T@G":{0 1}}}', (REFUSED, REFUSED, ONE)),
    "comment-unclosed": ('/* {"offsetTable":{"T@G":{0:1}}}', REFUSED),
    "set": ('{"offsetTable":Set[1]}', REFUSED),
    "text-table": ('{"offsetTable":"{\\"T@G\\":{0:1}}"}', REFUSED),
    "text-queues": ('{"offsetTable":{"T@G":"{0:1}"}}', REFUSED),
    "empty-text-queues": ('{"offsetTable":{"T@G":""}}', REFUSED),
    "empty-text-table": ('{"offsetTable":""}', (REFUSED, {}, {})),
}
"""The text, and what the versions read: all of them the same, or each in turn."""


def by_version(name: str) -> tuple[Offsets, ...]:
    """What each version reads."""
    expected = CASES[name][1]
    return expected if isinstance(expected, tuple) else (expected,) * len(VERSIONS)
