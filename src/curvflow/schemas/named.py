"""Whether stages and variables that parameters name are there to be taken."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.stage import Stage


def check_named(stage: Stage, producers: Sequence[Stage]) -> None:
    """Check the names that parameters hold against the stages taken.

    Args:
        stage: its inputs resolved.
        producers: the stages taken.

    Raises:
        StudyError: a stage named is not taken, or has no such variable.
    """
    if stage.kind.misnamed is None:
        return
    kinds = {producer.name: producer.kind for producer in producers}
    taken = {
        name: {one: kinds[one] for one in stages}
        for name, stages in stage.inputs.items()
    }
    for labels in stage.template.samples():
        for path, message, hint in stage.kind.misnamed(stage.params(labels), taken):
            raise stage.complain(path, message, hint, labels=labels)
