"""The variables that data sets and matrices return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from curvflow.errors import InputError
from curvflow.schemas.disk_arrays import DiskArray, as_array, in_memory, rows_of
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds.shared.several_inputs import INPUT_PARTS, pack
from curvflow.schemas.losses import IGNORED
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Neutral, Params

if TYPE_CHECKING:
    Floats = type[np.floating[Any]]
else:  # of annotations alone, for which NumPy need not be loaded
    Floats = Any
OUTPUTS = (
    Variable(
        "inputs",
        "training inputs, one row per sample",
        ("sample", "..."),
        bulk=True,
        or_dtype="int64",
    ),
    Variable(
        "targets",
        "training targets: labels 0..C-1 (sample,) or of each token (sample, token), "
        "-100 for none, or values (sample, output)",
        ("sample", "..."),
        bulk=True,
        or_dtype="int64",
    ),
    Variable(
        "test_inputs",
        "test inputs",
        ("test_sample", "..."),
        bulk=True,
        or_dtype="int64",
    ),
    Variable(
        "test_targets",
        "test targets, like the training targets",
        ("test_sample", "..."),
        bulk=True,
        or_dtype="int64",
    ),
    Variable(
        "num_classes",
        "number of classes; 2 with targets -1 and 1 as values; 0 for regression",
        dtype="int64",
    ),
)


class TargetParams(Params):
    """Meaning of the targets of the user's own arrays."""

    num_classes: Annotated[int | None, Neutral(None)] = Field(
        None,
        ge=2,
        description="C of labels 0..C-1, such as the size of a vocabulary; null takes "
        "those that occur, which may have no gaps",
    )
    targets_as: Annotated[Literal["labels", "values"] | None, Neutral(None)] = Field(
        None,
        description="what the targets are; null takes integers for labels and floats "
        "for values, and asks where floats look like labels",
    )


def dataset_as(
    params: TargetParams, arrays: Mapping[str, Array | Mapping[str, Array]]
) -> dict[str, Array]:
    """Do as `dataset`, with the targets for what the parameters say.

    Args:
        params: what the targets are.
        arrays: arguments of `dataset` by name; inputs may be several, by name.

    Returns:
        The variables of `OUTPUTS`.

    Raises:
        InputError: shapes, types, NaN or labels do not fit, or floats look like labels.
    """
    arrays, several = _packed(arrays)
    targets = {n: in_memory(arrays[n]) for n in arrays if n.endswith("targets")}
    given, has_classes = targets["targets"], params.num_classes is not None
    if params.targets_as is None and (
        _look_like_labels(given) or (has_classes and _are_whole(given))
    ):
        raise InputError(
            "targets: expected labels as integers, or values, got the whole numbers "
            f"{int(given.min())}..{int(given.max())} as floats. Give "
            "integers, or say which they are by targets_as: labels or values."
        )
    if params.targets_as is not None:
        as_asked = _as_labels if params.targets_as == "labels" else _as_values
        targets = {name: as_asked(name, array) for name, array in targets.items()}
    whole = dataset_of(np.float64, params.num_classes, **{**arrays, **targets})
    return whole | several


def _packed(
    arrays: Mapping[str, Array | Mapping[str, Array]],
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return arrays with several inputs side by side, and the layout of these."""
    packed: dict[str, Array] = {}
    forms: dict[str, str] = {}
    for name, given in arrays.items():
        if isinstance(given, Mapping):
            packed[name], forms[name] = pack(name, given)
        else:
            packed[name] = given
    sets = [name for name in arrays if name.endswith("inputs")]
    if forms and (len(forms) < len(sets) or len(set(forms.values())) > 1):
        raise InputError(
            "test_inputs: expected inputs of the names, shapes and types of the "
            "training inputs, got others. Return both sets alike."
        )
    return packed, {INPUT_PARTS: np.array(forms["inputs"])} if forms else {}


def _look_like_labels(targets: Array) -> bool:
    """Return whether floats are 0..C-1 without gaps, each several times on average.

    Several a sample may be labels of tokens, but 0 and 1 alone columns of classes; one
    in another column is a value.
    """
    if targets.dtype.kind != "f" or targets.ndim not in (1, 2) or len(targets) < 4:
        return False
    if targets.ndim == 2 and targets.shape[1] < 2:
        return False
    values = np.unique(targets)
    is_a_range = np.array_equal(values, np.arange(len(values)))
    least = 2 if targets.ndim == 1 else 3
    return len(values) >= least and is_a_range and 2 * len(values) <= targets.size


def _are_whole(targets: Array) -> bool:
    """Return whether floats, one a sample, are whole numbers of 0 or more."""
    if targets.dtype.kind != "f" or targets.ndim != 1 or not len(targets):
        return False
    return bool((targets >= 0).all() and (targets == np.rint(targets)).all())


def _as_labels(name: str, array: Array) -> Array:
    if array.dtype.kind == "f" and not np.array_equal(array, np.rint(array)):
        raise InputError(
            f"{name}: expected whole numbers as labels, got others. "
            "Round them, or set targets_as to values."
        )
    return _converted(name, array, np.dtype(np.int64))


def _as_values(name: str, array: Array) -> Array:
    return _converted(name, array, np.dtype(np.float64))


def _converted(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Return targets of another type; InputError where they would not be the same."""
    if array.dtype.kind == "c":
        raise InputError(
            f"{name}: expected real numbers, got dtype {array.dtype}. Give real and "
            "imaginary part as two values."
        )
    try:
        return array.astype(dtype)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name}: expected numbers as labels or values, got dtype {array.dtype} "
            f"({error}). Number the classes from 0."
        ) from error


def dataset(
    inputs: Array,
    targets: Array,
    test_inputs: Array | None = None,
    test_targets: Array | None = None,
) -> dict[str, Array]:
    """Check a data set and bring it into the form that every consumer takes.

    Args:
        inputs: shape (N, ...), numbers.
        targets: integer labels (N,) or of tokens (N, T), or floats (N,) or (N, C).
        test_inputs: like the inputs, or None.
        test_targets: like the targets, or None.

    Returns:
        The variables of `OUTPUTS`: inputs, whole numbers (int64) or float64; labels
        (N,) or values (N, C), float64, or labels of tokens, int64; the test arrays have
        no rows if there are none.

    Raises:
        InputError: shapes, types, NaN or labels do not fit.
    """
    return dataset_of(np.float64, None, inputs, targets, test_inputs, test_targets)


def dataset_of(
    dtype: Floats,
    num_classes: int | None,
    /,
    inputs: Array,
    targets: Array,
    test_inputs: Array | None = None,
    test_targets: Array | None = None,
) -> dict[str, Array]:
    """Do as `dataset`, with inputs of a given precision, and known classes.

    Args:
        dtype: of inputs that are no whole numbers; images take float32, half the room.
        num_classes: that the samples are of, though some may not occur; if None, what
            occurs says it.
        inputs: shape (N, ...), numbers.
        targets: integer labels (N,) or of tokens (N, T), or floats (N,) or (N, C).
        test_inputs: like the inputs, or None.
        test_targets: like the targets, or None.

    Returns:
        The variables of `OUTPUTS`.

    Raises:
        InputError: shapes, types, NaN or labels do not fit.
    """
    x, y = _inputs("inputs", inputs, dtype), _targets("targets", targets)
    _check_lengths("targets", x, y, least=2)
    x_test, y_test = x[:0], y[:0]
    if test_inputs is not None and test_targets is not None:
        x_test = _inputs("test_inputs", test_inputs, dtype)
        y_test = _targets("test_targets", test_targets)
        _check_lengths("test_targets", x_test, y_test, least=0)
        _check_alike("test_inputs", x_test, x)
        _check_alike("test_targets", y_test, y)
    num_classes = _num_classes(y, y_test, num_classes)
    return {
        "inputs": x,
        "targets": y,
        "test_inputs": x_test,
        "test_targets": y_test,
        "num_classes": np.array(num_classes, dtype=np.int64),
    }


def _inputs(name: str, array: Array, dtype: Floats) -> Array:
    if array.ndim < 2:
        raise InputError(
            f"{name}: expected shape (samples, ...), got {array.shape}. "
            "Reshape a single feature to (samples, 1)."
        )
    # Whole numbers may be tokens, which floats would not be.
    whole = array.dtype.kind in "iu" and array.dtype.itemsize > 1
    return _integers(name, array) if whole else _finite(name, array, dtype)


def _integers(name: str, array: Array) -> Array:
    if (
        array.dtype == np.uint64
        and array.size
        and array.max(initial=0) > np.iinfo(np.int64).max
    ):
        raise InputError(
            f"{name}: expected integers below 2^63, got {array.max(initial=0)}. "
            "Number them from 0, or give floats."
        )
    if isinstance(array, DiskArray):
        return as_array(array.astype(np.dtype(np.int64)))
    return np.ascontiguousarray(array, dtype=np.int64)


def _finite(name: str, array: Array, dtype: Floats | None = None) -> Array:
    dtype = dtype or np.float64
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{name}: expected real numbers, got dtype {array.dtype}. "
            "Encode it as numbers."
        )
    if isinstance(array, DiskArray):
        plain, bad = as_array(array.astype(np.dtype(dtype))), array.num_not_finite()
    else:
        plain = np.ascontiguousarray(array, dtype=dtype)
        bad = int(plain.size - np.isfinite(plain).sum())
    if bad:
        raise InputError(
            f"{name}: expected finite numbers, got {bad} NaN or infinite of "
            f"{plain.size}. Remove or fill them."
        )
    return plain


def _targets(name: str, array: Array) -> Array:
    if array.dtype.kind in "iub":
        if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] < 2):
            raise InputError(
                f"{name}: expected integer labels of shape (samples,) or (samples, "
                f"tokens), or floats, got {array.dtype} of shape {array.shape}. "
                "Reshape labels of samples to (samples,)."
            )
        return np.ascontiguousarray(array, np.float64 if array.ndim == 1 else np.int64)
    plain = _finite(name, array)
    if plain.ndim not in (1, 2):
        raise InputError(
            f"{name}: expected shape (samples,) or (samples, outputs), "
            f"got {plain.shape}. Reshape them."
        )
    return plain[:, np.newaxis] if plain.ndim == 1 else plain


def _check_lengths(name: str, x: Array, y: Array, *, least: int) -> None:
    if len(x) != len(y):
        raise InputError(
            f"{name}: expected {len(x)} rows as its inputs, got {len(y)}. "
            "Return a target for each row."
        )
    if len(x) < least:
        raise InputError(
            f"inputs: expected at least {least} samples, got {len(x)}. Take more data."
        )


def _check_alike(name: str, test: Array, train: Array) -> None:
    if test.shape[1:] != train.shape[1:]:
        raise InputError(
            f"{name}: expected rows of shape {train.shape[1:]} as in training, "
            f"got {test.shape[1:]}. Return both sets alike."
        )


def is_ignored(targets: Array) -> Array:
    """Return which labels stand for none, of the shape of the targets."""
    ignored: Array = (targets == IGNORED) & has_labels(targets)
    return ignored


def has_tokens(targets: Array) -> bool:
    """Return whether targets are labels of tokens, (N, T)."""
    # NumPy's name of the type, which tensors have too.
    return targets.ndim == 2 and str(targets.dtype).endswith("int64")


def has_labels(targets: Array) -> bool:
    """Return whether targets are labels, of samples or of tokens, and no values."""
    return targets.ndim == 1 or has_tokens(targets)


def _num_classes(y: Array, y_test: Array, given: int | None) -> int:
    if not has_labels(y):
        if given is not None:
            return given
        return 2 if y.shape[1] == 1 and set(np.unique(y)) == {-1.0, 1.0} else 0
    labels = np.union1d(y, y_test).astype(np.int64)
    labels = labels[labels != IGNORED]
    if not len(labels):
        raise InputError(
            f"targets: expected labels that count, got {IGNORED} alone. "
            "Give labels from 0."
        )
    if given is not None:
        if len(labels) and not 0 <= labels[0] <= labels[-1] < given:
            wrong = labels[0] if labels[0] < 0 else labels[-1]
            raise InputError(
                f"targets: expected integer labels 0..{given - 1}, got {wrong}. Raise "
                "num_classes, or relabel them."
            )
        return given
    if labels[0] != 0 or labels[-1] != len(labels) - 1:
        listed = ", ".join(map(str, labels[:12])) + (
            ", ..." if len(labels) > 12 else ""
        )
        raise InputError(
            f"targets: expected integer labels 0..{len(labels) - 1} without gaps, "
            f"got {listed}. Give num_classes, relabel them, or give floats for "
            "regression."
        )
    return len(labels)


def latest(by: Array, count: int) -> Array:
    """Return which rows are held out of those split by time.

    Args:
        by: the time of each row.
        count: rows to be held out.

    Returns:
        The latest rows, and all that are as late as the first of them.
    """
    if not count:
        return np.zeros(len(by), dtype=bool)
    late: Array = by >= np.sort(by)[len(by) - count]
    return late


def split(arrays: Mapping[str, Array], order: Array, num_test: int) -> dict[str, Array]:
    """Part one set of samples into training and test.

    Args:
        arrays: `inputs` and `targets`.
        order: a permutation of the samples.
        num_test: how many of the first in that order become the test set.

    Returns:
        The four arrays that `dataset` takes.
    """
    return parted(arrays, order[num_test:], order[:num_test])


def parted(arrays: Mapping[str, Array], train: Array, test: Array) -> dict[str, Array]:
    """Return the four arrays of the samples that are trained on and held out."""
    return {
        "inputs": rows_of(arrays["inputs"], train),
        "targets": arrays["targets"][train],
        "test_inputs": rows_of(arrays["inputs"], test),
        "test_targets": arrays["targets"][test],
    }


MATRIX_OUTPUTS = (
    Variable("form", "dense, sparse or kernel", dtype="str"),
    Variable("dense", "the entries", ("row", "column"), bulk=True),
    Variable("indptr", "where each row begins", ("row_end",), dtype="int64", bulk=True),
    Variable("indices", "column of each entry", ("entry",), dtype="int64", bulk=True),
    Variable("values", "the entries that are not zero", ("entry",), bulk=True),
    Variable(
        "points", "the points of a kernel matrix", ("point", "coordinate"), bulk=True
    ),
    Variable("kernel", "JSON of the function of two points", dtype="str"),
    Variable("size", "rows, D", dtype="int64"),
)


def matrix(form: str, size: int, **arrays: Array) -> dict[str, Array]:
    """Return the variables of `OUTPUTS`.

    Args:
        form: `dense`, `sparse` or `kernel`.
        size: rows, D.
        **arrays: what the form uses.

    Returns:
        These, and arrays without elements for the rest.
    """
    empty = {
        "dense": np.zeros((0, 0)),
        "indptr": np.zeros(0, dtype=np.int64),
        "indices": np.zeros(0, dtype=np.int64),
        "values": np.zeros(0),
        "points": np.zeros((0, 0)),
        "kernel": np.array(""),
    }
    scalars = {"form": np.array(form), "size": np.array(size, dtype=np.int64)}
    return {**empty, **arrays, **scalars}


def check_split(group: str | None, time: str | None, test_fraction: float) -> None:
    """Check how samples are held out: by group or by time, and some of them.

    Args:
        group: name of what stays on one side of the split, if it is by that.
        time: name of what orders the samples, of which the last are held out.
        test_fraction: share to be held out.

    Raises:
        ValueError: a split by both, or one that holds out nothing.
    """
    if group is not None and time is not None:
        raise ValueError("group cannot be combined with time. Remove one of them.")
    if (group or time) and not test_fraction:
        raise ValueError(
            f"{'group' if group else 'time'} cannot be combined with test_fraction 0. "
            "Set the share to be held out."
        )
