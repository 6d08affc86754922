"""Sheets, style, legends, ticks and files of all figures, with reproducible placement.

Lengths are in inches unless a name states another unit.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)
from matplotlib.transforms import Bbox

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array

POSITION_STEPS = 2.0**20  # per width and height; a fifth of a micron on 180 mm


class RoundedLayout(ConstrainedLayoutEngine):
    """Matplotlib's constrained layout with rounded positions and whole labels.

    Its solver sorts variables by their addresses in memory, so that last bits vary
    within one process (https://github.com/nucleic/kiwi/issues/57). They would change
    the identifiers in an SVG file, which are made from positions.
    """

    def execute(self, fig: Figure) -> Any:
        """Place the panels, and break labels next to them that are longer than they.

        Args:
            fig: the figure.

        Returns:
            The result of Matplotlib's engine.
        """
        result = super().execute(fig)
        if _break_labels(fig.axes):
            result = super().execute(fig)
        for axes in fig.axes:
            is_placed = axes.get_in_layout()
            corners = np.asarray(axes.get_position(original=True).extents)
            axes.set_position(
                Bbox.from_extents(*(np.rint(corners * POSITION_STEPS) / POSITION_STEPS))
            )
            axes.set_in_layout(is_placed)  # setting a position clears it
        return result


def _break_labels(panels: Sequence[Axes]) -> bool:
    """Break labels that are longer than their panel or bar; return if there are any."""
    is_any = False
    for axes in panels:
        label, height = axes.yaxis.label, _extent(axes)[1]
        if label.get_text() and _extent(label)[1] > height:
            size = float(label.get_fontsize())
            lines = "\n".join(wrap_text(label.get_text(), size, height))
            is_any |= lines != label.get_text()
            label.set_text(lines)
    return is_any


# Okabe and Ito (2008), Color universal design, without yellow, too faint on paper.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)))
MM = 1 / 25.4
POINT = 1 / 72
DPI = 300
# Kinds of files, and what each leaves out, so that equal figures have equal bytes.
OMITTED = {
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("CreationDate", "Creator", "Producer"),
}
MARGIN = 1.5 * MM
CAPTION_SIZE = 6.5
TITLE_SIZE = 9.0
GREY = "0.35"
MAX_POWERS = 100  # powers of ten on an axis with Matplotlib's ticks
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib: the same everywhere
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "0.3",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.use_mathtext": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.color": "0.3",
    "ytick.color": "0.3",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "svg.fonttype": "path",  # letters look the same without the font
    "pdf.fonttype": 42,  # editable letters, which journals accept
    "svg.hashsalt": "curvflow",  # fixed, so that identifiers are reproducible
}
_style_lock = Lock()


@contextmanager
def default_style() -> Iterator[None]:
    """Set the style for the block, independent of the user's own settings."""
    settings: dict[Any, Any] = {
        name: value
        for name, value in mpl.rcParamsDefault.items()
        if not name.startswith("backend")
    }
    settings.update(STYLE)
    # Matplotlib's settings are global to the process, which tiles may share.
    with _style_lock, mpl.rc_context(settings):
        yield


def new_figure(width_mm: float, height_mm: float) -> Figure:
    """Return an empty figure that can be drawn without a display."""
    figure = Figure(figsize=(width_mm * MM, height_mm * MM), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def label_colour(number: int) -> str:
    """Return the colour of the n-th label; the same in every figure."""
    return PALETTE[number % len(PALETTE)]


def label_dash(number: int) -> Any:
    """Return the line style of the n-th label; solid for the first seven."""
    return DASHES[number // len(PALETTE)]


def check_labels(count: int) -> None:
    """Refuse more labels than colours and line styles can distinguish.

    Args:
        count: number of labels.

    Raises:
        InputError: there are too many.
    """
    most = len(PALETTE) * len(DASHES)
    if count > most:
        raise InputError(
            f"label: expected at most {most} labels in one figure, got {count}. "
            "Choose an axis with fewer, or make a figure for each by leaving it out."
        )


def escape_mathtext(text: object) -> str:
    """Return text on one line, with dollar signs escaped."""
    return " ".join(str(text).split()).replace("$", r"\$")


def text_width(text: str, size: float) -> float:
    """Return the width of one line of text at a size in points."""
    return _extent(_line(text, size))[0]


def _line(text: str, size: float) -> Text:
    return new_figure(1, 1).text(0, 0, text, size=size, parse_math=False)


def wrap_text(text: str, size: float, width: float) -> list[str]:
    """Break text into lines of a width; longer words stay whole."""
    lines, drawn = [""], _line("", size)
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        drawn.set_text(longer)
        if lines[-1] and _extent(drawn)[0] > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def compose(
    figure: Figure,
    *,
    title: str | None,
    caption: str,
    handles: Sequence[Artist] = (),
    labels: Sequence[str] = (),
    label_name: str = "",
) -> None:
    """Set title and legend above the panels and the caption below; the sheet grows.

    Args:
        figure: figure with its panels drawn.
        title: text above, or None.
        caption: text below.
        handles: artists of the legend; empty for no legend.
        labels: text of each handle.
        label_name: title of the legend.
    """
    width, panel = figure.get_size_inches()
    inner = width - 2 * MARGIN
    head = wrap_text(title, TITLE_SIZE, inner) if title else []
    foot = wrap_text(caption, CAPTION_SIZE, inner)
    head_height = _height(head, TITLE_SIZE)
    legend = _legend(figure, handles, labels, label_name, inner) if handles else None
    legend_height = _extent(legend)[1] + MARGIN if legend else 0.0
    foot_height = _height(foot, CAPTION_SIZE)
    total = head_height + legend_height + panel + foot_height
    figure.set_size_inches(width, total)
    rect = (0, foot_height / total, 1, panel / total)
    layout = RoundedLayout(rect=rect, w_pad=0.03, h_pad=0.03, wspace=0.04, hspace=0.05)
    figure.set_layout_engine(layout)
    left = MARGIN / width
    if legend:
        top = 1 - (head_height + MARGIN) / total
        legend.set_bbox_to_anchor((left, top), transform=figure.transFigure)
    for lines, y, size, tone in (
        (head, 1 - MARGIN / total, TITLE_SIZE, "black"),
        (foot, (foot_height - MARGIN / 2) / total, CAPTION_SIZE, GREY),
    ):
        text = escape_lines(lines)
        figure.text(left, y, text, size=size, color=tone, va="top", linespacing=1.3)


def escape_lines(lines: Sequence[str]) -> str:
    """Return lines as one text, with dollar signs escaped."""
    return "\n".join(map(escape_mathtext, lines))


def _height(lines: Sequence[str], size: float) -> float:
    return len(lines) * size * 1.35 * POINT + MARGIN if lines else 0.0


def _extent(artist: Artist) -> tuple[float, float]:
    box = artist.get_window_extent()
    return box.width / DPI, box.height / DPI


def _legend(
    figure: Figure,
    handles: Sequence[Artist],
    labels: Sequence[str],
    label_name: str,
    width: float,
) -> Any:
    """Return a legend in as few rows as fit the width, about equally long."""
    for rows in range(1, len(handles) + 1):
        legend = figure.legend(
            handles,
            [escape_mathtext(label) for label in labels],
            title=escape_mathtext(label_name),
            ncols=-(-len(handles) // rows),
            loc="upper left",
            alignment="left",
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=1.8,
            columnspacing=1.4,
            labelspacing=0.3,
        )
        if rows == len(handles) or _extent(legend)[0] <= width:
            return legend
        legend.remove()
    raise AssertionError("a legend has at least one handle")


def round_ticks(most: int | Literal["auto"], *, whole: bool = False) -> MaxNLocator:
    """Return a locator of ticks at round numbers.

    Args:
        most: number of intervals at most; `auto` for as many as fit.
        whole: use whole numbers only.

    Returns:
        A locator for one axis.
    """
    return MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole)


def log_limits(mean: Array, low: Array, high: Array) -> tuple[float, float]:
    """Return limits of a logarithmic axis that keep every mean well in view.

    An error bar that reaches zero has no end there, so it is cut a factor of ten below
    its mean.

    Args:
        mean: means, any shape.
        low: lower ends; NaN where there is no bar.
        high: upper ends.

    Returns:
        Lower and upper limit; 1 and 10 if no mean is positive.
    """
    seen = mean > 0
    if not seen.any():
        return 1.0, 10.0
    ends = np.where(np.isnan(low[seen]), mean[seen], low[seen])
    bottom = np.maximum(ends, mean[seen] / 10).min()
    top = np.fmax(high[seen], mean[seen]).max()
    margin = (top / bottom) ** 0.04 if top > bottom else 2.0
    return float(bottom / margin), float(top * margin)


def set_log_ticks(axis: Axis) -> None:
    """Set ticks at powers of ten, or at further round numbers if these are too few.

    Args:
        axis: logarithmic axis with its limits set.
    """
    low, high = axis.get_view_interval()
    axis.set_minor_formatter(NullFormatter())
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in (1,), (1, 2, 5), range(1, 10):
        # From text, so that 3e-1 is exactly the double nearest 0.3.
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        if sum(low <= tick <= high for tick in ticks) >= 2:
            break
    else:
        ticks = [x for x in round_ticks(4).tick_values(low, high) if x > 0]
    if digits != (1,):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FuncFormatter(_format_tick))
        axis.set_view_interval(low, high, ignore=True)
    elif len(powers) > MAX_POWERS or powers[-1] > MAX_POWERS:
        # Matplotlib's ticks exceed the limits, and here the range of doubles.
        ends = math.log10(low), math.log10(high)
        exponents = [
            p for p in round_ticks(6).tick_values(*ends) if ends[0] <= p <= ends[1]
        ]
        axis.set_major_locator(FixedLocator([10.0**power for power in exponents]))
        axis.set_minor_locator(NullLocator())


def _format_tick(value: float, place: int | None) -> str:
    digits, _, power = f"{value:.2e}".partition("e")
    if -4 < int(power) < 5:
        return f"{value:g}"
    return rf"${float(digits):g}\times10^{{{int(power)}}}$"


def pictures(figure: Figure) -> dict[str, Array]:
    """Draw a figure to files.

    Args:
        figure: the figure.

    Returns:
        `png`, `svg` and `pdf`: bytes of the files, without dates or versions.
    """
    return {kind: picture(figure, kind) for kind in OMITTED}


def picture(figure: Figure, kind: str) -> Array:
    """Draw a figure to a file of one of these kinds, and return its bytes."""
    buffer = io.BytesIO()
    metadata = dict.fromkeys(OMITTED[kind])
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    # Panels keep their places, since renderers measure text slightly differently.
    figure.set_layout_engine("none")
    return np.frombuffer(buffer.getvalue(), np.uint8).copy()
