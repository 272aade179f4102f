"""Text files for the collector of Prometheus' node exporter: written beside and renamed, so that none is half read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.report.own_file import OwnFile, replace_own
from rmqtool.report.text import escaped


@dataclass(frozen=True)
class Metric:
    """One sample of a metric; samples of one name stand one after the other."""

    name: str
    kind: str
    text: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def write_metrics(path: Path, metrics: Iterable[Metric]) -> None:
    """Replace a text file, whole or not at all; errors as of `replace_own`."""
    lines, before = [], None
    for metric in metrics:
        if metric.name != before:
            lines.append(f"# HELP {metric.name} {metric.text}\n# TYPE {metric.name} {metric.kind}\n")
            before = metric.name
        labels = []
        for name, value in metric.labels.items():
            # `\u202e` for what is not printable, a doubled backslash for one, and both as Prometheus reads them.
            visible = escaped(value.replace("\\", "\\\\")).replace("\\", "\\\\").replace('"', '\\"')
            labels.append(f'{name}="{visible}"')
        lines.append(f"{metric.name}{{{','.join(labels)}}} {float(metric.value):.15g}\n")
    replace_own(path, OwnFile.METRICS, "".join(lines))
