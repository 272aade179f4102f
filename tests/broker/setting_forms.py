"""Properties files made of every setting, and of every form that a value can have: what a broker holds of them.

`python -m tests.broker.setting_forms` compares all of them with the real classes of each version; the tests a slice.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from rmqtool.engine.rules.settings import Setting, read_settings, settings_of
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.java_properties import MalformedEscapeError, parse_properties
from rmqtool.store.config.broker_conf import broker_conf
from tests.broker.broker import Judge
from tests.broker.versions import VERSIONS

VALUES: Mapping[str, tuple[str, ...]] = {
    "int": ("1", "0", "-1", "+7", "007", "2147483647", "-2147483648", "2147483648", "1.0", "1e3", "0x10", "1_000",
            "9" * 40, "\\u0661\\u0662", "\\uff11\\uff12", "\\u00b2", "\\ud835\\udfd9", "1L", "", "-", "true",
            "yes", "1,2"),
    "long": ("1", "0", "-1", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1L", "1.0", "",
             "\\u0967", "+", "x"),
    "double": ("1", "0.5", ".5", "5.", "1e3", "-1", "NaN", "Infinity", "-Infinity", "1d", "1f", "0x1p3", "1e999", "1_0",
               "x", "", "\\u0661", "1 2", "1e-400", "infinity"),
    "boolean": ("true", "false", "TRUE", "True", "tRuE", "yes", "1", "on", "", "truee", "t\\u0072ue", "true\\u0000"),
    "text": ("x", "", "a b", "/data/store", "a,b", "C:\\\\x", "\\u4e3b", "caf\u00e9", "x\\ ", "\\ x", "\\tx\\t",
             "x\\u0020",
             "$HOME/x", "x\\u00a0", "\\u0001x\\u001f", "#x", "a=b", "a:b", '"x"', "\\ud83d\\ude00"),
}  # fmt: skip
"""Values of each kind, as a file has them: whole, wrong, out of range, with escapes."""
SHAPES: tuple[str, ...] = (
    "{name}={value}\n",
    "{name}={value}\r\n",
    "{name}={value}\r",
    "{name} = {value}\n",
    "{name}={value} \n",
    "{name}={value}\t\n",
    "{name}={value}\f \n",
    "  {name}\t:\t{value}\n",
    "{name} {value}\n",
    "{name}\t{value}\n",
    "{name}==  {value}\n",
    "{name}\\\n  ={value}\n",
    "{name}=\\\n   {value}\n",
    "{name}=\\\r\n\t{value}\n",
    "{name}={value}\\\n\n",
    "{name}={value}\\\n",
    "{name}={value}\\\\\n",
    "{name}=other\n{name}={value}\n",
    "{name}={value}\n{name}=other\n",
    "{name}={value}\n{name}\n",
    "#{name}={value}\n",
    " !{name}={value}\n",
    "\\\n#{name}={value}\n",
    "\\\n!x\\\n{name}={value}\n",
    "#\\\n{name}={value}\n",
    "\u00ef\u00bb\u00bf{name}={value}\n",
    "{name}={value}{value}\n",
    "{name}=\\u0020{value}\\u0020\n",
    '{name}="{value}"\n',
    "{name}={value} # a comment\n",
    "{name}={value};\n",
    "{name}\n",
    "{name}=\n",
    "\\u00{code:02x}{rest}={value}\n",
    "{upper}={value}\n",
    "{name}\\ ={value}\n",
    "{name} = = {value}\n",
)  # fmt: skip
"""How a line can give a name its value; the file is Latin-1."""
OWN_RULES: Mapping[str, Callable[[int], set[int]]] = {
    "haListenPort": lambda number: {number, max(number, 0)},
    "timerPrecisionMs": lambda number: {
        max(step for step in (0, 100, 200, 500, 1000) if step <= number or step <= 100)
    },
}
"""Setters that make another number of one, in all or in some versions; nothing that a start does depends on them."""
REFUSED: tuple[str, ...] = ("\\u12", "\\uxyzw", "\\u", "a\\u00e", "\\u+123", "\\u 041", "\\U0041")
"""Values that make the whole file none, but for the last."""


class Form(NamedTuple):
    """One shape of line, with the value that each kind gets in it."""

    shape: str
    values: Mapping[str, str]

    def file(self, settings: Iterable[Setting]) -> bytes:
        """A file that gives each setting its value in this form."""
        return "".join(map(self.line, settings)).encode("latin-1")

    def line(self, setting: Setting) -> str:
        """What the file says of one setting."""
        words = setting.kind.split("|")
        value = self.values[setting.kind] if len(words) == 1 else words[len(self.values["text"]) % len(words)]
        name = setting.name
        return self.shape.format(
            name=name, value=value, code=ord(name[0]), rest=name[1:], upper=name[0].upper() + name[1:]
        )


def all_forms() -> Iterator[Form]:
    """Every shape with every value; kinds go side by side, as far as the longest list of values."""
    longest = max(map(len, VALUES.values()))
    for shape in SHAPES:
        for number in range(longest):
            yield Form(shape, {kind: values[number % len(values)] for kind, values in VALUES.items()})


def mixed_files(settings: Mapping[str, Setting], count: int, seed: int) -> Iterator[bytes]:
    """Files in which every line has its own shape and value, and some lines are cut or doubled."""
    chance = random.Random(seed)
    forms = list(all_forms())
    for _ in range(count):
        lines = [chance.choice(forms).line(setting) for setting in settings.values()]
        chance.shuffle(lines)
        content = "".join(lines).encode("latin-1")
        if chance.random() < 0.2:
            content = content.replace(b"\n", b"\r\n")
        yield content[: chance.randrange(len(content))] if chance.random() < 0.2 else content


def differences(judge: Judge, files: Iterable[bytes]) -> tuple[int, list[str]]:
    """How many settings of how many files were compared with what the version's classes hold, and where they differ."""
    contents = [b"", *files]
    first, *answers = judge.applied_settings(contents)
    compared, different = 0, []
    for content, answer in zip(contents[1:], answers, strict=True):
        ours = _ours(content, judge.version)
        if ours is None or "refused" in answer:
            compared += 1
            if (ours is None) != ("refused" in answer):
                different.append(f"{judge.version}: {content[:200]!r}: refused {answer.get('refused')}")
            continue
        for group, values in answer.items():
            for name, value in values.items():
                compared += 1
                wanted = ours.get(name, first[group][name])
                if not _are_same(name, wanted, value):
                    different.append(f"{judge.version} {name}: {wanted!r}, the broker has {value!r}")
    return compared, different


def _ours(content: bytes, version: str) -> dict[str, object] | None:
    try:
        properties = parse_properties(content)
    except MalformedEscapeError:
        return None
    rules = rules_for(version)
    conf = broker_conf(properties, reads=read_settings(rules))
    values = {}
    for name, setting in settings_of(version).items():
        if name in properties:
            value = setting.value(properties[name], trims_texts=conf.reads.trims_texts)
            if value is not None:
                values[name] = value
    return values


def _are_same(name: str, wanted: object, value: str) -> bool:
    if name in OWN_RULES and isinstance(wanted, int):
        return int(value) in OWN_RULES[name](wanted)
    if isinstance(wanted, bool):
        return value == str(wanted).lower()
    if isinstance(wanted, float):
        return repr(float(value)) == repr(wanted)
    return value == str(wanted)


def all_differences(judge: Judge) -> tuple[int, list[str]]:
    """The same of every form, and of files of mixed forms."""
    settings = settings_of(judge.version)
    files = [form.file(settings.values()) for form in all_forms()]
    files += [f"brokerName={text}\n".encode() for text in REFUSED]
    return differences(judge, [*files, *mixed_files(settings, 100, seed=len(files))])


def main() -> int:
    """Compare all of them with every version."""
    total, different = 0, []
    for version in VERSIONS:
        judge = Judge(version.name)
        try:
            compared, unlike = all_differences(judge)
        finally:
            judge.close()
        total, different = total + compared, different + unlike
        sys.stdout.write(f"{version.name}: {compared} compared, {len(unlike)} differ\n")
    sys.stdout.write("".join(f"{text}\n" for text in [*different[:50], f"{total} compared, {len(different)} differ"]))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
