"""Checks that no setting is given that others leave without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from curvflow.schemas.idle_settings import Idle, idle_settings
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import Path, short_yaml


def check_effects(stage: Stage) -> None:
    """Refuse a setting that has no effect wherever it holds.

    Args:
        stage: whose parameters are valid at all labels.

    Raises:
        StudyError: a value is written that is not the default, and others leave it
            without effect at all labels of the axes.
    """
    seen: set[Path] = set()
    for labels in stage.template.samples():
        for idle, written in _written(stage, labels):
            if written not in seen and not _has_effect(stage, idle.path, written):
                message = idle.message(short_yaml(idle.value))
                raise stage.error(idle.path, message, idle.hint, labels=labels)
            seen.add(written)


def _written(stage: Stage, labels: Mapping[str, Label]) -> Iterator[tuple[Idle, Path]]:
    """Yield settings without effect at some labels, with where they are written."""
    for idle in idle_settings(stage.params(labels)):
        written = stage.written_at(idle.path, labels)
        if written is not None and not idle.is_default:
            yield idle, written


def _has_effect(stage: Stage, path: tuple[str, ...], written: Path) -> bool:
    """Return whether a value has an effect at some labels at which it holds."""
    for labels in stage.template.combinations():
        if stage.written_at(path, labels) == written and path not in {
            idle.path for idle in idle_settings(stage.params(labels))
        }:
            return True
    return False
