"""Captions of figures, and panels without values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from curvflow.schemas.nodes import Label
from curvflow.schemas.words import counted
from curvflow.tasks.statistics.label_groups import ValueGroup
from curvflow.tasks.statistics.measurements import Measurement, is_unconverged

SPREADS = {
    "ci95": "Student's 95 % interval of the mean",
    "sem": "one standard error of the mean either side",
    "sd": "one standard deviation either side",
    "range": "least to greatest value",
}
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def quantity(one: Measurement) -> tuple[str, str]:
    """Return a variable's name in words, and its units if they say more.

    Args:
        one: the variable.

    Returns:
        Such as `trace` and `loss / parameter²`; a loss in units of loss needs none.
    """
    words = one.variable.name.replace("_", " ")
    units = one.variable.units
    if units == "1" or units in words.split():
        return words, ""
    base, *powers = units.split("^")
    for power in powers:
        digits = len(power) - len(power.lstrip("-0123456789"))
        base += power[:digits].translate(SUPERSCRIPTS) + power[digits:]
    return words, base


def axis_label(one: Measurement, *, break_line: bool = False) -> str:
    """Return name and units for an axis, the units on a line of their own if asked."""
    words, units = quantity(one)
    gap = "\n" if break_line else " "
    return words + (f"{gap}({units})".replace("$", r"\$") if units else "")


def legend_label(group: ValueGroup) -> str:
    """Return the label, with the number of nodes that diverged if any did."""
    if not group.diverged:
        return str(group.label)
    return f"{group.label} ({nothing(group)})"


def nothing(group: ValueGroup) -> str:
    """Return why values are missing."""
    if group.diverged == group.nodes > 0:
        return f"all {group.nodes} diverged"
    if group.diverged:
        return f"{group.diverged} of {group.nodes} diverged"
    return "no finite values"


def short(number: float) -> str:
    """Return a number in a few letters, such as `0.01` or `1e-5`."""
    return f"{number:g}".replace("e-0", "e-").replace("e+0", "e")


def off_scale(number: int, noun: str) -> list[str]:
    """Return the sentence on what has no place on a logarithmic axis, if any has."""
    what = counted(number, noun)
    return [f"Not on a logarithmic axis: {what} at or below 0."] if number else []


def averaged(
    one: Measurement, counts: Iterable[int], parts: Sequence[str | None]
) -> str:
    """Say what a mean is over and where the rest was held.

    Args:
        one: the variable.
        counts: values averaged, per label.
        parts: axes that have another part in the figure.

    Returns:
        Such as `Mean over seed, n = 5, at width = 16`.
    """
    seen: dict[str, list[Label]] = {}
    for node in one.nodes:
        for axis, label in node.coords.items():
            if axis not in parts and label not in seen.setdefault(axis, []):
                seen[axis].append(label)
    over = [axis for axis, labels in seen.items() if len(labels) > 1]
    held = [
        f"{axis} = {labels[0]}" for axis, labels in seen.items() if axis not in over
    ]
    least, most = min(ns := [*counts] or [0]), max(ns)
    n = f"n = {most}" if least == most else f"n = {least} to {most}"
    text = f"Mean over {', '.join(over)}, {n}" if over else "Single values"
    return text + (f", at {', '.join(held)}" if held else "")


def left_out(of: Sequence[ValueGroup]) -> list[str]:
    """Say what is in no mean: diverged nodes, and values that are not finite.

    Args:
        of: the groups of one variable.

    Returns:
        Sentences; none if nothing is left out.
    """
    shares = [
        (one.label, f"{one.diverged} of {one.nodes}") for one in of if one.diverged
    ]
    diverged = [
        f"{label} ({share})" if label != "" else share for label, share in shares
    ]
    sentences = [f"Diverged, left out: {', '.join(diverged)}."] if diverged else []
    if nonfinite := sum(group.nonfinite() for group in of):
        sentences.append(f"Not finite, left out: {counted(nonfinite, 'value')}.")
    return sentences


def unconverged(of: Iterable[Measurement]) -> list[str]:
    """Say how many nodes are not converged, which means hold all the same.

    Args:
        of: what is drawn.

    Returns:
        A sentence; none if no node has such a verdict.
    """
    doubts = {
        id(node): is_unconverged(node, one.variable)
        for one in of
        if one.variable.judged_by
        for node in one.ok
    }
    if not (total := sum(doubts.values())):
        return []
    share = f"{total} of {counted(len(doubts), 'node')}"
    return [f"Not converged, drawn all the same: {share}."]


def say_no_values(axes: Axes) -> None:
    """Write `no values` into a panel, without the ticks of a scale that is nobody's.

    Args:
        axes: the panel, with its scales set.
    """
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([])
        axis.set_ticks([], minor=True)
