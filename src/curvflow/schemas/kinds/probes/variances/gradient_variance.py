"""Declaration of `probe.gradient_variance`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from curvflow.schemas.checks.samples import num_training, too_few
from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import NetworkModeParams
from curvflow.schemas.nodes import Array, Data, Numbers, Weights

UNITS = "(loss / parameter)^2"


class GradientVarianceParams(NetworkModeParams):
    """Over which samples, and for batches of which size."""

    batch_size: int = Field(
        1,
        ge=1,
        description="samples per batch, B, of the gradient whose variance is "
        "estimated; in mode train they meet in it",
    )
    num_samples: int | None = Field(
        None,
        ge=2,
        description="samples used, drawn without replacement; null takes all of them",
    )
    seed: int = Field(
        0,
        ge=0,
        description="seed of which samples are used, and of batches and masks in mode "
        "train",
    )
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the gradients"
    )


def _lacking_samples(params: Any, name: str, data: Any) -> Iterator[ParamProblem]:
    """Yield more samples than there are, and batches too large for two of them."""
    yield from too_few(params, name, data)
    count = num_training(data)
    if count is None:
        return
    if (params.num_samples or 0) > count:
        message = f"expected at most the {count} samples of '{name}', got "
        yield ("num_samples",), message + str(params.num_samples), "Lower it."
    half = (params.num_samples or count) // 2
    if params.mode == "train" and half < params.batch_size:
        message = f"expected at most {half}, half of the samples used, with mode train,"
        hint = "Lower it: a variance needs two batches."
        yield ("batch_size",), f"{message} got {params.batch_size}", hint


def _truth(
    params: GradientVarianceParams, gradients: Array, _: Mapping[str, Array]
) -> dict[str, Array]:
    if params.mode == "train":  # gradients of samples that met are others
        return {}
    return {"gradient_variance": gradients.var(0, ddof=1).sum()}


KIND = Kind(
    name="probe.gradient_variance",
    version=4,
    summary="Variance of the loss gradient between samples and between batches.",
    params=GradientVarianceParams,
    returns=Numbers,
    outputs=(
        Variable(
            "gradient_variance",
            "sum over parameters of the variance between samples, S^2, of divisor "
            "N - 1; unbiased",
            units=UNITS,
            judged_by="enough_samples",
        ),
        Variable(
            "gradient_variance_sem",
            "its standard error; 0 if all samples were used, NaN if those are alike",
            units=UNITS,
        ),
        Variable(
            "gradient_variance_low", "lower end of an interval of 95 %", units=UNITS
        ),
        Variable(
            "gradient_variance_high", "upper end of an interval of 95 %", units=UNITS
        ),
        Variable(
            "enough_samples",
            "whether ten or more samples make up S^2, or, in mode eval, all were used: "
            "the square of their squared distances' sum by the sum of the squares; "
            "else a few have most of it, and the interval may not hold: take more. In "
            "mode train batches count, which could be others where all samples were "
            "used, and fewer than ten are never enough: take a smaller batch_size",
            dtype="bool",
        ),
        Variable(
            "batch_gradient_variance",
            "the same of a batch's mean gradient, drawn without replacement: "
            "(1/B - 1/N) S^2; in mode train and the part of S^2 by masks, over N",
            units=UNITS,
            judged_by="enough_samples",
        ),
        Variable(
            "gradient_squared_norm",
            "||g||^2 of the mean gradient over all samples; unbiased",
            units=UNITS,
        ),
        Variable(
            "noise_scale",
            "S^2 / ||g||^2: the batch at which noise and gradient are equal",
            units="samples",
            judged_by="enough_samples",
        ),
        Variable("layer", "names of the parameter tensors", ("layer",), "str"),
        Variable(
            "layer_gradient_variance",
            "part of S^2 of each parameter tensor",
            ("layer",),
            units=UNITS,
            judged_by="enough_samples",
        ),
        Variable("num_samples_used", "samples used, n", dtype="int64"),
    ),
    accelerated=True,
    main=("gradient_variance", "gradient_variance_sem"),
    inputs={
        "weights": Input(Weights),
        "data": Input(Data, follows="weights", by_rows=True, lacking=_lacking_samples),
    },
    varying=("seed",),
    truth=_truth,
    truth_of="gradients",
)

EXPLANATION = Explanation(
    formula=(
        "S² = Σ_j Var(∂ℓ/∂w_j) over samples, of divisor N - 1; of a batch (1/B - "
        "1/N) S²; noise_scale = S² / ‖g‖²"
    ),
    source="none: sample variances, as written",
    cost="the gradient of every sample used: one pass over the data",
    example=TRAINED
    + """\
  noise: {use: probe.gradient_variance, weights: fit, batch_size: 32}
""",
    page="traces.md#variances-between-samples",
)
