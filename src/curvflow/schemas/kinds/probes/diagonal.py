"""Declaration of `probe.diagonal`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.operators import UNITS
from curvflow.schemas.kinds.shared.vectors import VectorsParams, vector_inputs
from curvflow.schemas.nodes import Array, Numbers


class DiagonalParams(VectorsParams):
    """Vectors and batches, and the error at which they end."""


def _entries(name: str, description: str) -> Variable:
    return Variable(name, description, ("parameter",), units=UNITS, bulk=True)


def _truth(
    _: DiagonalParams, matrix: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    diagonal, sizes = matrix.diagonal(), result["layer_size"]
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(diagonal, starts) / sizes
    return {"diagonal": diagonal, "layer_diagonal_mean": means}


KIND = Kind(
    name="probe.diagonal",
    version=2,
    summary="Diagonal of a curvature operator, with an error of each entry.",
    params=DiagonalParams,
    returns=Numbers,
    outputs=(
        _entries("diagonal", "entries A_ii, in the order of the parameters; unbiased"),
        _entries("diagonal_sem", "standard error of each entry"),
        _entries("diagonal_low", "lower ends of intervals of 95 %, each for an entry"),
        _entries("diagonal_high", "upper ends of these intervals"),
        Variable(
            "relative_error",
            "root of the sum of squared standard errors, by the norm of the diagonal",
        ),
        Variable(
            "reached", "whether relative_error is as small as rel_sem", dtype="bool"
        ),
        Variable("layer", "names of the parameter tensors", ("layer",), "str"),
        Variable(
            "layer_size",
            "entries of each parameter tensor; they follow each other in the diagonal",
            ("layer",),
            "int64",
        ),
        Variable(
            "layer_diagonal_mean",
            "mean of the entries of each parameter tensor",
            ("layer",),
            units=UNITS,
        ),
        Variable(
            "layer_diagonal_sem",
            "standard error of each mean; of vectors for all data a bound, which is "
            "too large by at most √2",
            ("layer",),
            units=UNITS,
        ),
        Variable(
            "layer_diagonal_mean_low",
            "lower ends of intervals of 95 %, each for a mean; of vectors for all data "
            "by that bound",
            ("layer",),
            units=UNITS,
        ),
        Variable(
            "layer_diagonal_mean_high",
            "upper ends of these intervals",
            ("layer",),
            units=UNITS,
        ),
        Variable(
            "num_matvecs",
            "work: products with the operator; of batches, rounded up to as many over "
            "all data",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("relative_error",),
    inputs=vector_inputs(),
    varying=("seed",),
    truth=_truth,
    truth_of="matrix",
)

EXPLANATION = Explanation(
    formula=(
        "A_ii ≈ Σ_s z_i (Az)_i / Σ_s z_i²; per batch: Σ_b (n_b/N) z_i (A_b z)_i, two "
        "z for each batch"
    ),
    source=(
        "Bekas, Kokiopoulou and Saad (2007), doi:10.1016/j.apnum.2007.01.003; Cochran "
        "(1977), *Sampling Techniques*, chapter 2, for batches"
    ),
    cost=(
        "num_probes products; per batch, as many with the matrix of batch_size "
        "samples; with rel_sem up to max_probes"
    ),
    example=TRAINED
    + """\
  diagonal: {use: probe.diagonal, weights: fit, operator: ggn, rel_sem: 0.1}
""",
    page="traces.md#the-diagonal",
)
