"""Panels of Grafana as JSON: the few kinds and options that the dashboards use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

#: Columns of a dashboard.
COLUMNS = 24
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Series:
    """An expression, and the name of its series in the legend."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel: a graph over time, or the newest value."""

    title: str
    series: tuple[Series, ...]
    unit: str = "short"
    description: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False
    #: Values at which a number turns yellow and red.
    bad: tuple[float, float] | None = None
    #: Variable for each value of which there is such a panel.
    repeat: str | None = None
    max: float | None = None


@dataclass(frozen=True)
class Row:
    """A heading with panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A variable whose values are those of a label."""

    name: str
    label: str
    query: str
    multi: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A dashboard."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...] = field(default=())

    def json(self) -> Json:
        """Returns the model that Grafana imports."""
        return {
            "annotations": {"list": [_views()]},
            "description": self.description,
            "editable": True,
            "graphTooltip": 1,
            "links": [_links()],
            "panels": list(_laid_out(self.rows)),
            "refresh": "5s",
            "schemaVersion": 41,
            "tags": ["libra"],
            "templating": {"list": [_datasource(), *map(_variable, self.variables)]},
            "time": {"from": "now-15m", "to": "now"},
            "timepicker": {},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
        }


def quantiles(family: str, selector: str, by: str = "", legend: str = "") -> tuple[Series, ...]:
    """Returns the median and the 99th percentile of a histogram."""
    labels = f"le, {by}" if by else "le"
    buckets = f"sum by ({labels}) (rate({family}_bucket{{{selector}}}[$__rate_interval]))"
    prefix = f"{legend} " if legend else ""
    return tuple(Series(f"histogram_quantile({q}, {buckets})", f"{prefix}p{100 * q:.0f}") for q in (0.5, 0.99))


def rate(family: str, selector: str, by: str = "", legend: str = "") -> Series:
    """Returns the rate of a counter, summed by labels."""
    total = f"rate({family}{{{selector}}}[$__rate_interval])"
    return Series(f"sum by ({by}) ({total})" if by else f"sum({total})", legend)


def share(part: str, whole: str, by: str = "") -> str:
    """Returns the ratio of the rates of two selectors."""
    total = f"sum by ({by})" if by else "sum"
    return " / ".join(f"{total} (rate({of}[$__rate_interval]))" for of in (part, whole))


def _laid_out(rows: tuple[Row, ...]) -> list[Json]:
    """Places panels from left to right, in the order in which they are listed."""
    placed: list[Json] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        placed.append(
            {"type": "row", "id": len(placed) + 1, "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        )
        left, top, height = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            placed.append(_panel(panel, len(placed) + 1, place))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


def _panel(panel: Panel, number: int, place: Json) -> Json:
    defaults: Json = {"unit": panel.unit, "color": {"mode": "palette-classic"}, "mappings": []}
    defaults["thresholds"] = _thresholds(panel.bad)
    made: Json = {
        "type": panel.kind,
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [_target(series, index, panel.kind) for index, series in enumerate(panel.series)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
        made["options"] = {
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showPercentChange": False,
            "textMode": "auto",
            "wideLayout": True,
        }
    else:
        defaults["min"] = 0
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 60 if panel.stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        }
        made["options"] = {
            "legend": {"calcs": ["lastNotNull"], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.max is not None:
        defaults["max"] = panel.max
    if panel.repeat:
        made |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 3}
    return made


def _thresholds(bad: tuple[float, float] | None) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if bad:
        steps += [{"color": "yellow", "value": bad[0]}, {"color": "red", "value": bad[1]}]
    return {"mode": "absolute", "steps": steps}


def _target(series: Series, index: int, kind: str) -> Json:
    return {
        "refId": chr(ord("A") + index),
        "datasource": SOURCE,
        "expr": series.expr,
        "legendFormat": series.legend or "__auto",
        "range": kind != "stat",
        "instant": kind == "stat",
        "editorMode": "code",
    }


def _datasource() -> Json:
    return {"name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> Json:
    made: Json = {
        "name": variable.name,
        "type": "query",
        "label": variable.label,
        "datasource": SOURCE,
        "query": variable.query,
        "refresh": 2,
        "sort": 3,
        "hide": 0,
        "multi": variable.multi,
        "includeAll": variable.multi,
    }
    if variable.multi:
        made |= {"allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return made


def _views() -> Json:
    """Changes of the view as marks in all graphs: where this is above 0."""
    view = 'libra_view{libra_job="$job", role="controller"}'
    return {
        "name": "Views",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "purple",
        "target": _target(Series(f"{view} - {view} offset 10s"), 0, "timeseries"),
        "titleFormat": "view changed",
    }


def _links() -> Json:
    return {
        "title": "Libra",
        "type": "dashboards",
        "icon": "external link",
        "tooltip": "",
        "url": "",
        "tags": ["libra"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }
