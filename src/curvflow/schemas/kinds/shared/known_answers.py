"""Models and truths of which the learning coefficient is known."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.models import ModelSpec, model_name
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.mlp import Mlp
from curvflow.schemas.models.normal_crossing import NormalCrossing
from curvflow.schemas.models.quadratic_well import QuadraticWell
from curvflow.schemas.params import Params

Known = DeepLinear | Mlp | NormalCrossing | QuadraticWell


class KnownAnswerParams(Params):
    """A model, and the rank of the truth."""

    model: ModelSpec = Field(
        description="deep_linear, quadratic_well, normal_crossing, or an mlp of one "
        "layer of tanh units without biases"
    )
    rank: int = Field(
        0,
        ge=0,
        description="r, of the matrix that is true of deep_linear, whose first r "
        "diagonal entries are 1, all others 0; of tanh units 0 or all of them are "
        "true; of other models 0 is true",
    )


def known(params: KnownAnswerParams) -> Known:
    """Return the model, of which the answer is known.

    Args:
        params: model and rank.

    Returns:
        The specification.

    Raises:
        ValueError: no answer is known of it, or none for that rank.
    """
    model = params.model
    if not isinstance(model, Known) or not _is_known(model):
        raise ValueError(
            "expected deep_linear, quadratic_well, normal_crossing, or an mlp with "
            "one hidden layer, activation tanh and bias false, and without dropout "
            f"and linear layers, got {_described(model)}. Take one of these models."
        )
    _refuse_unknown_rank(model, params.rank)
    return model


def _refuse_unknown_rank(model: Known, rank: int) -> None:
    if rank == 0 or isinstance(model, DeepLinear):
        return
    expected = f"rank 0 with {model.kind}, of which 0 is true"
    if isinstance(model, Mlp):
        units = model.hidden[0]
        if rank == units:
            return
        expected = f"rank 0 or {units} with {model.kind}, none of its units or all"
    raise ValueError(f"expected {expected}, got {rank}. Take such a rank.")


def same_truth(model: Known) -> str:
    """Describe what models of one truth have in common, at any widths."""
    match model:
        case NormalCrossing():
            count = len(model.powers)
        case QuadraticWell():
            count = len(model.eigenvalues)
        case _:
            return f"a model of kind {model.kind}"
    return f"a quadratic_well or normal_crossing with outputs: {count}"


def refuse_rank_above(width: int, rank: int) -> None:
    """Refuse a truth that no product through so few units has.

    Args:
        width: the least of a deep linear model.
        rank: of the truth.

    Raises:
        ValueError: the rank exceeds it.
    """
    if rank > width:
        raise ValueError(
            f"expected a rank of at most {width}, the least width, got {rank}. Lower "
            "it, or widen the model."
        )


def _is_known(model: Known) -> bool:
    if not isinstance(model, Mlp):
        return True
    is_plain = not (model.bias or model.dropout or model.linear_layers)
    return is_plain and model.activation == "tanh" and len(model.hidden) == 1


def _described(model: object) -> str:
    return "another mlp" if isinstance(model, Mlp) else str(model_name(model))
