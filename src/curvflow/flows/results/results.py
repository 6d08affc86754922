"""Results as xarray Datasets, one per stage, read on access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import RemovedPayloadError, UnknownNameError, nearest
from curvflow.flows.results.convergence_counts import made_of, made_without, verdicts
from curvflow.flows.results.node_results import View, typed_label
from curvflow.flows.results.outputs import columns_of, view_records
from curvflow.flows.results.picture import Picture, read_picture
from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Label, Table
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.records.records import time_variables
from curvflow.schemas.words import printable
from curvflow.stores.base import Store

if TYPE_CHECKING:
    from curvflow.stores.labelled.datasets import DataFrame, Dataset, DataTree


class Results(Mapping[str, "Dataset"]):
    """The results of a study, by stage.

    `results["stage"]` is an xarray.Dataset whose leading dimensions are the stage's
    axes. Arrays are read from the store when they are looked at, and verified.

    Attributes:
        study: name of the study.
        run: the run that left them; None for the study as it stands.
        files: tables and figures that the run wrote out.
        revived: per stage the number of results that the run computed again after
            collection, their digests being equal; 0 if the request had no effect.

    Examples:
        >>> import curvflow
        >>> stages = {
        ...     "matrix": {"use": "data.random_matrix", "size": "${n}"},
        ...     "trace": {"use": "probe.trace", "matrix": "matrix", "num_probes": 4},
        ...     "lines": {"use": "figure.lines", "of": "trace", "x": "n", "y": "trace"},
        ... }
        >>> study = curvflow.Study(axes={"n": [2, 3]}, stages=stages)
        >>> results = curvflow.run(study, store="memory:")
        >>> results
        <Results of run 1 of study: matrix, trace, lines>
        >>> results["trace"]["trace"].dims
        ('n',)
    """

    def __init__(
        self,
        study: str,
        views: Mapping[str, View],
        store: Store,
        run: RunRecord | None = None,
        files: Sequence[Path] = (),
        revived: Mapping[str, int] | None = None,
    ) -> None:
        """Bind views to the store that holds their arrays.

        Args:
            study: name of the study.
            views: nodes and receipts, per stage.
            store: holds the arrays.
            run: the run that left them.
            files: tables and figures written out.
            revived: number of results computed again after collection, per stage.
        """
        self.study, self.run, self.files = study, run, list(files)
        self.revived = dict(revived or {})
        self._views, self._store = views, store
        self._single: frozenset[str] = frozenset()  # dimensions cut down to a label

    def __getitem__(self, stage: str) -> Dataset:
        """Return one stage's results.

        Args:
            stage: name of the stage.

        Returns:
            Every declared variable over the stage's axes, `status`, and the time that
            each node took.

        Raises:
            UnknownNameError: the study has no such stage.
            RemovedPayloadError: collection has removed arrays of the stage.
        """
        # Loaded here because a run without news saves the half second of xarray.
        from curvflow.stores.labelled.datasets import labelled

        view = self.view(stage)
        if view.counts()["removed"]:
            raise RemovedPayloadError(stage)
        coords = {
            dim: _labels(view, position) for position, dim in enumerate(view.dims)
        }
        at = [
            {typed_label(label): i for i, label in enumerate(coords[d])}
            for d in view.dims
        ]
        cells = {
            tuple(
                places[typed_label(label)]
                for places, label in zip(at, point, strict=True)
            ): n
            for n, point in enumerate(view.points)
        }
        dataset = labelled(
            self._store,
            dims=view.dims,
            coords=coords,
            cells={cell: view.receipts[n] for cell, n in cells.items()},
            statuses={cell: view.status(n) for cell, n in cells.items()},
            outputs=view.kind.outputs,
            times=time_variables(view.kind, view.dims),
            attrs=self._attributes(view),
        )
        return dataset.isel({dim: 0 for dim in view.dims if dim in self._single})

    def _attributes(self, view: View) -> dict[str, Any]:
        attributes = {
            "study": self.study,
            "stage": view.stage,
            "kind": view.use,
            "kind_version": view.kind.version,
        }
        chosen = {"chosen": "\n".join(lines)} if (lines := view.chosen()) else {}
        return attributes | chosen | ({"run": self.run.number} if self.run else {})

    def view(self, stage: str) -> View:
        """Return one stage's nodes and receipts.

        Args:
            stage: name of the stage.

        Returns:
            The view.

        Raises:
            UnknownNameError: the study has no such stage.

        Examples:
            >>> results.view("trace").points
            [(2,), (3,)]
        """
        if stage not in self._views:
            hint = nearest(stage, self._views)
            raise UnknownNameError(
                f"{self.study}: expected one of its stages, got '{stage}'. {hint}"
            )
        return self._views[stage]

    def sel(self, **labels: Label | Iterable[Label]) -> Results:
        """Keep the results at some labels of the study's axes.

        As in xarray, a dimension with a single label is dropped from the Datasets, and
        one with a list of labels stays. Stages without the axis stay as they are; those
        that have it and none of the labels, as of `epoch`, are left out.

        Args:
            labels: axis to label or labels, as in `sel(rule="sgd", seed=[0, 1])`.

        Returns:
            The results that remain, of the same run.

        Raises:
            UnknownNameError: no stage has the axis, or none has a label.

        Examples:
            >>> results.sel(n=3)["trace"].sizes
            Frozen({'probe': 4, 'layer': 1})
        """
        selected, single = copy(self), set(self._single)
        for dim, asked in labels.items():
            if isinstance(asked, str) or not isinstance(asked, Iterable):
                single.add(dim)
                texts = [str(asked)]
            else:
                texts = [str(label) for label in asked]
            selected._views = _where(self.study, selected._views, dim, texts)
        selected._single = frozenset(single)
        return selected

    def to_dataframe(
        self, stage: str, variables: Sequence[str] | None = None
    ) -> DataFrame:
        """Return one stage's results as a pandas.DataFrame, a row as in `records`.

        Args:
            stage: name of the stage.
            variables: which variables; all that tables hold by default.

        Returns:
            Axis labels, status, dims and variables as columns; what a row does not have
            is missing there. `attrs["units"]` holds the units of the variables.

        Raises:
            UnknownNameError: there is no such stage or variable.
            CorruptPayloadError: a result cannot be read.
            RemovedPayloadError: collection has removed a result meanwhile.

        Examples:
            >>> results.to_dataframe("trace", ["num_matvecs"])
               n status  num_matvecs
            0  2     ok            4
            1  3     ok            4
        """
        from curvflow.stores.labelled.datasets import frame  # see `__getitem__`

        rows, view = self.records(stage, variables=variables), self.view(stage)
        known = {v.name: v.units for v in _variables(view)}
        columns = {name: [row.get(name) for row in rows] for name in columns_of(rows)}
        return frame(columns, {name: known[name] for name in columns if name in known})

    def records(
        self,
        stage: str,
        *,
        where: Mapping[str, str] | None = None,
        variables: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return one stage's results as flat records.

        Args:
            stage: name of the stage.
            where: dimension to label, as text; all nodes by default.
            variables: which variables; all that tables hold by default.

        Returns:
            One record per node and element: axis labels, status, dims, variables. The
            time that a node took stands with its single values, or is requested.

        Raises:
            UnknownNameError: there is no such stage, dimension, label or variable.
            CorruptPayloadError: a result cannot be read.
            RemovedPayloadError: collection has removed a result meanwhile.

        Examples:
            >>> results.records("trace", where={"n": "3"}, variables=["num_matvecs"])
            [{'n': 3, 'status': 'ok', 'num_matvecs': 4}]
        """
        view = self.view(stage).where(where or {})
        self.check_variables(stage, variables)
        times = _shown_times(view, variables)
        return view_records(view, self._store, variables or None, times)

    def check_variables(self, stage: str, variables: Sequence[str] | None) -> None:
        """Refuse names of variables that a stage does not declare.

        Args:
            stage: name of the stage.
            variables: the names.

        Raises:
            UnknownNameError: the stage has no such variable.

        Examples:
            >>> results.check_variables("trace", ["trace", "trace_sem"])
        """
        known = [variable.name for variable in _variables(self.view(stage))]
        for name in variables or ():
            if name not in known:
                hint = nearest(name, known)
                raise UnknownNameError(
                    f"{stage}: expected one of its variables, got '{name}'. {hint}"
                )

    def figure(self, stage: str, **labels: Label) -> Picture:
        """Return one figure, which a notebook shows as a picture.

        Args:
            stage: name of the stage that draws it.
            labels: axis to label, where the stage has a figure for each.

        Returns:
            The figure: `caption`, the bytes of its `files`, and `save(path)`.

        Raises:
            UnknownNameError: the stage draws nothing, has no such labels, several
                figures at these, or no result there.
            RemovedPayloadError: collection has removed it.
            StoreError: it cannot be read.

        Examples:
            >>> results.figure("lines").caption
            'Single values.'
        """
        texts = {dim: str(label) for dim, label in labels.items()}
        return read_picture(self.view(stage).where(texts), self._store)

    def verdicts(self, stage: str) -> Counter[str]:
        """Count one stage's estimates by verdict.

        Args:
            stage: name of the stage.

        Returns:
            Such as 9 of `converged`, 2 of `drifting`; empty of a kind that judges
            nothing.

        Raises:
            UnknownNameError: there is no such stage.

        Examples:
            >>> results.verdicts("trace")  # a trace is not judged
            Counter()
        """
        return verdicts(self.view(stage), self._store)

    def made_of(self, stage: str) -> list[str]:
        """Word the unconverged estimates that a table is made of.

        Args:
            stage: name of the table's stage; another is made of none.

        Returns:
            A line for each stage that it takes such estimates of.

        Raises:
            UnknownNameError: there is no such stage.

        Examples:
            >>> results.made_of("lines")  # of nothing that is judged
            []
        """
        return made_of(self.view(stage), self._views.values(), self._store)

    def made_without(self, stage: str) -> list[str]:
        """Word the failed nodes that tables or figures are made without.

        Args:
            stage: name of their stage.

        Returns:
            A line for each stage that they lack nodes of; none if they are complete.

        Raises:
            UnknownNameError: there is no such stage.

        Examples:
            >>> results.made_without("lines")  # complete
            []
        """
        return made_without(self.view(stage))

    def __contains__(self, stage: object) -> bool:
        """Return whether the study has a stage, without reading it."""
        return stage in self._views

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    @property
    def tree(self) -> DataTree:
        """All stages as one xarray.DataTree."""
        from curvflow.stores.labelled.datasets import tree  # see `__getitem__`

        return tree({stage: self[stage] for stage in self})

    def __repr__(self) -> str:
        of = f"run {self.run.number} of " if self.run else ""
        failed = len(self.run.failures) if self.run else 0
        failures = f"; {failed} nodes failed" if failed else ""
        return f"<Results of {of}{self.study}: {', '.join(self._views)}{failures}>"

    def _repr_html_(self) -> str:
        """Return a table of the stages, for notebooks."""
        of = f"run {self.run.number} of " if self.run else ""
        cells = [("stage", "kind", "dimensions", "results")]
        cells += [_cells(view, self._single) for view in self._views.values()]
        rows = [
            _row("td" if n else "th", cells_of_row)
            for n, cells_of_row in enumerate(cells)
        ]
        table = f"<table>{''.join(rows)}</table>"
        html = f"<div><b>Results</b> of {of}{escape(self.study)}{table}</div>"
        return printable(html)


def _where(
    study: str, views: Mapping[str, View], dim: str, texts: Sequence[str]
) -> dict[str, View]:
    """Keep the nodes of all stages at some labels of one axis."""
    selected: dict[str, View] = {}
    refused: list[UnknownNameError] = []
    for stage, view in views.items():
        try:
            selected[stage] = view.where({dim: texts}) if dim in view.dims else view
        except UnknownNameError as error:
            refused.append(error)
    if not any(dim in view.dims for view in selected.values()):
        if refused:
            raise refused[0]
        hint = nearest(dim, {d for view in views.values() for d in view.dims})
        raise UnknownNameError(
            f"{study}: expected an axis of its stages, got '{dim}'. {hint}"
        )
    return selected


def _variables(view: View) -> tuple[Variable, ...]:
    return (*view.kind.outputs, *time_variables(view.kind, view.dims))


def _cells(view: View, single: Collection[str]) -> tuple[str, str, str, str]:
    dims = []
    for n, dim in enumerate(view.dims):
        first, size = (
            view.points[0][n],
            len({typed_label(point[n]) for point in view.points}),
        )
        dims.append(f"{dim} = {first}" if dim in single else f"{dim}: {size}")
    states = ", ".join(f"{n} {status}" for status, n in view.counts().items())
    return view.stage, view.use, ", ".join(dims), states


def _row(tag: str, cells: Sequence[str]) -> str:
    style = ' style="text-align: left"'
    inner = (f"<{tag}{style}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{''.join(inner)}</tr>"


def _shown_times(view: View, names: Sequence[str] | None) -> list[Variable]:
    times = time_variables(view.kind, view.dims)
    if names:
        return [variable for variable in times if variable.name in names]
    # Rows of a table and elements of arrays have no time.
    is_table = issubclass(view.kind.returns, Table)
    has_values = any(not variable.dims for variable in view.kind.chosen())
    return times if has_values and not is_table else []


def _labels(view: View, position: int) -> list[Label]:
    labels = {typed_label(point[position]): point[position] for point in view.points}
    # Nodes whose checkpoints differ do not bring the epochs in order.
    is_epoch = view.dims[position] == "epoch"
    return sorted(labels.values()) if is_epoch else list(labels.values())
