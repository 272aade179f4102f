"""Write the man pages and completion scripts of rmqtool, from what `--help` and Typer say: `man_pages.py DIRECTORY`.

The build of the wheel runs it (`build_hook.py`); there is no second text to keep up.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
EXIT_CODES: Final = (
    ("0", "No problems, or done."),
    ("2", "Wrong usage."),
    ("3", "A problem: damage, a loss that a start would cause, or a repair to be made."),
    ("4", "Not possible: not a store, not readable, I/O error."),
    ("5", "Refused for safety."),
    ("6", "get, search: no message was found."),
    ("130", "Interrupted."),
    ("141", "The reader of the output went away before the check had ended."),
)
SHELLS: Final = {
    "bash": "bash-completion/completions/rmqtool",
    "zsh": "zsh/site-functions/_rmqtool",
    "fish": "fish/vendor_completions.d/rmqtool.fish",
}
"""Shell: where its distribution packages look for completion scripts, below `share`."""


def escaped(text: str) -> str:
    """A text of which groff takes no character for a command or a sign of its own."""
    text = text.replace("\\", "\\(rs").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(char if char < "\x7f" else f"\\[u{ord(char):04X}]" for char in text)


def words(text: str) -> str:
    """A sentence whose `names` are bold."""
    parts = [escaped(part) for part in text.split("`")]
    last = len(parts) - 1
    return "".join(f"\\fB{part}\\fR" if number % 2 and number < last else part for number, part in enumerate(parts))


def section(title: str) -> str:
    """A heading."""
    return f'.SH "{escaped(title.upper())}"'


def listed(records: list[tuple[str, str]]) -> list[str]:
    """Terms and what they mean."""
    return [line for term, text in records for line in (".TP", f"\\fB{escaped(term)}\\fR", "\\&" + words(text))]


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text; one that is `Example: ...` has its own heading."""
    lines: list[str] = []
    for paragraph in text.replace("\b\n", "").split("\n\n"):
        one_line = " ".join(paragraph.split())
        word, _, rest = one_line.partition(": ")
        if word in {"Example", "Examples"}:
            lines += [section(word), ".nf", "\\&" + escaped(rest), ".fi"]
        elif one_line:
            lines += [".PP", "\\&" + words(one_line)]
    return lines


def groups(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Arguments and options by the groups that the help shows them in."""
    from rmqtool.commands.options.help_groups import group_of

    records: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            records.setdefault(group_of(parameter), []).append(record)
    return records


def page(name: str, command: Any, version: str, short: str, commands: dict[str, str]) -> str:
    """The man page of one command; `commands` are what it is a group of."""
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f'.TH "{escaped(name.replace(" ", "-").upper())}" 1 "" "rmqtool {version}" "User commands"']
    lines += [section("Name"), f"{escaped(name.replace(' ', '-'))} \\- {escaped(short.rstrip('.'))}"]
    lines += [section("Synopsis"), f"\\fB{escaped(name)}\\fR {escaped(usage)}", section("Description")]
    lines += paragraphs(command.help or "")
    for title, records in groups(command, context).items():
        lines += [section(title), *listed(records)]
    if commands:
        lines += [section("Commands"), *listed(list(commands.items()))]
    return "\n".join([*lines, section("Exit status"), *listed(list(EXIT_CODES))]) + "\n"


def pages() -> dict[str, str]:
    """File name: man page, of the program and of each command."""
    import rmqtool
    from rmqtool.commands.app import application, load
    from rmqtool.commands.command_list import COMMANDS

    short = {name: text for name, (_, text) in COMMANDS.items()}
    version = rmqtool.__version__
    texts = {"rmqtool.1": page("rmqtool", application(), version, rmqtool.__doc__ or "", short)}
    for name, text in short.items():
        command = load(name)
        actions: dict[str, Any] = getattr(command, "commands", {})
        about = {action: each.get_short_help_str(300) for action, each in actions.items()}
        texts[f"rmqtool-{name}.1"] = page(f"rmqtool {name}", command, version, text, about)
        for action, each in actions.items():
            texts[f"rmqtool-{name}-{action}.1"] = page(f"rmqtool {name} {action}", each, version, about[action], {})
    return texts


def write(folder: Path) -> dict[str, str]:
    """Write all below a folder; path of each file: its place in an environment."""
    from typer._completion_shared import get_completion_script

    files = {f"share/man/man1/{name}": text for name, text in pages().items()}
    for shell, place in SHELLS.items():
        script = get_completion_script(prog_name="rmqtool", complete_var="_RMQTOOL_COMPLETE", shell=shell)
        files[f"share/{place}"] = script + "\n"
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    return {str(folder / place): place for place in files}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    write(Path(sys.argv[1]))
