#!/usr/bin/env python3
"""Draws the panels of a dashboard as one SVG, with what a Prometheus has recorded of a job.

    render.py --prometheus http://127.0.0.1:9090 --job 1 job.json job.svg

It shows what the queries answer. It is no Grafana, and places and colours are about those that Grafana chooses.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

Json = dict[str, Any]
#: A series: its name, and its values by time.
Line = tuple[str, list[tuple[float, float]]]

COLUMN, ROW, GAP = 60, 34, 8
POINTS_MAX = 90
COLOURS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#96d98d", "#ffee52", "#ca95e5"]
STYLE = (
    "text{font:11px sans-serif;fill:#ccccdc}.t{font-weight:bold;font-size:12px}.h{font-size:14px;font-weight:bold}"
    ".b{font-size:24px;font-weight:bold;fill:#73bf69}.a{fill:#8e8e9e;font-size:9px}.l{font-size:9px}.p{fill:#181b1f;stroke:#2b2e34}"
    ".g{stroke:#2b2e34}"
)


class Recorded:
    """A Prometheus, and the time of a job in it."""

    def __init__(self, url: str, job: str) -> None:
        self.url = url
        self.variables = {"$job": job, "$__rate_interval": "4s"}
        self.end = time.time()
        self.start = self.end - 3600
        seen = self.series(f'libra_view{{libra_job="{job}", role="controller"}}', step=1)
        times = [at for _, values in seen for at, _ in values]
        if not times:
            raise SystemExit(f"{url} has recorded nothing of job {job} in the last hour")
        self.start, self.end = min(times), max(times)
        self.step = max(1, math.ceil((self.end - self.start) / POINTS_MAX))

    def _ask(self, path: str, **query: object) -> list[Json]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            found: list[Json] = json.load(answer)["data"]["result"]
            return found

    def series(self, expression: str, legend: str = "", step: int | None = None) -> list[Line]:
        """Returns the series of an expression over the time of the job."""
        query = self.replaced(expression)
        found = self._ask("query_range", query=query, start=self.start, end=self.end, step=step or self.step)
        lines = []
        for series in found:
            values = [(float(at), float(value)) for at, value in series["values"]]
            lines.append((_name(legend, series["metric"]), [(at, value) for at, value in values if math.isfinite(value)]))
        return sorted((line for line in lines if line[1]), key=lambda line: line[0])

    def values_of(self, query: str) -> list[str]:
        """Returns the values of a variable of a dashboard."""
        selector, _, label = query.removeprefix("label_values(").removesuffix(")").rpartition(", ")
        found = self._ask("query", query=f"count by ({label}) ({self.replaced(selector)})", time=(self.start + self.end) / 2)
        return sorted(series["metric"][label] for series in found)

    def replaced(self, text: str) -> str:
        """Returns the text with values in place of variables."""
        for name, value in self.variables.items():
            text = text.replace(name, value)
        return text.replace("$member", ".*")


def _name(legend: str, labels: Json) -> str:
    if legend in ("", "__auto"):
        return ", ".join(str(value) for name, value in labels.items() if name not in ("__name__", "job", "libra_job"))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(labels.get(found[1], "")), legend)


def _number(value: float, unit: str) -> str:
    if unit == "none":
        return f"{value:.0f}"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{1e3 * value:.3g} ms" if abs(value) >= 1e-3 else f"{1e6 * value:.3g} µs"
    suffix = {"s": " s", "bytes": "B", "pps": " p/s", "bps": "bit/s"}.get(unit, "")
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale and unit != "s":
            return f"{value / scale:.3g} {letter}{suffix.strip()}"
    return f"{value:.3g}{suffix}"


def draw(dashboard: Json, recorded: Recorded) -> str:
    """Returns the dashboard as SVG."""
    members = next(variable["query"] for variable in dashboard["templating"]["list"] if variable["name"] == "member")
    panels = list(_placed(dashboard["panels"], recorded.values_of(members)))
    height = max(y + h for _, _, y, _, h, _ in panels) + 30
    width = 24 * COLUMN + GAP
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#111217"/>',
    ]
    for panel, x, y, w, h, member in panels:
        if member is not None:
            recorded.variables["$member"] = member
        drawn += _panel(panel, x + GAP, y + GAP, w - GAP, h - GAP, recorded)
        recorded.variables.pop("$member", None)
    seconds = recorded.end - recorded.start
    about = (
        f"{dashboard['title']}, drawn by render.py from what Prometheus has recorded in {seconds:.0f} s of a job; not Grafana"
    )
    drawn.append(f'<text class="a" x="{GAP}" y="{height - 8}">{escape(about)}</text></svg>')
    return "\n".join(drawn) + "\n"


def _placed(panels: list[Json], members: list[str]) -> Iterator[tuple[Json, int, int, int, int, str | None]]:
    """Returns panels with their place, in pixels; one that is repeated comes once for each member."""
    for panel in panels:
        place = panel["gridPos"]
        y, w, h = place["y"] * ROW, place["w"] * COLUMN, place["h"] * ROW
        repeated: list[str | None] = [*members] if panel.get("repeat") else [None]
        for index, member in enumerate(repeated):
            yield panel, place["x"] * COLUMN + index * w, y, w, h, member


def _panel(panel: Json, x: int, y: int, w: int, h: int, recorded: Recorded) -> list[str]:
    title = escape(recorded.replaced(panel["title"]))
    if panel["type"] == "row":
        return [f'<text class="h" x="{x}" y="{y + 18}">{title}</text>']
    drawn = [
        f'<rect class="p" x="{x}" y="{y}" width="{w}" height="{h}" rx="3"/><text class="t" x="{x + 8}" y="{y + 17}">{title}</text>'
    ]
    lines = [line for target in panel["targets"] for line in recorded.series(target["expr"], target["legendFormat"])]
    field = panel["fieldConfig"]["defaults"]
    unit = field["unit"]
    if not lines:
        return [*drawn, f'<text class="a" x="{x + w // 2 - 20}" y="{y + h // 2}">No data</text>']
    if panel["type"] == "stat":
        return [*drawn, f'<text class="b" x="{x + 10}" y="{y + h - 22}">{escape(_number(lines[0][1][-1][1], unit))}</text>']
    is_stacked = field["custom"]["stacking"]["mode"] == "normal"
    return drawn + list(_graph(lines, x + 52, y + 26, w - 62, h - 66, unit, is_stacked, field.get("max"), recorded))


def _graph(
    lines: list[Line], x: int, y: int, w: int, h: int, unit: str, is_stacked: bool, most: float | None, recorded: Recorded
) -> Iterator[str]:
    times = sorted({at for _, values in lines for at, _ in values})
    tops = {at: 0.0 for at in times}
    if is_stacked:
        for _, values in lines:
            for at, value in values:
                tops[at] += value
    top = most or max(max(value for _, values in lines for _, value in values), *tops.values()) * 1.05 or 1.0
    span = max(recorded.end - recorded.start, 1)

    def place(at: float, value: float) -> tuple[int, int]:
        return round(x + (at - recorded.start) / span * w), round(y + h - min(value / top, 1) * h)

    for part in range(4):
        line = y + h - part * h // 3
        mark = escape(_number(top * part / 3, unit))
        yield f'<path class="g" d="M{x} {line}h{w}"/><text class="a" x="{x - 4}" y="{line + 3}" text-anchor="end">{mark}</text>'
    for part in range(5):
        seconds = span * part / 4
        yield f'<text class="a" x="{x + w * part // 4}" y="{y + h + 11}" text-anchor="middle">{seconds:.0f} s</text>'
    base = dict.fromkeys(times, 0.0)
    for index, (_, values) in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        if is_stacked:
            below = [place(at, base[at]) for at, _ in values]
            for at, value in values:
                base[at] += value
            above = [place(at, base[at]) for at, _ in values]
            yield f'<path fill="{colour}" fill-opacity=".6" d="{_path(above + below[::-1])}z"/>'
        else:
            yield f'<path fill="none" stroke="{colour}" d="{_path([place(*value) for value in values])}"/>'
    yield from _legend(lines, x - 40, y + h + 26, w + 40, unit)


def _path(points: list[tuple[int, int]]) -> str:
    (x, y), *rest = points
    parts = [f"M{x} {y}l"]
    for to_x, to_y in rest:
        parts.append(f"{to_x - x} {to_y - y} ")
        x, y = to_x, to_y
    return "".join(parts).rstrip()


def _legend(lines: list[Line], x: int, y: int, w: int, unit: str) -> Iterator[str]:
    """Two lines of names and last values; what does not fit is counted."""
    left, line = x, 0
    for index, (name, values) in enumerate(lines):
        text = f"{name}  {_number(values[-1][1], unit)}"
        wide = 14 + 5 * len(text)
        if left + wide > x + w:
            left, line = x, line + 1
        if line == 2:
            yield f'<text class="a" x="{x + w}" y="{y + 11}" text-anchor="end">and {len(lines) - index} more</text>'
            return
        colour = COLOURS[index % len(COLOURS)]
        top = y + 11 * line
        yield f'<rect x="{left}" y="{top - 6}" width="8" height="3" fill="{colour}"/>'
        yield f'<text class="l" x="{left + 11}" y="{top}">{escape(text)}</text>'
        left += wide


def main() -> None:
    """Draws one dashboard."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prometheus", metavar="URL", default="http://127.0.0.1:9090")
    parser.add_argument("--job", metavar="N", required=True, help="number of the job, the label libra_job")
    parser.add_argument("dashboard", type=Path)
    parser.add_argument("svg", type=Path)
    options = parser.parse_args()
    dashboard = json.loads(options.dashboard.read_text(encoding="utf-8"))
    options.svg.write_text(draw(dashboard, Recorded(options.prometheus, options.job)), encoding="utf-8")


if __name__ == "__main__":
    main()
