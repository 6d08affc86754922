"""Declaration of `probe.factor_error`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Shares, Variable
from curvflow.schemas.kinds.shared.operators import UNITS
from curvflow.schemas.nodes import Array, Data, Factors, Numbers, Weights
from curvflow.schemas.params import Params

_BLOCK, _DAMPING = ("block",), ("damping",)

# What factors with the same blocks have in common.
_SAME_BLOCKS = (
    "curvature", "structure", "kfac_approx", "separate_weight_and_bias", "other",
    "layers",
)  # fmt: skip


class FactorErrorParams(Params):
    """The matrix that factors stand for, the vectors, and dampings."""

    operator: Literal["ggn", "fisher_type2", "fisher_empirical", "hessian"] = Field(
        "ggn", description="matrix G that the factors are held against"
    )
    num_probes: int = Field(
        32,
        ge=2,
        description="random vectors on each block; each takes a product for each block",
    )
    dampings: list[Annotated[float, Field(gt=0)]] = Field(
        [0.01],
        min_length=1,
        description="added to G and K, for determinants and extreme eigenvalues",
    )
    num_runs: int = Field(4, ge=2, description="Lanczos runs for each damping")
    num_steps: int = Field(30, ge=2, description="products of each run")
    seed: int = Field(0, ge=0, description="seed of the vectors")
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the products"
    )


def _estimated(
    name: str,
    description: str,
    dims: tuple[str, ...] = (),
    units: str = "1",
    *,
    optional: bool = False,
) -> tuple[Variable, ...]:
    described = {
        name: description,
        f"{name}_sem": "standard error over the vectors",
        f"{name}_low": "lower end of an interval of 95 %",
        f"{name}_high": "upper end of an interval of 95 %",
    }
    return tuple(
        Variable(each, text, dims, units=units, optional=optional)
        for each, text in described.items()
    )


def _split(name: str, description: str) -> tuple[Variable, ...]:
    """Return a part of `within`, with `exact`, and the same of each block."""
    of_block = description.replace("||G||_F^2", "||G_l||_F^2")
    return (
        *_estimated(name, f"{description}; with exact", optional=True),
        *_estimated(f"block_{name}", f"{of_block}; with exact", _BLOCK, optional=True),
    )


def _drawn(params: Any, name: str, taken: Any) -> Iterator[ParamProblem]:
    """Yield why factors are not those that nothing is drawn or left out of."""
    if taken.fisher_type != "type-2":
        message = f"expected fisher_type type-2 of '{name}', got {taken.fisher_type}"
        yield ("exact",), message, "Take factors of all roots."


def _truth(
    params: FactorErrorParams, factors: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    """Return what the numbers truly are, but for the parts that need `exact`."""
    whole, numbers, kept = factors  # G, the numbers of its blocks, K
    inside, eye, square = numbers >= 0, np.eye(len(whole)), (whole**2).sum()
    masks = [numbers.diagonal() == number for number in range(int(numbers.max()) + 1)]
    blocks = [[matrix[at][:, at] for matrix in (whole, kept)] for at in masks]
    damped = [[matrix + d * eye for matrix in (whole, kept)] for d in params.dampings]
    logdets = [[np.linalg.slogdet(matrix)[1] for matrix in both] for both in damped]
    spectra = [np.linalg.eigvals(np.linalg.solve(k, g)).real for g, k in damped]
    ends = {
        name: np.array(
            [
                values[np.abs(values - end).argmin()]
                for values, end in zip(spectra, result[name], strict=True)
            ]
        )
        for name in ("least", "greatest")
    }
    return {
        "rel_error": _apart(whole, kept),
        "outside": (whole[~inside] ** 2).sum() / square,
        "within": ((whole - kept)[inside] ** 2).sum() / square,
        "cosine": _cosine(whole, kept),
        "trace_error": np.trace(whole - kept),
        "block_rel_error": np.array([_apart(*both) for both in blocks]),
        "block_cosine": np.array([_cosine(*both) for both in blocks]),
        "block_trace_error": np.array([np.trace(g - k) for g, k in blocks]),
        "logdet_error": np.array([of_g - of_k for of_g, of_k in logdets]),
        **ends,
    }


def _apart(whole: Array, kept: Array) -> Any:
    return np.linalg.norm(whole - kept) / np.linalg.norm(whole)


def _cosine(whole: Array, kept: Array) -> Any:
    return (whole * kept).sum() / np.linalg.norm(whole) / np.linalg.norm(kept)


KIND = Kind(
    name="probe.factor_error",
    version=3,
    summary="How far Kronecker factors are from the matrix, by block and in total.",
    params=FactorErrorParams,
    returns=Numbers,
    outputs=(
        *_estimated("rel_error", "||G - K||_F / ||G||_F, of all of G"),
        *_estimated("outside", "share of ||G||_F^2 outside all blocks"),
        *_estimated("within", "share of ||G||_F^2 by which blocks differ from K"),
        *_estimated("cosine", "<G, K> / (||G||_F ||K||_F)"),
        *_estimated("trace_error", "tr G - tr K", units=UNITS),
        Variable("block", "names of the blocks", _BLOCK, "str"),
        *_estimated("block_rel_error", "||G_l - K_l||_F / ||G_l||_F", _BLOCK),
        *_estimated("block_cosine", "<G_l, K_l> / (||G_l||_F ||K_l||_F)", _BLOCK),
        *_estimated("block_trace_error", "tr G_l - tr K_l", _BLOCK, UNITS),
        *_split(
            "factorisation", "share of ||G||_F^2 by which blocks differ from exact, E"
        ),
        *_split(
            "departure",
            "share of ||G||_F^2 by which E differs from K: what a recursion leaves "
            "out, or the noise of labels drawn or of projections",
        ),
        *_split(
            "interplay",
            "share of ||G||_F^2 of twice the inner product of both differences: within "
            "is the sum of the three, up to the vectors",
        ),
        Variable("damping", "added to G and K", _DAMPING, units="as the eigenvalues"),
        Variable("logdet", "log det(K + damping), exact", _DAMPING),
        *_estimated(
            "logdet_error", "log det(G + damping) - log det(K + damping)", _DAMPING
        ),
        Variable(
            "converged",
            "whether the quadrature of logdet_error is off by less than the vectors",
            _DAMPING,
            dtype="bool",
        ),
        Variable(
            "least",
            "smallest Ritz value of P^-1/2 (G + damping) P^-1/2, P = K + damping: an "
            "upper bound of the smallest eigenvalue",
            _DAMPING,
        ),
        Variable(
            "least_residual",
            "an eigenvalue is that near",
            _DAMPING,
            error_of="least",
        ),
        Variable("greatest", "largest Ritz value: a lower bound", _DAMPING),
        Variable(
            "greatest_residual",
            "an eigenvalue is that near",
            _DAMPING,
            error_of="greatest",
        ),
        Variable("num_matvecs", "work: products with G", dtype="int64"),
    ),
    accelerated=True,
    main=("rel_error", "rel_error_sem", "cosine"),
    inputs={
        "factors": Input(Factors, shares=Shares("", inputs=("weights", "data"))),
        "exact": Input(
            Factors,
            optional=True,
            lacking=_drawn,
            shares=Shares("factors", inputs=("weights", "data"), params=_SAME_BLOCKS),
        ),
        "weights": Input(Weights, follows="factors"),
        "data": Input(Data, follows="factors", by_rows=True),
    },
    varying=("seed",),
    truth=_truth,
    truth_of="factors",
)

EXPLANATION = Explanation(
    formula=(
        "z zero but on block l: E‖(Gz)_l‖² = ‖G_l‖², E‖(G - K)_l z‖² = ‖G_l - K_l‖², "
        "and the rest of ‖Gz‖² lies outside the blocks; with exact E, ‖G_l - K_l‖² = "
        "‖G_l - E_l‖² + ‖E_l - K_l‖² + 2 ⟨G_l - E_l, E_l - K_l⟩"
    ),
    source=(
        "Hutchinson (1989), doi:10.1080/03610918908812806, of squares; Golub and "
        "Meurant (2010) for determinants"
    ),
    cost=(
        "num_probes · blocks products with G, and num_runs · num_steps for each damping"
    ),
    example=TRAINED
    + """\
  factors: {use: probe.factors, weights: fit}
  far: {use: probe.factor_error, factors: factors, dampings: [0.1, 0.001]}
""",
    page="kronecker.md#how-good-they-are",
    units={"dampings": "as the eigenvalues"},
)
