"""A study: axes, stages and expectations, read from one document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.errors import StudyError, nearest
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.axes import Axis, read_axes
from curvflow.schemas.study.connect import connect
from curvflow.schemas.study.document import Document, read_document
from curvflow.schemas.study.edges import read_drafts
from curvflow.schemas.study.expectations import Expectation, read_expectations
from curvflow.schemas.study.overrides import blame_profile, profile_names, resolve
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import short_yaml

__all__ = ["Axis", "Expectation", "Stage", "Study", "connected", "load_study"]

KEYS = ("study", "axes", "stages", "expect", "profiles")
MAX_NODES = 10_000_000
# Values of a document times its profiles, each of which is checked with all of it.
MAX_CHECKED = 1_000_000
# It names folders, so it has no characters that are special to a file system.
STUDY_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"


@dataclass(frozen=True)
class Study:
    """A study, checked and connected.

    Attributes:
        name: of the study; its runs are numbered under it.
        axes: by name, in the order written.
        stages: by name, producers before their consumers.
        expect: the values known beforehand.
        document: the plain document, profile and overrides applied.
        max_nodes: number of nodes beyond which it is not planned.
    """

    name: str
    axes: Mapping[str, Axis]
    stages: Mapping[str, Stage]
    expect: tuple[Expectation, ...]
    document: dict[str, Any]
    max_nodes: int = MAX_NODES


def load_study(
    text: str, *, file: str, profile: str | None = None, overrides: Sequence[str] = ()
) -> Study:
    """Load a YAML study with a profile and overrides, and check it completely."""
    # Other profiles are checked as well, each as if it had been requested.
    return connected(read_document(text, file), profile, overrides)


def connected(
    written: Document, profile: str | None = None, overrides: Sequence[str] = ()
) -> Study:
    """Check and connect a study, as `load_study` does, from any document."""
    written.refuse_unknown((), KEYS, "a key of a study")
    _check_profiles(written)
    study = _connected(resolve(written, profile, overrides))
    for text, name in profile_names(written).items():
        # So that a typo in the nightly profile does not wait for the night.
        if text != profile:
            _check_profile(written, name)
    return study


def _check_profiles(written: Document) -> None:
    number, size = len(written.mapping(("profiles",))), written.root.size()
    if number * size > MAX_CHECKED:
        most = max(MAX_CHECKED // size, 1)
        message = (
            f"expected at most {most:,} profiles of a study of {size:,} values, got "
            f"{number:,}"
        )
        raise written.error(("profiles",), message, "Remove some.", key=True)


def _check_profile(written: Document, name: Label) -> None:
    try:
        _connected(resolve(written, str(name)))
    except StudyError as error:
        raise blame_profile(written, name, error) from None


def _connected(document: Document) -> Study:
    document.refuse_unknown((), KEYS, "a key of a study")
    name = _read_name(document)
    axes = read_axes(document)
    stages = connect(document, axes, read_drafts(document, axes))
    _refuse_unused(document, axes, stages)
    expect = read_expectations(document, stages, axes)
    return Study(name, axes, stages, expect, document.root.plain())


def _read_name(document: Document) -> str:
    item = document.at(("study",))
    if item is None:
        message = "expected the study's name, got none"
        raise document.error(("study",), message, "Add 'study: <name>'.")
    if isinstance(item.value, str) and re.fullmatch(STUDY_NAME, item.value):
        return item.value
    message = (
        "expected a name of at most 100 letters, digits, _, - and ., got "
        f"{short_yaml(item.plain())}"
    )
    raise document.error(("study",), message, "Rename the study.")


def _refuse_unused(
    document: Document, axes: Mapping[str, Axis], stages: Mapping[str, Stage]
) -> None:
    used = {axis for stage in stages.values() for axis in stage.own_axes}
    for name in axes:
        if name not in used:
            hint = nearest(name, axes.keys() - {name})
            if not hint.startswith("Did"):
                hint = f'Write "${{{name}}}" for a parameter, or remove the axis.'
            message = "expected a stage that uses it, got none"
            raise document.error(("axes", name), message, hint, key=True)
