"""A stage of a study: kind, parameters, inputs, dimensions, and its epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from pydantic import ValidationError

from curvflow.errors import Place, StudyError
from curvflow.schemas.by_name import Siblings
from curvflow.schemas.kind import MAIN, Kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.template import Template
from curvflow.schemas.study.validation_messages import Problem, find_problems
from curvflow.schemas.study.yaml_source import Path, dotted_path, short_yaml


@dataclass(frozen=True)
class At:
    """Choice of checkpoints of a stage.

    Attributes:
        choice: how they are chosen.
        every: multiples of this, where `choice` is `every`.
        epochs: these, as written, where `choice` is `listed`; of `one` the only one.
    """

    choice: Literal["final", "one", "all", "every", "listed"] = "final"
    every: int = 1
    epochs: tuple[int, ...] = ()

    @property
    def adds_epoch(self) -> bool:
        """Return whether results get the dimension `epoch`."""
        return self.choice not in ("final", "one")

    def select(self, checkpoints: Sequence[int]) -> tuple[int, ...]:
        """Return the chosen checkpoints, ascending."""
        if self.choice == "final":
            return (checkpoints[-1],)
        if self.choice in ("one", "listed"):
            return tuple(sorted(set(self.epochs) & set(checkpoints)))
        return tuple(epoch for epoch in checkpoints if epoch % self.every == 0)

    def is_within(self, other: At) -> bool:
        """Return whether another choice has all of these checkpoints.

        `all` are those that the other one has.
        """
        if self.choice == "all" or other.choice == "all":
            return self.adds_epoch and other.adds_epoch
        if self.choice == "every":
            return other.choice == "every" and self.every % other.every == 0
        if other.choice == "every":
            return all(epoch % other.every == 0 for epoch in self.epochs)
        same = self.adds_epoch == other.adds_epoch
        return same and set(self.epochs) <= set(other.epochs)


def read_at(document: Document, path: Path) -> At:
    """Read an `at:`; `final` if it is missing."""
    item = document.at(path)
    if item is None or item.value == "final":
        return At()
    if item.value == "all":
        return At("all")
    value = item.plain()
    if type(value) is int:
        return At("one", epochs=(_integer(document, path, 0),))
    if isinstance(value, dict) and set(value) == {"every"}:
        return At("every", every=_integer(document, (*path, "every"), 1))
    if isinstance(value, list) and value:
        steps = [(*path, index) for index in range(len(value))]
        epochs = tuple(_integer(document, step, 0) for step in steps)
        for index, epoch in enumerate(epochs):
            if epoch in epochs[:index]:
                message = f"expected each epoch once, got {epoch} a second time"
                raise document.error(steps[index], message, "Remove one of them.")
        return At("listed", epochs=epochs)
    expected = "'final', 'all', an epoch, {every: n} or a list of epochs"
    message = f"expected {expected}, got {short_yaml(value)}"
    raise document.error(path, message, "Write one of them.")


def _integer(document: Document, path: Path, least: int) -> int:
    item = document.at(path)
    value: Any = item.plain() if item else None
    if type(value) is int and value >= least:
        return value
    message = f"expected an integer of at least {least}, got {short_yaml(value)}"
    hint = "Raise it." if type(value) is int else "Write an integer."
    raise document.error(path, message, hint)


_MAX_LISTED = 12
MAX_CHECKPOINTS = 100_000


def _num_checkpoints(params: Params) -> int:
    """Return the number of epochs 0, every, 2 every, ... that parameters name."""
    # Counted before the kind lists them, as the list alone may exceed the memory.
    every = getattr(getattr(params, "checkpoints", None), "every", None)
    epochs = getattr(params, "epochs", None)
    if not isinstance(every, int) or not isinstance(epochs, int) or every <= 0:
        return 0
    return epochs // every + 1


@dataclass(frozen=True, eq=False)
class Stage:
    """One entry under `stages:`, checked and connected.

    Attributes:
        name: as the study names it.
        kind: the declaration of what it does.
        inputs: per input the stages taken, those it follows filled in.
        own_axes: axes that its parameters name, in the study's order.
        dims: dimensions of its results, in the study's order, `epoch` last.
        reduced: dimensions of its inputs that it reduces over, in the same order.
        at: which epochs of its weights it looks at.
        template: its parameters before substitution.
        document: where it is written.
        files: patterns of files that its results depend on, with its parameters.
        env: environment variables whose values its results stand on.
        main: main variables of the stages taken, which `quantities: main` stands for.
    """

    name: str
    kind: Kind
    inputs: Mapping[str, tuple[str, ...]]
    own_axes: tuple[str, ...]
    dims: tuple[str, ...]
    reduced: tuple[str, ...]
    at: At
    template: Template = field(repr=False)
    document: Document = field(repr=False)
    files: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    _cache: dict[tuple[Label, ...], Params] = field(
        init=False, repr=False, default_factory=dict
    )
    _siblings: Siblings = field(init=False, repr=False, default_factory=Siblings)

    def params(self, labels: Mapping[str, Label]) -> Params:
        """Return the validated parameters at one point of the axes, cached."""
        point = tuple([labels[axis] for axis in self.own_axes])
        params = self._cache.get(point)
        if params is None:
            params = self._cache[point] = self._validated(labels)
        return params

    def _validated(self, labels: Mapping[str, Label]) -> Params:
        filled = self.template.fill(labels)
        try:
            params = self.kind.params.model_validate(filled, context=self._siblings)
        except ValidationError as error:
            self._raise_first(find_problems(error, self.kind.params, filled), labels)
        if (number := _num_checkpoints(params)) > MAX_CHECKPOINTS:
            most = f"{MAX_CHECKPOINTS:,}"
            message = f"expected at most {most} checkpoints, got {number:,}"
            hint = "Keep fewer of them."
            raise self.error(("checkpoints",), message, hint, labels=labels)
        return self._with_main(params)

    def _with_main(self, params: Params) -> Params:
        """Put names in the place of `quantities: main`, so that keys have these."""
        if "quantities" not in self.kind.selects or not self.main:
            return params
        if getattr(params, "quantities", None) != (MAIN,):
            return params
        return params.model_copy(update={"quantities": self.main})

    def _raise_first(
        self, problems: list[Problem], labels: Mapping[str, Label]
    ) -> NoReturn:
        def position(problem: Problem) -> tuple[bool, int, int]:
            path, _ = self._origin(problem.path, labels)
            place = self.document.place(path, key=problem.key)
            line = (place.line, place.column) if isinstance(place, Place) else (0, 0)
            return problem.missing, *line  # a misspelt key explains a missing one

        first = min(problems, key=position)
        wording = first.wording
        raise self.error(
            first.path, wording.message, wording.hint, labels=labels, key=first.key
        ) from None

    def epochs(self, checkpoints: Sequence[int]) -> tuple[int, ...]:
        """Return the checkpoints that `at:` chooses, ascending and at least one."""
        chosen = self.at.select(checkpoints)
        for index, epoch in enumerate(self.at.epochs):
            if epoch not in chosen:
                path: Path = ("at", index) if self.at.adds_epoch else ("at",)
                self._no_checkpoint(path, "one of the", epoch, checkpoints)
        if not chosen:
            step = f"{{every: {self.at.every}}}"
            self._no_checkpoint(("at",), "a step to some of the", step, checkpoints)
        return chosen

    def _no_checkpoint(
        self, path: Path, expected: str, got: object, checkpoints: Sequence[int]
    ) -> NoReturn:
        listed = [str(epoch) for epoch in checkpoints]
        if len(listed) > _MAX_LISTED:
            listed = [*listed[: _MAX_LISTED - 2], "...", listed[-1]]
        message = f"expected {expected} epochs {', '.join(listed)}, got {got}"
        remedy = "Take these, or let the training keep more by `checkpoints`."
        raise self.error(path, message, remedy)

    def error(
        self,
        path: Path,
        message: str,
        hint: str = "",
        *,
        labels: Mapping[str, Label] | None = None,
        key: bool = False,
    ) -> StudyError:
        """Return the StudyError for a parameter, at its axis if `labels` lead there."""
        full, note = self._origin(path, labels)
        hints = " ".join(part for part in (hint, note) if part)
        at_key = key or not path
        return self.document.error(full, message.rstrip("."), hints, key=at_key)

    def written_at(self, path: Path, labels: Mapping[str, Label]) -> Path | None:
        """Return where a parameter's value is written; None of one that is not."""
        full, _ = self._origin(path, labels)
        return full if self.document.at(full) else None

    def _origin(
        self, path: Path, labels: Mapping[str, Label] | None
    ) -> tuple[Path, str]:
        # Where the value is written, and if that is an axis, what it is used for.
        full: Path = ("stages", self.name, *path)
        reference = self.template.at(path) if labels is not None else None
        if labels is None or reference is None:
            return full, ""
        axis = reference.axis
        label = labels[axis.name]
        rest = path[len(reference.path) :]
        note = f"It is {dotted_path(full)} at {axis.name}={short_yaml(label)}."
        return (*axis.path(label), *reference.fields, *rest), note
