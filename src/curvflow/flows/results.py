"""Results as xarray sees them: one Dataset per stage, read when looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import RemovedPayloadError, UnknownNameError, nearest
from curvflow.flows.outputs import view_records
from curvflow.flows.views import View, told
from curvflow.schemas.nodes import Label, Table
from curvflow.schemas.receipts import RunRecord
from curvflow.schemas.times import time_variables
from curvflow.schemas.variables import Variable
from curvflow.stores.base import Store

if TYPE_CHECKING:
    from curvflow.stores.labelled import Dataset, DataTree


class Results(Mapping[str, "Dataset"]):
    """The results of a study, by stage.

    `results["stage"]` is an xarray.Dataset whose leading dimensions are the stage's
    axes. Arrays are read from the store when they are looked at, and verified.

    Attributes:
        study: name of the study.
        run: the run that left them; None for the study as it stands.
        files: tables and figures that the run wrote out.
        revived: per stage the number of results that the run computed again after
            collection, their digests being equal; 0 if that was asked for in vain.
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
        from curvflow.stores.labelled import labelled

        view = self.view(stage)
        if view.counts()["removed"]:
            raise RemovedPayloadError(stage)
        coords = {
            dim: _labels(view, position) for position, dim in enumerate(view.dims)
        }
        at = [{told(label): i for i, label in enumerate(coords[d])} for d in view.dims]
        cells = {
            tuple(own[told(label)] for own, label in zip(at, point, strict=True)): n
            for n, point in enumerate(view.points)
        }
        return labelled(
            self._store,
            dims=view.dims,
            coords=coords,
            cells={cell: view.receipts[n] for cell, n in cells.items()},
            statuses={cell: view.status(n) for cell, n in cells.items()},
            outputs=view.kind.outputs,
            times=time_variables(view.kind, view.dims),
            attrs=self._attributes(view),
        )

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
        """
        if stage not in self._views:
            hint = nearest(stage, self._views)
            raise UnknownNameError(f"no stage '{stage}' in {self.study}. {hint}")
        return self._views[stage]

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
            time that a node took stands beside its single values, or is asked for.

        Raises:
            UnknownNameError: there is no such stage, dimension, label or variable.
            CorruptPayloadError: a result cannot be read.
            RemovedPayloadError: collection has removed a result meanwhile.
        """
        view = self.view(stage).where(where or {})
        self.check_variables(stage, variables)
        times = _told_times(view, variables)
        return view_records(view, self._store, variables or None, times)

    def check_variables(self, stage: str, variables: Sequence[str] | None) -> None:
        """Refuse names of variables that a stage does not declare.

        Args:
            stage: name of the stage.
            variables: the names.

        Raises:
            UnknownNameError: the stage has no such variable.
        """
        view = self.view(stage)
        told = (*view.kind.outputs, *time_variables(view.kind, view.dims))
        known = [variable.name for variable in told]
        for name in variables or ():
            if name not in known:
                hint = nearest(name, known)
                raise UnknownNameError(f"{stage}: no variable '{name}'. {hint}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    @property
    def tree(self) -> DataTree:
        """All stages as one xarray.DataTree."""
        from curvflow.stores.labelled import tree  # see `__getitem__`

        return tree({stage: self[stage] for stage in self})

    def __repr__(self) -> str:
        of = f"run {self.run.number} of " if self.run else ""
        failed = len(self.run.failures) if self.run else 0
        told = f"; {failed} nodes failed" if failed else ""
        return f"<Results of {of}{self.study}: {', '.join(self._views)}{told}>"


def _told_times(view: View, names: Sequence[str] | None) -> list[Variable]:
    times = time_variables(view.kind, view.dims)
    if names:
        return [variable for variable in times if variable.name in names]
    # Rows of a table and elements of arrays have no time of their own.
    is_table = issubclass(view.kind.returns, Table)
    has_values = any(not one.dims for one in view.kind.chosen())
    return times if has_values and not is_table else []


def _labels(view: View, position: int) -> list[Label]:
    found = {told(point[position]): point[position] for point in view.points}
    # Nodes whose checkpoints differ do not bring the epochs in order.
    is_epoch = view.dims[position] == "epoch"
    return sorted(found.values()) if is_epoch else list(found.values())
