"""Forest plot of differences from a baseline, with intervals, n and p."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.figures.forest import ForestParams
from curvflow.schemas.nodes import FAILED, Array, Label, Member, NodeData, Outcome
from curvflow.schemas.words import counted, short_number
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.measurements import Measurement

MINUS = "\u2212"


@dataclass(frozen=True)
class Difference:
    """One row of a comparison.

    Attributes:
        name: compared labels, such as `adam - sgd, width = 8`.
        panel: the variable.
        units: units of the variable.
        label: label shown by colour; empty without.
        mean: mean difference.
        low: lower end of the interval.
        high: upper end of the interval.
        p: corrected p-value.
        count: number of pairs, or of values.
        paired: values are paired.
        diverged: number of excluded diverged nodes.
        nonfinite: number of excluded non-finite values.
        missing: number of excluded missing values.
        unconverged: number of pairs, or values, that are not converged.
        settings: settings that differ among the compared estimates; empty if none do.
    """

    name: str
    panel: str
    units: str
    label: Label
    mean: float
    low: float
    high: float
    p: float
    count: int
    paired: bool
    diverged: int
    nonfinite: int
    missing: int
    unconverged: int
    settings: str

    @property
    def left_out(self) -> int:
        """Number of pairs or nodes that are excluded."""
        return self.diverged + self.nonfinite + self.missing

    @property
    def full_name(self) -> str:
        """Unique name of the row over all panels."""
        return f"{self.panel}: {self.name}"

    def measured(self) -> Measurement:
        """Return the variable, for its name and units."""
        return Measurement(Variable(self.panel, "", units=self.units), [])


def read_differences(
    nodes: Sequence[NodeData], params: ForestParams
) -> list[Difference]:
    """Read the rows of comparisons.

    Args:
        nodes: tables of `aggregate.compare`.
        params: variables, interval and test.

    Returns:
        The rows, panel by panel, in the order of the tables.

    Raises:
        InputError: the tables lack a variable or the axis of `label`.
    """
    varying = {
        axis
        for node in nodes
        for axis in node.coords
        if len({str(other.coords.get(axis)) for other in nodes}) > 1
    }
    if params.label is not None and params.label not in nodes[0].coords:
        raise InputError(
            f"label: expected an axis of {nodes[0].stage}, got '{params.label}'. "
            f"{nearest(params.label, nodes[0].coords) or 'It has none.'}"
        )
    several_stages = len({node.stage for node in nodes}) > 1
    differences = [
        row
        for node in nodes
        for row in _rows(node, params, varying, several_stages=several_stages)
    ]
    panels = list(dict.fromkeys(row.panel for row in differences))
    for name in params.quantities or ():
        if name not in panels:
            raise InputError(
                f"quantities: expected a variable compared, got '{name}'. "
                f"{nearest(name, panels)}"
            )
    wanted = params.quantities or panels
    return [row for panel in wanted for row in differences if row.panel == panel]


def _rows(
    node: NodeData, params: ForestParams, varying: set[str], *, several_stages: bool
) -> Iterator[Difference]:
    if node.status == "diverged":
        return
    kind = "bootstrap_" if params.interval == "bootstrap" else ""
    behind = [
        f"{axis} = {label}" for axis, label in node.coords.items() if axis in varying
    ]
    if several_stages:
        behind.append(node.stage)
    for row, quantity in enumerate(node["quantity"].tolist()):
        panel, _, rest = quantity.partition(": ")
        name = rest.replace(" - ", f" {MINUS} ", 1).replace("=", " = ")
        yield Difference(
            ", ".join([name, *behind]),
            panel,
            str(node["units"][row]),
            "" if params.label is None else node.coords[params.label],
            float(node["mean"][row]),
            float(node[f"{kind}low"][row]),
            float(node[f"{kind}high"][row]),
            np.nan
            if params.test == "none"
            else float(node[f"p_{params.test}_holm"][row]),
            int(node["count"][row]),
            bool(node["above"][row] >= 0),
            int(node["diverged"][row]),
            int(node["nonfinite"][row]),
            int(node["missing"][row]),
            int(node["unconverged"][row]) if "unconverged" in node else 0,
            str(node[DIFFERING][row]) if DIFFERING in node else "",
        )


WIDTH = 130.0  # mm
FRAME, ROW = 14.0, 5.0  # mm: a panel's axis and heading, and each of its rows
MAX_ROWS = 60  # more rows cannot be read
COLUMNS = (6, 26)  # positions of n and p, in points right of the panel
REASON_STYLE: dict[str, Any] = {
    "size": 7,
    "color": "0.35",
    "va": "center_baseline",
    "bbox": {"facecolor": "white", "linewidth": 0, "pad": 1},
}
EXCLUDED = {"diverged": "diverged", "nonfinite": "not finite", "missing": "missing"}


@computes_each("figure.forest")
def figure_forest(member: Member, machine: Machine) -> Outcome:
    """Draw differences with intervals and a line at zero, a panel per variable.

    Args:
        member: tables of `aggregate.compare`; the caption counts excluded pairs.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: a variable is not compared, or there are too many rows or labels.
    """
    params = member.params
    assert isinstance(params, ForestParams)
    rows = read_differences(member.inputs["of"], params)
    if not 0 < len(rows) <= MAX_ROWS:
        raise InputError(
            f"of: expected 1 to {MAX_ROWS} differences in a figure, got {len(rows)}. "
            "Choose `quantities`, or leave an axis out of `over`."
        )
    labels = list(dict.fromkeys(row.label for row in rows))
    canvas.check_labels(len(labels))
    panels = [
        [row for row in rows if row.panel == name]
        for name in dict.fromkeys(row.panel for row in rows)
    ]
    caption = captions.with_absent(_caption(rows, member.inputs["of"], params), member)
    with canvas.default_style():
        height = sum(FRAME + ROW * len(panel_rows) for panel_rows in panels)
        figure = canvas.new_figure(params.width or WIDTH, params.height or height)
        grid = figure.add_gridspec(
            len(panels),
            1,
            height_ratios=[FRAME / ROW + len(panel_rows) for panel_rows in panels],
        )
        for number, panel_rows in enumerate(panels):
            _draw_panel(figure.add_subplot(grid[number]), panel_rows, labels, params)
        canvas.compose(
            figure,
            title=params.title,
            handles=[_handle(n) for n in range(len(labels))] if params.label else [],
            labels=[str(label) for label in labels],
            label_name=params.label or "",
            caption=caption,
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(rows)})


def _numbers(rows: Sequence[Difference]) -> dict[str, Array]:
    return {
        "difference": np.array([row.full_name for row in rows]),
        "panel": np.array([row.panel for row in rows]),
        **{
            name: np.array([getattr(row, name) for row in rows], np.float64)
            for name in ("mean", "low", "high", "p")
        },
        **{
            name: np.array([getattr(row, name) for row in rows], np.int64)
            for name in ("count", *EXCLUDED)
        },
    }


def _caption(
    rows: Sequence[Difference], nodes: Sequence[NodeData], params: ForestParams
) -> str:
    paired = {row.paired for row in rows}
    quantity = "Mean differences of pairs" if True in paired else "Differences of means"
    if len(paired) > 1:
        quantity = "Mean differences, of pairs or of means"
    student = "Student's" if paired == {True} else "Welch's"
    kind = student if params.interval == "t" else "the bootstrap's"
    notes = [f"{quantity}; bars: {kind} {100 * params.confidence:g} % interval."]
    if params.test != "none":
        tests = {
            ("t", True): "Student's t-test",
            ("t", False): "Welch's t-test",
            ("rank", True): "Wilcoxon's signed ranks",
            ("rank", False): "Mann and Whitney's ranks",
        }
        names = " or ".join(
            tests[params.test, is_paired] for is_paired in sorted(paired)[::-1]
        )
        level = short_number(round(1 - params.confidence, 12))
        notes.append(
            f"p: {names}, corrected by Holm for all rows of a table; filled: p < "
            f"{level}."
        )
    return " ".join([*notes, *_exclusion_sentences(rows, nodes)])


def _exclusion_sentences(
    rows: Sequence[Difference], nodes: Sequence[NodeData]
) -> Iterator[str]:
    words = {name: f"Left out, {word}" for name, word in EXCLUDED.items()}
    for name, word in {**words, "unconverged": "Not converged"}.items():
        if total := sum(getattr(row, name) for row in rows):
            noun = "pair" if all(row.paired for row in rows) else "value"
            rows_text = counted(len([r for r in rows if getattr(r, name)]), "row")
            yield f"{word}: {counted(total, noun)} in {rows_text}."
    if absent := sum(int(n[FAILED].max(initial=0)) for n in nodes if FAILED in n):
        yield f"Compared without {counted(absent, 'node')} that failed."
    if differing := [row.settings for row in rows if row.settings]:
        parts = [part.split()[0] for text in differing for part in text.split("; ")]
        names = " or ".join(dict.fromkeys(parts))
        num_rows = counted(len(differing), "row")
        yield f"Estimates made at different {names} are compared in {num_rows}."


def _draw_panel(
    axes: Axes,
    panel_rows: Sequence[Difference],
    labels: Sequence[Label],
    params: ForestParams,
) -> None:
    axes.grid(visible=True, axis="x")
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_ylim(len(panel_rows) - 0.4, -0.6)
    axes.set_yticks(
        range(len(panel_rows)), [canvas.escape_mathtext(row.name) for row in panel_rows]
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"difference of {captions.axis_label(panel_rows[0].measured())}")
    axes.xaxis.set_major_locator(canvas.round_ticks("auto"))
    axes.margins(x=0.06)
    column_style: dict[str, Any] = {
        "xycoords": axes.get_yaxis_transform(),
        "textcoords": "offset points",
        "size": 7,
        "va": "center_baseline",
        "annotation_clip": False,
    }
    heads = ("n", "p") if params.test != "none" else ("n",)
    for column, head in zip(COLUMNS, heads, strict=False):
        axes.annotate(head, (1, -0.95), (column, 0), style="italic", **column_style)
    for place, row in enumerate(panel_rows):
        _draw_row(axes, place, row, labels.index(row.label), params)
        texts = (str(row.count), _p_text(row.p))[: len(heads)]
        for column, text in zip(COLUMNS, texts, strict=False):
            axes.annotate(text, (1, place), (column, 0), **column_style)


def _draw_row(
    axes: Axes, place: int, row: Difference, number: int, params: ForestParams
) -> None:
    if np.isnan(row.mean):
        transform = axes.get_yaxis_transform()
        reason = f"no {'pairs' if row.paired else 'values'}: {_reasons_text(row)}"
        axes.text(0.03, place, reason, transform=transform, **REASON_STYLE)
        return
    if np.isfinite([row.low, row.high]).all():
        ends = [row.low, row.high]
        axes.plot(
            ends, [place, place], color=canvas.label_colour(number), linewidth=1.1
        )
        axes.plot(
            ends, [place, place], "|", color=canvas.label_colour(number), markersize=4
        )
    filled = params.test == "none" or row.p < 1 - params.confidence
    axes.plot(row.mean, place, **_marker_style(number, filled=filled))


def _reasons_text(row: Difference) -> str:
    counts = {word: getattr(row, name) for name, word in EXCLUDED.items()}
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n) or "none there"


def _p_text(value: float) -> str:
    if np.isnan(value):
        return "\u2013"
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _marker_style(number: int, *, filled: bool) -> dict[str, Any]:
    return {
        "marker": "s",
        "markersize": 3.4,
        "linestyle": "",
        "color": canvas.label_colour(number),
        "markerfacecolor": canvas.label_colour(number) if filled else "white",
        "markeredgewidth": 1.0,
    }


def _handle(number: int) -> Line2D:
    return Line2D([], [], **_marker_style(number, filled=True))
