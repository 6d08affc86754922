"""Differences from a baseline, one below another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.errors import InputError
from curvflow.schemas.counted import counted
from curvflow.schemas.kinds.figures.forest import ForestParams
from curvflow.schemas.nodes import Array, Label, Member, Outcome
from curvflow.tasks import captions, drawing
from curvflow.tasks.differences_drawn import Shown, shown
from curvflow.tasks.registry import Machine, computes_each

WIDTH = 130.0  # mm
FRAME, ROW = 14.0, 5.0  # mm: a panel's axis and heading, and each of its rows
MOST = 60  # rows that can still be read
COLUMNS = (6, 26)  # where n and p stand, in points right of the panel
REASON: dict[str, Any] = {
    "size": 7,
    "color": "0.35",
    "va": "center_baseline",
    "bbox": {"facecolor": "white", "linewidth": 0, "pad": 1},
}
NUMBERS = {"diverged": "diverged", "nonfinite": "not finite", "missing": "missing"}


@computes_each("figure.forest")
def figure_forest(member: Member, machine: Machine) -> Outcome:
    """Draw differences with intervals beside a line at zero, a panel per variable.

    Args:
        member: tables of `aggregate.compare`; pairs that are in no difference are told
            by the caption.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the numbers drawn.

    Raises:
        InputError: a variable is not compared, or there are too many rows or labels.
    """
    params = member.params
    assert isinstance(params, ForestParams)
    rows = shown(member.inputs["of"], params)
    if not 0 < len(rows) <= MOST:
        raise InputError(
            f"of: expected 1 to {MOST} differences in a figure, got {len(rows)}. "
            "Choose `quantities`, or leave an axis out of `over`."
        )
    labels = list(dict.fromkeys(row.label for row in rows))
    drawing.check_labels(len(labels))
    panels = [
        [row for row in rows if row.panel == name]
        for name in dict.fromkeys(row.panel for row in rows)
    ]
    caption = _caption(rows, params)
    with drawing.quiet_style():
        height = sum(FRAME + ROW * len(of) for of in panels)
        figure = drawing.sheet(params.width or WIDTH, params.height or height)
        grid = figure.add_gridspec(
            len(panels), 1, height_ratios=[FRAME / ROW + len(of) for of in panels]
        )
        for number, of in enumerate(panels):
            _draw_panel(figure.add_subplot(grid[number]), of, labels, params)
        drawing.compose(
            figure,
            title=params.title,
            handles=[_mark(n) for n in range(len(labels))] if params.label else [],
            labels=[str(label) for label in labels],
            label_name=params.label or "",
            caption=caption,
        )
        files = drawing.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(rows)})


def _numbers(rows: Sequence[Shown]) -> dict[str, Array]:
    return {
        "difference": np.array([row.whole for row in rows]),
        "panel": np.array([row.panel for row in rows]),
        **{
            name: np.array([getattr(row, name) for row in rows], np.float64)
            for name in ("mean", "low", "high", "p")
        },
        **{
            name: np.array([getattr(row, name) for row in rows], np.int64)
            for name in ("count", *NUMBERS)
        },
    }


def _caption(rows: Sequence[Shown], params: ForestParams) -> str:
    paired = {row.paired for row in rows}
    what = "Mean differences of pairs" if True in paired else "Differences of means"
    if len(paired) > 1:
        what = "Mean differences, of pairs or of means"
    student = "Student's" if paired == {True} else "Welch's"
    kind = student if params.interval == "t" else "the bootstrap's"
    notes = [f"{what}; bars: {kind} {100 * params.confidence:g} % interval."]
    if params.test != "none":
        tests = {
            ("t", True): "Student's t-test",
            ("t", False): "Welch's t-test",
            ("rank", True): "Wilcoxon's signed ranks",
            ("rank", False): "Mann and Whitney's ranks",
        }
        names = " or ".join(tests[params.test, one] for one in sorted(paired)[::-1])
        level = captions.short(round(1 - params.confidence, 12))
        notes.append(
            f"p: {names}, corrected by Holm for all rows of a table; filled: p < "
            f"{level}."
        )
    return " ".join([*notes, *_doubts(rows)])


def _doubts(rows: Sequence[Shown]) -> Iterator[str]:
    words = {name: f"Left out, {word}" for name, word in NUMBERS.items()}
    for name, word in {**words, "unconverged": "Not converged"}.items():
        if total := sum(getattr(row, name) for row in rows):
            noun = "pair" if all(row.paired for row in rows) else "value"
            of = counted(len([r for r in rows if getattr(r, name)]), "row")
            yield f"{word}: {counted(total, noun)} in {of}."
    if differing := [row.settings for row in rows if row.settings]:
        parts = [part.split()[0] for text in differing for part in text.split("; ")]
        names = " or ".join(dict.fromkeys(parts))
        rows_told = counted(len(differing), "row")
        yield f"Estimates made at different {names} are compared in {rows_told}."


def _draw_panel(
    axes: Axes, of: Sequence[Shown], labels: Sequence[Label], params: ForestParams
) -> None:
    axes.grid(visible=True, axis="x")
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_ylim(len(of) - 0.4, -0.6)
    axes.set_yticks(range(len(of)), [drawing.literal(row.name) for row in of])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"difference of {captions.axis_label(of[0].measured())}")
    axes.xaxis.set_major_locator(drawing.tick_steps("auto"))
    axes.margins(x=0.06)
    beside: dict[str, Any] = {
        "xycoords": axes.get_yaxis_transform(),
        "textcoords": "offset points",
        "size": 7,
        "va": "center_baseline",
        "annotation_clip": False,
    }
    heads = ("n", "p") if params.test != "none" else ("n",)
    for column, head in zip(COLUMNS, heads, strict=False):
        axes.annotate(head, (1, -0.95), (column, 0), style="italic", **beside)
    for place, row in enumerate(of):
        _draw_row(axes, place, row, labels.index(row.label), params)
        texts = (str(row.count), _p(row.p))[: len(heads)]
        for column, text in zip(COLUMNS, texts, strict=False):
            axes.annotate(text, (1, place), (column, 0), **beside)


def _draw_row(
    axes: Axes, place: int, row: Shown, number: int, params: ForestParams
) -> None:
    if np.isnan(row.mean):
        at = axes.get_yaxis_transform()
        reason = f"no {'pairs' if row.paired else 'values'}: {_reasons(row)}"
        axes.text(0.03, place, reason, transform=at, **REASON)
        return
    if np.isfinite([row.low, row.high]).all():
        ends = [row.low, row.high]
        axes.plot(ends, [place, place], color=drawing.colour(number), linewidth=1.1)
        axes.plot(ends, [place, place], "|", color=drawing.colour(number), markersize=4)
    filled = params.test == "none" or row.p < 1 - params.confidence
    axes.plot(row.mean, place, **_look(number, filled=filled))


def _reasons(row: Shown) -> str:
    counts = {word: getattr(row, name) for name, word in NUMBERS.items()}
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n) or "none there"


def _p(value: float) -> str:
    if np.isnan(value):
        return "\u2013"
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _look(number: int, *, filled: bool) -> dict[str, Any]:
    return {
        "marker": "s",
        "markersize": 3.4,
        "linestyle": "",
        "color": drawing.colour(number),
        "markerfacecolor": drawing.colour(number) if filled else "white",
        "markeredgewidth": 1.0,
    }


def _mark(number: int) -> Line2D:
    return Line2D([], [], **_look(number, filled=True))
