"""Studies built in Python: the content of a study file, as mappings and lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curvflow.flows.graph.open_study import make_importable
from curvflow.flows.reads.windows import importing, may_import
from curvflow.flows.results.outputs import replace_file
from curvflow.schemas.study.document import Document, read_document
from curvflow.schemas.study.python_source import plain_document
from curvflow.schemas.study.study import KEYS, connected
from curvflow.schemas.study.study import Study as ConnectedStudy
from curvflow.schemas.study.yaml_source import to_yaml

NAME = "Study"  # stands for the file's name in messages
REQUIRED = ("study", "stages")


class Study:
    """A study as it is written, with the keys of a study file.

    It is checked at once, with each of its profiles. It has no folder of its own: it is
    run in the current one, with results in `.curvflow`, tables and figures in
    `results/`, and the files that it names looked for there.

    Two studies are equal if they say the same in the same order, for the order of axes
    is that of dimensions.

    Examples:
        >>> import curvflow
        >>> model = {"kind": "mlp", "hidden": [4]}
        >>> study = curvflow.Study(
        ...     study="moons",
        ...     axes={"seed": 3},
        ...     stages={
        ...         "data": {"use": "data.two_moons"},
        ...         "fit": {
        ...             "use": "train",
        ...             "data": "data",
        ...             "model": model,
        ...             "rule": {"rule": "sgd", "lr": 0.1},
        ...             "seed": "${seed}",
        ...             "epochs": 2,
        ...         },
        ...     },
        ... )
        >>> study  # to be run by `curvflow.run(study)`
        <Study moons: axes seed; stages data, fit>
    """

    def __init__(
        self,
        *,
        stages: Mapping[str, Any],
        axes: Mapping[str, Any] | None = None,
        study: str = "study",
        expect: Sequence[Mapping[str, Any]] | None = None,
        profiles: Mapping[str, Any] | None = None,
    ) -> None:
        """Check a study.

        Args:
            stages: as under `stages:`, each with `use` and its parameters.
            axes: as under `axes:`, names to counts, lists or mappings.
            study: its name; runs are numbered under it.
            expect: values known beforehand.
            profiles: named overrides.

        Raises:
            StudyError: the study requests something that cannot be done; the error has
                the path within the mappings, what was expected and found, and what to
                do.
        """
        given = (study, axes, stages, expect, profiles)
        present = {k: v for k, v in zip(KEYS, given, strict=True) if v is not None}
        self._take(plain_document(present, NAME))

    @classmethod
    def from_yaml(cls, text: str) -> Study:
        """Read a study from the text of a study file.

        Args:
            text: YAML.

        Returns:
            The study; comments are not kept.

        Raises:
            StudyError: as of a study file.

        Examples:
            >>> curvflow.Study.from_yaml(study.to_yaml()) == study
            True
        """
        study = cls.__new__(cls)
        study._take(read_document(text, NAME))
        return study

    def _take(self, written: Document) -> None:
        make_importable(Path.cwd())
        self._written = written
        with importing(is_likely=may_import(repr(written.root.plain()))):
            connected(written)

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self._data()["study"])

    @property
    def axes(self) -> dict[str, Any]:
        """Axes by name, as written."""
        return dict(self._data().get("axes", {}))

    @property
    def stages(self) -> dict[str, Any]:
        """Stages by name, as written."""
        return dict(self._data()["stages"])

    @property
    def expect(self) -> list[Any]:
        """Values known beforehand, as written."""
        return list(self._data().get("expect", []))

    @property
    def profiles(self) -> dict[str, Any]:
        """Named overrides, as written."""
        return dict(self._data().get("profiles", {}))

    def connected(
        self, profile: str | None = None, overrides: Sequence[str] = ()
    ) -> ConnectedStudy:
        """Return the study with its stages connected, against the kinds of now.

        Args:
            profile: named overrides to apply.
            overrides: `a.b=c`, applied last.

        Returns:
            What can be planned.

        Raises:
            StudyError: the study requests something that cannot be done.

        Examples:
            >>> study.connected(overrides=["stages.fit.epochs=1"]).stages["fit"].dims
            ('seed',)
        """
        texts = repr(self._written.root.plain()), *overrides
        with importing(is_likely=may_import(*texts)):
            return connected(self._written, profile, overrides)

    def to_yaml(self) -> str:
        """Return the text of a study file that says the same.

        Examples:
            >>> print(study.to_yaml().splitlines()[0])
            study: moons
        """
        return to_yaml(self._data())

    def save(self, path: str | Path) -> None:
        """Write a study file, replacing an older one.

        Args:
            path: such as `study.yaml`. Run by its path, the study has its results
                beside the file.

        Raises:
            StoreError: the file cannot be written.

        Examples:
            >>> import pathlib
            >>> study.save("moons.yaml")
            >>> pathlib.Path("moons.yaml").read_text() == study.to_yaml()
            True
        """
        replace_file(Path(path), self.to_yaml().encode())

    def _data(self) -> dict[str, Any]:
        """Return the study as plain data, its keys in their order."""
        fields: dict[str, Any] = self._written.root.plain()
        return {k: fields[k] for k in KEYS if k in REQUIRED or fields.get(k)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Study):
            return NotImplemented
        # As text, since 1, 1.0 and True are three values here.
        return repr(self._data()) == repr(other._data())

    def __hash__(self) -> int:
        return hash(repr(self._data()))

    def __repr__(self) -> str:
        axes = ", ".join(self.axes) or "none"
        return f"<Study {self.name}: axes {axes}; stages {', '.join(self.stages)}>"
