"""The folder of a monitor: its numbers, and what the next measurement begins with.

`monitor.npz` holds an array for each variable and the identity as JSON, and
`state.npz` the weights and vectors of the last measurement. Each is replaced at once,
numbers first: what is killed between the two loses the start of the next measurement.
`llc-3.npz` holds the weights of a request at step 3, with the same identity, for it may
be there before any numbers are.
`Records` are the measurements along steps, and `Requests` the learning coefficients
that are not yet estimated, of a monitor in the loop those that the process of an
earlier program did not live to answer.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from curvflow.errors import InputError, StoreError
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds.monitor.read import IDENTITY, KIND
from curvflow.schemas.nodes import Array
from curvflow.stores.files import NO_ARRAYS, Disk, disk_errors

NUMBERS, STATE = "monitor.npz", "state.npz"
# In a file of weights, none of whose names begins with a dot.
_IDENTITY = f".{IDENTITY}"
# The step of `llc_at` that they are for, which the loop may have passed over.
NAMED = ".llc_at"


def write(path: Path, arrays: Mapping[str, Array]) -> None:
    """Replace a file of arrays at once; a kill leaves the old one.

    Args:
        path: of the file, whose folder is made if there is none.
        arrays: by name.

    Raises:
        StoreError: it cannot be written.
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    disk, partial = Disk(), path.with_name(f".{path.name}.{uuid4().hex}")
    content = buffer.getvalue()
    with disk_errors(path, len(content)):
        try:
            disk.make_folder(path.parent)
            disk.write(partial, content)
            disk.flush(partial)
            disk.rename(partial, path)
            disk.flush(path.parent)
        finally:
            disk.remove(partial)


def read(path: Path) -> dict[str, Array]:
    """Return the arrays of a file.

    Args:
        path: of the file.

    Raises:
        StoreError: there is none, or it holds no arrays.
    """
    try:
        with disk_errors(path), np.load(path, allow_pickle=False) as loaded:
            return dict(loaded)
    except (TypeError, OSError, *NO_ARRAYS) as error:
        raise StoreError(
            f"{path}: expected a file that a curvflow.Monitor has written, got "
            "another. Name the folder that was its store."
        ) from error


def numbers_file(path: str | Path) -> Path:
    """Return the file with the numbers of a folder, or the file itself."""
    path = Path(path).expanduser()
    return path / NUMBERS if path.suffix != ".npz" else path


class _Absent:
    """A setting that one side lacks; it equals none that the other has."""

    def __str__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def check_identity(there: Mapping[str, Array], here: Mapping[str, Any]) -> None:
    """Refuse numbers that were measured in another way.

    Args:
        there: arrays that are kept, with their identity.
        here: the identity of the monitor that would go on with them.

    Raises:
        InputError: they differ; the first difference is named.
    """
    kept = json.loads(str(there[IDENTITY])) if IDENTITY in there else {}
    if kept == json.loads(json.dumps(here)):
        return
    flat_there, flat_here = _flat(kept), _flat(here)
    for name in [*flat_here, *flat_there]:
        before, now = flat_there.get(name, _ABSENT), flat_here.get(name, _ABSENT)
        if before != now:
            raise InputError(
                f"store: expected measurements of the same kind, got {name} {before} "
                f"there and {now} here. Name another folder, or take the settings that "
                "are kept there."
            )


def _flat(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


Row = Mapping[str, Any]
# What stands for a number that a measurement lacks, by type.
_LACKING: dict[str, Any] = {"float64": np.nan, "int64": 0, "bool": False, "str": ""}


class Records:
    """Rows along a dimension, each of them a measurement, in ascending order.

    Attributes:
        along: the dimension, `step` or `llc_step`.
        rows: numbers by name.
    """

    def __init__(self, along: str, rows: Iterable[Row] = ()) -> None:
        """Take the dimension and the rows there are."""
        self.along, self.rows = along, list(rows)

    @property
    def last(self) -> int | None:
        """Step of the last row; None without rows."""
        return int(self.rows[-1][self.along]) if self.rows else None

    def add(self, row: Row) -> None:
        """Put a row between those of earlier and of later steps."""
        step = int(row[self.along])
        earlier = [each for each in self.rows if each[self.along] < step]
        later = [each for each in self.rows if each[self.along] > step]
        self.rows = [*earlier, row, *later]

    def cut(self, step: int) -> None:
        """Remove the rows from a step on."""
        self.rows = [row for row in self.rows if row[self.along] < step]

    def arrays(self) -> dict[str, Array]:
        """Return the variables of all rows, those that some row has."""
        present = {name for row in self.rows for name in row} | {self.along}
        variables = [v for v in KIND.outputs if v.name in present]
        return {v.name: _column(v, self.rows) for v in variables}

    @classmethod
    def of(cls, along: str, arrays: Mapping[str, Array]) -> Records:
        """Return the records that arrays hold.

        Args:
            along: the dimension.
            arrays: of a file, by name.
        """
        names = [
            v.name for v in KIND.outputs if v.name in arrays and v.dims[:1] == (along,)
        ]
        count = len(arrays[along]) if along in arrays else 0
        columns = {name: arrays[name] for name in names}
        return cls(along, [{n: c[i] for n, c in columns.items()} for i in range(count)])

    def plain(self) -> list[dict[str, Any]]:
        """Return the rows as numbers, texts and lists of Python's, for a checkpoint."""
        return [
            {n: np.asarray(v).tolist() for n, v in row.items()} for row in self.rows
        ]


def _column(variable: Variable, rows: Sequence[Row]) -> Array:
    lacking = _LACKING[variable.dtype]
    width = {len(r[variable.name]) for r in rows if np.ndim(r.get(variable.name, 0))}
    if width:
        lacking = np.full(width.pop(), lacking)
    values = [row.get(variable.name, lacking) for row in rows]
    dtype = np.str_ if variable.dtype == "str" else variable.dtype
    return np.array(values, dtype=dtype)


Weights = Mapping[str, Any]


class Estimate(NamedTuple):
    """Numbers by name, of a step of the loop."""

    step: int
    numbers: Mapping[str, Any]


class Requests(ABC):
    """Requests in order.

    Attributes:
        weights: of the requests that are not answered, by step.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        """Take no requests yet.

        Args:
            folder: keeps the weights of those to come; None keeps none.
            identity: of the monitor, kept with them.
        """
        self.weights: dict[int, Weights] = {}
        self._folder, self._identity = folder, json.dumps(identity)

    def add(self, step: int, weights: Weights) -> None:
        """Take a request behind the others.

        Args:
            step: of the loop.
            weights: tensors on the CPU, by name.

        Raises:
            StoreError: the weights cannot be written.
        """
        self.weights[step] = weights
        if self._folder is not None:
            arrays = {name: np.asarray(tensor) for name, tensor in weights.items()}
            arrays[_IDENTITY] = np.array(self._identity)
            write(self._folder / kept_as(step), arrays)

    def cut(self, step: int) -> None:
        """Give up the requests from a step on."""
        for late in [each for each in self.weights if each >= step]:
            self.forget(late)

    def forget(self, step: int) -> None:
        """Remove the weights of a request, whose numbers are kept."""
        del self.weights[step]
        if self._folder is not None:
            (self._folder / kept_as(step)).unlink(missing_ok=True)

    @abstractmethod
    def answers(self, *, wait: bool = False) -> Iterator[Estimate]:
        """Yield the estimates that are there, or wait for all."""


class InLoop(Requests):
    """Requests that are answered as soon as answers are requested."""

    def __init__(
        self,
        estimate: Callable[[Weights], Mapping[str, Any]],
        folder: Path | None,
        identity: Mapping[str, Any],
    ) -> None:
        """Take no requests yet.

        Args:
            estimate: from weights to numbers by name.
            folder: keeps the weights; None keeps none.
            identity: of the monitor, kept with them.
        """
        super().__init__(folder, identity)
        self._estimate = estimate

    def answers(self, *, wait: bool = False) -> Iterator[Estimate]:
        """Yield the estimates of all."""
        del wait
        for step, weights in sorted(self.weights.items()):
            yield Estimate(step, self._estimate(weights))


def kept_as(step: int) -> str:
    """Return the name of the file with the weights of a request."""
    return f"llc-{step}.npz"


def kept_in(
    folder: Path, last: int | None, steps: Collection[int], identity: Mapping[str, Any]
) -> Mapping[int, Weights]:
    """Return the weights of requests that a program did not live to answer.

    Args:
        folder: the store of a monitor.
        last: step that it goes on from; requests behind it are given up. None
            takes all.
        steps: those that it requests coefficients at; others are given up.
        identity: of the monitor.

    Raises:
        InputError: they are requests of a monitor of other settings.
        StoreError: a file is none of a monitor.
    """
    paths = {int(path.stem[4:]): path for path in folder.glob("llc-*.npz")}
    kept = {step: read(path) for step, path in sorted(paths.items())}
    for arrays in kept.values():
        here = {IDENTITY: arrays.pop(_IDENTITY)} if _IDENTITY in arrays else {}
        check_identity(here, identity)
    # None is removed before all are known to be this monitor's.
    for step in [*kept]:
        named = int(kept[step].get(NAMED, step))
        if named not in steps or (last is not None and step > last):
            paths[step].unlink()
            del kept[step]
    return kept
