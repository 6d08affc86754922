"""The input of Kronecker factors that stand for the operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from curvflow.schemas.kind import Input, ParamProblem, Shares
from curvflow.schemas.kinds.shared.operators import Lacking
from curvflow.schemas.nodes import Factors


def _of_other_layers(params: Any, name: str, factors: Any) -> Iterator[ParamProblem]:
    """Yield that factors are of other parameter tensors than the operator."""
    wanted, given = params.layers, getattr(factors, "layers", None)
    if wanted != given:
        message = f"expected factors of {_named(wanted)}, got '{name}' of "
        hint = f"Give '{name}' the same layers."
        yield ("preconditioner",), f"{message}{_named(given)}", hint


def _named(layers: Sequence[str] | None) -> str:
    return "all layers" if layers is None else f"layers {', '.join(layers)}"


def preconditioner_input(*settled: str, lacking: Lacking | None = None) -> Input:
    """Return the input of the factors of the network that an operator is of.

    Args:
        settled: parameters that it leaves no say.
        lacking: yields what else does not go with the factors.
    """

    def problems(params: Any, name: str, factors: Any) -> Iterator[ParamProblem]:
        yield from _of_other_layers(params, name, factors)
        if lacking is not None:
            yield from lacking(params, name, factors)

    return Input(
        Factors,
        optional=True,
        excludes=("matrix", "graph", "factors", "ritz"),
        settles=settled,
        lacking=problems,
        shares=Shares("", inputs=("weights", "data")),
    )
