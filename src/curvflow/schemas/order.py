"""Which stages take whose results, and the order that follows from it."""

from __future__ import annotations

from collections.abc import Mapping

from curvflow.errors import nearest
from curvflow.schemas.axes import Axis
from curvflow.schemas.document import Document
from curvflow.schemas.draft import Draft, read_draft
from curvflow.schemas.written import Path, shown


def read_drafts(document: Document, axes: Mapping[str, Axis]) -> dict[str, Draft]:
    """Read all stages, producers before their consumers, else in the order written.

    Args:
        document: the resolved study.
        axes: the study's axes.

    Returns:
        Stages by name.

    Raises:
        StudyError: there is no stage, one is badly written, an input is no stage, or
            stages take each other's results in a circle.
    """
    entries = document.mapping(("stages",))
    if not entries:
        message = "expected at least one stage, got none"
        raise document.complain(("stages",), message, "Add one under 'stages:'.")
    drafts = {str(name): read_draft(document, name, axes) for name in entries}
    for draft in drafts.values():
        _check_stages(document, draft, drafts)
    ordered: dict[str, Draft] = {}
    for name in drafts:
        _place(document, name, drafts, ordered, ())
    return ordered


def _check_stages(
    document: Document, draft: Draft, drafts: Mapping[str, Draft]
) -> None:
    for name, stages in draft.given.items():
        for index, stage in enumerate(stages):
            if stage not in drafts:
                path = input_path(document, draft.name, name, index)
                others = [other for other in drafts if other != draft.name]
                message = f"expected a stage of the study, got {shown(stage)}"
                raise document.complain(path, message, nearest(stage, others))


def input_path(document: Document, stage: str, name: str, index: int) -> Path:
    """Return where one of the stages that an input takes is written.

    Args:
        document: the resolved study.
        stage: the consumer.
        name: of its input.
        index: which of the stages given.

    Returns:
        The path, of the single name or of the list's item.
    """
    path = ("stages", stage, name)
    item = document.at(path)
    return (*path, index) if item and isinstance(item.value, list) else path


def _place(
    document: Document,
    name: str,
    drafts: Mapping[str, Draft],
    ordered: dict[str, Draft],
    above: tuple[str, ...],
) -> None:
    if name in ordered:
        return
    if name in above:
        circle = " -> ".join((*above[above.index(name) :], name))
        message = f"expected stages that do not need their own results, got {circle}"
        hint = "An arrow leads to what a stage takes."
        raise document.complain(("stages", name), message, hint, key=True)
    for stages in drafts[name].given.values():
        for producer in stages:
            _place(document, producer, drafts, ordered, (*above, name))
    ordered[name] = drafts[name]
