"""Arguments of the library's methods, checked as the parameters of a study are."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypedDict, TypeVar

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.idle_settings import idle_settings
from curvflow.schemas.kinds.probes.kronecker.factors import FisherType
from curvflow.schemas.params import Params

P = TypeVar("P", bound=Params)

# Openings of pydantic's messages, in front of what is expected.
_BOUND = re.compile("^Input should be (?=greater|less)")
_FORM = re.compile("^(Input should be|Tuple should have) ")


class SpectrumSettings(TypedDict, total=False):
    """Further parameters of `probe.spectrum`; `curvflow kinds` explains them."""

    reorthogonalize: Literal["full", "none"]
    zero_width: float
    degenerate_nodes: int


class FitSettings(TypedDict, total=False):
    """Further parameters of `probe.logdet` of Ritz data."""

    floor: float | None
    num_moments: int | None
    basis: Literal["chebyshev", "legendre", "power"]
    prior: Literal["auto", "flat", "log", "arcsine"]


class LogdetSettings(FitSettings, total=False):
    """Further parameters of `probe.logdet` of an operator."""

    distribution: Literal["rademacher", "gaussian"]
    rel_error: float | None
    reorthogonalize: Literal["full", "none"]
    rank: int
    num_blocks: int
    known_moments: bool
    compare: bool


class FactorsSettings(TypedDict, total=False):
    """Parameters of `probe.factors`."""

    curvature: Literal["ggn", "hessian"]
    fisher_type: FisherType
    psd: Literal["refuse", "clip", "abs", "fisher"]
    structure: Literal["kron", "ekfac", "kfoc", "block", "diag"]
    kfac_approx: Literal["expand", "reduce"]
    separate_weight_and_bias: bool
    mc_samples: int
    distribution: Literal["rademacher", "gaussian"]
    other: Literal["block", "diag", "refuse"]
    layers: Sequence[str] | None
    seed: int
    dtype: Literal["float32", "float64"]


def checked(model: type[P], **fields: Any) -> P:
    """Return the parameters of a probe.

    Args:
        model: their model.
        **fields: what they are; the rest keeps its default.

    Returns:
        The parameters.

    Raises:
        InputError: one is unknown or out of its range; it is named.
    """
    plain = {name: _plain(value) for name, value in fields.items()}
    try:
        params = model(**plain)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise InputError(
                f"{name}: expected one of {', '.join(model.model_fields)}, got {name}. "
                "Remove it."
            ) from None
        message = first["msg"].removeprefix("Value error, ")
        message = _BOUND.sub("expected a value ", message)
        message = _FORM.sub("expected ", message)
        if first["type"] == "value_error":
            raise InputError(f"{name}: {message}" if name else message) from None
        raise InputError(
            f"{name}: {message}, got {first['input']!r}. Pass another value."
        ) from None
    for idle in idle_settings(params):
        if not idle.is_default:
            raise InputError(f"{idle.message(str(idle.value))}. {idle.hint}")
    return params


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, which models take."""
    return value.item() if isinstance(value, np.generic) else value


def number(name: str, given: Any) -> float:
    """Return an argument that is one number.

    Args:
        name: of the argument.
        given: what it is.

    Raises:
        InputError: it is none.
    """
    if not isinstance(given, str | bytes):
        # Of arrays and tensors of several numbers, and of what is no number.
        with suppress(TypeError, ValueError, RuntimeError, OverflowError):
            return float(given)
    raise InputError(f"{name}: expected a number, got {short(given)}. Pass one.")


def numbers(name: str, given: Any) -> Tensor:
    """Return an argument that is an array of numbers; those of lists in float64.

    Args:
        name: of the argument.
        given: what it is.

    Raises:
        InputError: it is none.
    """
    try:
        is_array = isinstance(given, Tensor | np.ndarray)
        return torch.as_tensor(
            given, dtype=None if is_array else torch.float64
        ).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(
            f"{name}: expected numbers, got {short(given)}. Pass a tensor."
        ) from None


def short(given: Any) -> str:
    """Return what an argument is, for a message."""
    return (reprlib.repr(given).splitlines() or [type(given).__name__])[0]


def precisions(given: float | Iterable[float]) -> tuple[float, ...]:
    """Return prior precisions as a tuple of floats, of one number as well.

    Args:
        given: a number, or several.

    Raises:
        InputError: they are none.
    """
    try:
        numbers = np.atleast_1d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(
            f"prior_precision: expected a number or several, got {given!r}. Pass "
            "numbers above 0."
        ) from None
    return tuple(numbers.tolist())
