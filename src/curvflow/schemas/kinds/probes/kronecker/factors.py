"""Declaration of `probe.factors`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.idle_settings import Idle, idle_setting
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import (
    UNITS,
    no_likelihood,
    unknown_layers,
)
from curvflow.schemas.nodes import Data, Factors, Weights
from curvflow.schemas.params import Names, Params

FisherType = Literal[
    "type-2", "mc", "recursive", "projection", "empirical", "forward-only"
]

# Those that are drawn at random, and those without the Hessian by the outputs.
_DRAWN = ("mc", "projection")
_WITHOUT_HESSIAN = ("mc", "empirical", "forward-only")

# Forms that are of the block itself, whatever the two factors are.
_OF_BLOCKS = ("kfoc", "block", "diag")

# What follows from layer to layer has no roots of single samples.
_OF_ROOTS = ("ekfac", "kfoc", "diag")


class FactorsParams(Params):
    """The matrix, and the form in which it is kept."""

    curvature: Literal["ggn", "hessian"] = Field(
        "ggn",
        description="matrix whose blocks are looked at: ggn, generalised Gauss-Newton "
        "or Fisher; hessian, of dense layers one after another, by a recursion",
    )
    fisher_type: FisherType = Field(
        "type-2",
        description="what goes back through the network: type-2, all roots of each "
        "sample's output matrix (KFLR); mc, gradients at labels drawn from the model "
        "(K-FAC); recursive, means from layer to layer (KFRA); projection, random "
        "combinations of the roots; empirical, gradients at the labels given; "
        "forward-only, nothing, with I in its place",
    )
    psd: Literal["refuse", "clip", "abs", "fisher"] = Field(
        "refuse",
        description="where the Hessian of the loss by the outputs is indefinite, as of "
        "gaussian: refuse it; clip negative eigenvalues to 0; take their magnitudes, "
        "abs; or take the fisher matrix of the loss",
    )
    structure: Literal["kron", "ekfac", "kfoc", "block", "diag"] = Field(
        "kron",
        description="form of a layer's block: kron, product of two means; ekfac, the "
        "same with exact second moments along its eigenvectors; kfoc, the closest "
        "product; block, the block itself; diag, its diagonal",
    )
    kfac_approx: Literal["expand", "reduce"] = Field(
        "expand",
        description="of a layer used at several positions of a sample, tokens or "
        "pixels: expand counts each by itself; reduce takes a sample's sum",
    )
    separate_weight_and_bias: bool = Field(
        False, description="a bias has a block of its own, not a column of the weight"
    )
    mc_samples: int = Field(
        1, ge=1, description="labels drawn per sample, or combinations of projection"
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of the coefficients of projection"
    )
    other: Literal["block", "diag", "refuse"] = Field(
        "block",
        description="form of parameters that are in no dense layer, convolution or "
        "embedding, such as the scales of a norm: their exact block, its diagonal, or "
        "a refusal",
    )
    layers: Names | None = Field(
        None,
        min_length=1,
        description="parameter tensors, by name or pattern such as layer1.*; null "
        "takes all",
    )
    seed: int = Field(0, ge=0, description="seed of labels and coefficients drawn")
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the derivatives"
    )

    @model_validator(mode="after")
    def _fitting(self) -> FactorsParams:
        recursion = self.fisher_type == "recursive" or self.curvature == "hessian"
        if self.curvature == "hessian" and self.fisher_type != "type-2":
            raise ValueError(
                f"curvature hessian cannot be combined with fisher_type "
                f"{self.fisher_type}, which is of the ggn. Remove fisher_type."
            )
        if recursion and self.structure in _OF_ROOTS:
            what = "hessian" if self.curvature == "hessian" else "recursive"
            raise ValueError(
                f"structure {self.structure} cannot be combined with {what}, which has "
                "no gradients of samples. Take kron, or fisher_type type-2."
            )
        if self.fisher_type == "recursive" and self.structure != "kron":
            raise ValueError(
                "structure block cannot be combined with recursive, whose means are "
                "products. Take kron, or fisher_type type-2."
            )
        if self.fisher_type == "forward-only" and self.structure != "kron":
            raise ValueError(
                f"structure {self.structure} cannot be combined with forward-only, "
                "which has no gradients. Take kron, or another fisher_type."
            )
        return self

    def idle_settings(self) -> Iterator[Idle]:
        """Yield those for other values of fisher_type, or of structure."""
        kind = f"fisher_type {self.fisher_type}"
        if self.fisher_type not in _DRAWN:
            cause = f"{kind}, which draws nothing"
            yield idle_setting(
                self, "mc_samples", cause, "fisher_type mc or projection"
            )
        if self.fisher_type != "projection":
            cause = f"{kind}, which has no coefficients"
            yield idle_setting(self, "distribution", cause, "fisher_type projection")
        if self.fisher_type in _WITHOUT_HESSIAN:
            cause = f"{kind}, which takes no Hessian by the outputs"
            yield idle_setting(
                self, "psd", cause, "fisher_type type-2, recursive or projection"
            )
        if self.structure in _OF_BLOCKS:
            cause = f"structure {self.structure}, which is of the block itself"
            yield idle_setting(self, "kfac_approx", cause, "structure kron or ekfac")

    @property
    def looks_at_layers(self) -> bool:
        """True if they are for some forms of layers alone."""
        is_recursive = self.fisher_type == "recursive" or self.curvature == "hessian"
        return is_recursive or self.other == "refuse" or self.kfac_approx == "reduce"


def _lacking(params: Any, name: str, training: Any) -> Iterator[ParamProblem]:
    if params.fisher_type == "mc":
        yield from no_likelihood(params, "fisher_type", name, training)
    yield from unknown_layers(params, name, training)


def _of_blocks(
    name: str, description: str, units: str = "1", dtype: str = "float64"
) -> Variable:
    return Variable(name, description, ("block",), dtype=dtype, units=units)


def _bulk(name: str, description: str, dim: str, units: str = "1") -> Variable:
    return Variable(name, description, (dim,), units=units, bulk=True)


def _ritz(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("run", "node"), units=units, series=True)


KIND = Kind(
    name="probe.factors",
    version=6,
    summary="Kronecker factors of curvature, layer by layer, by their eigenpairs.",
    params=FactorsParams,
    returns=Factors,
    outputs=(
        Variable(
            "trace",
            "sum of the eigenvalues of all blocks",
            units=UNITS,
            judged_by="converged",
        ),
        Variable(
            "frobenius",
            "root of the sum of their squares",
            units=UNITS,
            judged_by="converged",
        ),
        Variable("least", "smallest eigenvalue", units=UNITS),
        Variable("greatest", "largest eigenvalue", units=UNITS),
        _of_blocks(
            "block", "names of the parameter tensors of each block", dtype="str"
        ),
        _of_blocks("block_trace", "trace of the block", UNITS),
        _of_blocks("block_norm", "Frobenius norm of the block", UNITS),
        _of_blocks("groups", "groups of the weight, each with factors", dtype="int64"),
        _of_blocks("left_size", "rows of the weight in a group", dtype="int64"),
        _of_blocks(
            "right_size", "columns of the weight, one more for a bias", dtype="int64"
        ),
        _of_blocks("num_uses", "uses of the weight in a pass", dtype="int64"),
        _of_blocks(
            "left_rel_sem",
            "standard error of the factor of the rows over samples, relative to its "
            "Frobenius norm; NaN of blocks that are no product of two means",
        ),
        _of_blocks(
            "right_rel_sem", "the same of the factor of the columns, the inputs"
        ),
        _of_blocks(
            "label_rel_sem",
            "part of it that is due to drawn labels; NaN of one draw, and where none "
            "are drawn",
        ),
        _ritz("ritz_values", "all eigenvalues, ascending, as a single run", UNITS),
        _ritz("ritz_weights", "1 / D each"),
        replace(
            _ritz("ritz_residuals", "rounding of the decompositions", UNITS),
            error_of="ritz_values",
        ),
        Variable("size", "parameters in blocks, D", dtype="int64"),
        replace(
            _bulk("columns", "places of the parameters of each block", "entry"),
            dtype="int64",
        ),
        _bulk("values", "eigenvalues in the order of columns", "entry", UNITS),
        _bulk("left_vectors", "eigenvectors of the rows, as columns", "left_entry"),
        _bulk("right_vectors", "of the columns of the weight", "right_entry"),
        _bulk("left_values", "eigenvalues of the left factor; NaN of none", "row"),
        _bulk("right_values", "eigenvalues of the right factor; NaN of none", "column"),
        Variable(
            "converged",
            "whether the iterations of kfoc have ended by themselves; true of others",
            dtype="bool",
        ),
        Variable(
            "num_backward",
            "work: derivatives back of each sample, in all sweeps; none of a recursion "
            "over dense layers one after another",
            dtype="int64",
        ),
        Variable("num_matvecs", "products with the network: none", dtype="int64"),
    ),
    accelerated=True,
    main=("trace", "greatest"),
    inputs={
        "weights": Input(Weights, lacking=_lacking),
        "data": Input(Data, follows="weights", by_rows=True),
    },
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "block ≈ L ⊗ R, row by row: L = mean Σ l lᵀ of what comes back, R = mean of "
        "r rᵀ of what goes in"
    ),
    source=(
        "Martens and Grosse (2015), arXiv:1503.05671; Botev, Ritter and Barber (2017), "
        "arXiv:1706.03662; George et al. (2018), arXiv:1806.03884; Eschenhagen et al. "
        "(2023), arXiv:2311.00636; Koroko et al. (2022), arXiv:2201.10285"
    ),
    cost=(
        "a pass forward and one back for each root or draw, in one sweep over the "
        "data, two for ekfac, two for each iteration of kfoc; rows³ and columns³ of "
        "each layer"
    ),
    example=TRAINED
    + """\
  factors: {use: probe.factors, weights: fit, structure: ekfac}
  dimension:
    {use: probe.effective_dimension, ritz: factors, prior_precision: [0.01]}
""",
    page="kronecker.md",
)
