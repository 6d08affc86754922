"""Texts of figures: quantities with units, captions, and panels without values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from curvflow.schemas.kinds.shared.figures import HOLD
from curvflow.schemas.nodes import Label, Member, NodeData
from curvflow.schemas.words import counted, node_label, span_text
from curvflow.tasks.statistics.label_groups import ValueGroup
from curvflow.tasks.statistics.measurements import Measurement, is_unconverged

SPREADS = {
    "ci95": "Student's 95 % interval of the mean",
    "sem": "one standard error of the mean either side",
    "sd": "one standard deviation either side",
    "range": "least to greatest value",
}
TREATMENTS = {
    "show": "drawn all the same",
    "mark": "drawn hollow",
    "exclude": "left out",
}
MOST_NAMES = 4  # of nodes that failed
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def quantity_text(measurement: Measurement) -> tuple[str, str]:
    """Return a variable's name in words, and its units unless the name implies them.

    Args:
        measurement: the variable.

    Returns:
        Such as `trace` and `loss / parameter²`; a loss in units of loss needs none.
    """
    words = measurement.variable.name.replace("_", " ")
    units = measurement.variable.units
    if units == "1" or units in words.split():
        return words, ""
    base, *powers = units.split("^")
    for power in powers:
        digits = len(power) - len(power.lstrip("-0123456789"))
        base += power[:digits].translate(SUPERSCRIPTS) + power[digits:]
    return words, base


def axis_label(measurement: Measurement, *, break_line: bool = False) -> str:
    """Return name and units for an axis, on two lines if `break_line`."""
    words, units = quantity_text(measurement)
    gap = "\n" if break_line else " "
    return words + (f"{gap}({units})".replace("$", r"\$") if units else "")


def legend_label(group: ValueGroup) -> str:
    """Return the label, with the number of diverged nodes if there are any."""
    if not group.diverged:
        return str(group.label)
    return f"{group.label} ({missing_reason(group)})"


def missing_reason(group: ValueGroup) -> str:
    """Return the reason for missing values."""
    if group.diverged == group.nodes > 0:
        return f"all {group.nodes} diverged"
    if group.diverged:
        return f"{group.diverged} of {group.nodes} diverged"
    return "no finite values"


def off_scale_sentences(number: int, noun: str) -> list[str]:
    """Return a sentence on values that a logarithmic axis cannot show, if any."""
    counted_text = counted(number, noun)
    return (
        [f"Not on a logarithmic axis: {counted_text} at or below 0."] if number else []
    )


def average_text(
    measurement: Measurement, counts: Iterable[int], parts: Sequence[str | None]
) -> str:
    """Return the averaged axes, the number of values and the fixed labels as text.

    Args:
        measurement: the variable.
        counts: number of averaged values, per label.
        parts: axes with another role in the figure.

    Returns:
        Such as `Mean over seed, n = 5, at width = 16`.
    """
    labels_of_axis: dict[str, list[Label]] = {}
    for node in measurement.nodes:
        for axis, label in node.coords.items():
            if axis not in parts and label not in labels_of_axis.setdefault(axis, []):
                labels_of_axis[axis].append(label)
    varying = [axis for axis, labels in labels_of_axis.items() if len(labels) > 1]
    fixed = [
        f"{axis} = {labels[0]}"
        for axis, labels in labels_of_axis.items()
        if axis not in varying
    ]
    least, most = min(ns := [*counts] or [0]), max(ns)
    n = f"n = {most}" if least == most else f"n = {least} to {most}"
    text = f"Mean over {', '.join(varying)}, {n}" if varying else "Single values"
    return text + (f", at {', '.join(fixed)}" if fixed else "")


def left_out_sentences(groups: Sequence[ValueGroup]) -> list[str]:
    """Return sentences on diverged nodes and non-finite values, which means exclude.

    Args:
        groups: label groups of one variable.

    Returns:
        Sentences; none if nothing is excluded.
    """
    shares = [
        (group.label, f"{group.diverged} of {group.nodes}")
        for group in groups
        if group.diverged
    ]
    diverged = [
        f"{label} ({share})" if label != "" else share for label, share in shares
    ]
    sentences = [f"Diverged, left out: {', '.join(diverged)}."] if diverged else []
    if nonfinite := sum(group.nonfinite() for group in groups):
        sentences.append(f"Not finite, left out: {counted(nonfinite, 'value')}.")
    return sentences


def unconverged_sentences(
    measurements: Iterable[Measurement], how: str = "show"
) -> list[str]:
    """Return a sentence on unconverged nodes, which means include unless excluded.

    Args:
        measurements: the drawn variables.
        how: `show`, `mark` or `exclude`, as figures take it.

    Returns:
        A sentence; none if all nodes are converged.
    """
    doubts = {
        id(node): is_unconverged(node, measurement.variable)
        for measurement in measurements
        if measurement.variable.judged_by
        for node in measurement.ok
    }
    if not (total := sum(doubts.values())):
        return []
    share = f"{total} of {counted(len(doubts), 'node')}"
    return [f"Not converged, {TREATMENTS[how]}: {share}."]


def hold_sentences(measurements: Iterable[Measurement]) -> list[str]:
    """Return a sentence for each stage on the localization of its estimates.

    Coefficients at different localizations are of different posteriors, so that their
    differences may be those of the localization.

    Args:
        measurements: the drawn variables.

    Returns:
        Such as `Localization 5.6 to 17.7 in 9 estimates.`; none without estimates that
        have one.
    """
    stages: dict[str, dict[int, NodeData]] = {}
    for measurement in measurements:
        if measurement.variable.judged_by:
            nodes = {id(n): n for n in measurement.ok if HOLD[0] in n}
            stages.setdefault(measurement.stage, {}).update(nodes)
    texts = {
        stage: span_text([float(node[HOLD[0]]) for node in nodes.values()])
        for stage, nodes in stages.items()
        if nodes
    }
    names = len(texts) > 1
    return [
        f"Localization{f' of {stage}' if names else ''} {text}."
        for stage, text in texts.items()
    ]


def with_absent(caption: str, member: Member) -> str:
    """Return a caption that states which nodes are left out: those that failed.

    Args:
        caption: of the results that are there.
        member: the node that draws.

    Returns:
        The caption, with a sentence that counts and names them.
    """
    absent = member.all_absent
    if not absent:
        return caption
    names = [node_label(node.stage, node.coords) for node in absent[:MOST_NAMES]]
    more = len(absent) - len(names)
    listed = ", ".join(names) + (f" and {more:,} more" if more else "")
    return f"{caption} Failed, left out: {counted(len(absent), 'node')}, {listed}."


def draw_no_values(axes: Axes) -> None:
    """Write `no values` into a panel and remove its ticks.

    Args:
        axes: the panel, with its scales set.
    """
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([])
        axis.set_ticks([], minor=True)
