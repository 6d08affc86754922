"""Declaration of `probe.landscape`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import ModeParams, unknown_layers
from curvflow.schemas.nodes import Data, Eigenvectors, Landscape, Trajectory, Weights
from curvflow.schemas.params import Names, Neutral

# Behind the name of a direction whose slice is not taken about the weights.
ABOUT_ZERO = " about zero"

Directions = Literal["eigenvectors", "stored", "random", "trajectory"]


class LandscapeParams(ModeParams):
    """Along what, how far, at how many points."""

    directions: Directions = Field(
        "eigenvectors",
        description="eigenvectors: unit ones of the Hessian, of largest magnitude; "
        "stored: those of `eigen`, a probe.eigenvalues with eigenvectors: true; "
        "random: filters of the weights' norms; trajectory: principal directions of "
        "the checkpoints of `trajectory`, whose farthest is at step 1",
    )
    num_directions: int = Field(2, ge=1, description="lines, one for each direction")
    plane: bool = Field(False, description="also the plane of the first two directions")
    distance: float = Field(1.0, gt=0, description="largest step either way")
    num_points: int = Field(
        21, ge=3, le=1001, description="steps along a line; a plane has its square"
    )
    biases: bool = Field(
        False,
        description="random directions also move biases, and the scales and shifts of "
        "norm layers, each as one filter",
    )
    layers: Annotated[Names | None, Neutral(None)] = Field(
        None,
        min_length=1,
        description="parameter tensors, by name or pattern such as layer1.*, that "
        "directions move: eigenvectors are of their diagonal block; null moves all",
    )
    layer_each: Annotated[bool, Neutral(False)] = Field(
        False,
        description="the k-th direction, a random one, moves the tensors of the k-th "
        "entry of layers alone",
    )
    centre: Annotated[Literal["weights", "zero"], Neutral("weights")] = Field(
        "weights",
        description="of the slices: the weights, or zero in every tensor that moves "
        "and the weights in all others",
    )
    oversampling: int = Field(
        8, ge=0, description="further columns iterated, for eigenvectors"
    )
    tol: float = Field(
        1e-6,
        gt=0,
        lt=1,
        description="residual allowed of eigenvectors, relative to the eigenvalue",
    )
    max_iterations: int = Field(
        500, ge=1, description="products with the block, for eigenvectors"
    )
    seed: int = Field(
        0,
        ge=0,
        description="seed of random directions, of the first block, and of masks in "
        "mode train",
    )
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of losses and products"
    )

    @model_validator(mode="after")
    def _has_a_plane(self) -> LandscapeParams:
        if self.plane and self.num_directions < 2:
            raise ValueError(
                "expected num_directions of at least 2 with plane, got 1. Raise it."
            )
        return self

    @model_validator(mode="after")
    def _moves_some_layers(self) -> LandscapeParams:
        fixed = self.directions in ("stored", "trajectory")
        if fixed and (self.layers is not None or self.centre == "zero"):
            name = "centre zero" if self.layers is None else "layers"
            raise ValueError(
                f"{name} cannot be combined with directions {self.directions}, which "
                "are of all weights, from where they are. Take random or eigenvectors."
            )
        return self

    @model_validator(mode="after")
    def _has_a_layer_for_each(self) -> LandscapeParams:
        if not self.layer_each:
            return self
        if self.directions != "random":
            raise ValueError(
                f"layer_each cannot be combined with directions {self.directions}. "
                "Take random."
            )
        if len(self.layers or ()) != self.num_directions:
            raise ValueError(
                f"expected layers with an entry for each of {self.num_directions} "
                f"directions with layer_each, got {len(self.layers or ())}. Set as "
                "many layers as num_directions."
            )
        return self


def _follows_training(params: Any) -> bool:
    return bool(params.directions == "trajectory")


def _takes_eigenvectors(params: Any) -> bool:
    return bool(params.directions == "stored")


def _too_few(params: Any, name: str, eigen: Any) -> Iterator[ParamProblem]:
    count, given = params.num_directions, getattr(eigen, "k", None)
    if given and count > given:
        message = f"expected at most the {given} eigenvectors of '{name}', got {count}"
        yield ("num_directions",), message, f"Lower it, or raise k of '{name}'."


def _line(name: str, description: str, units: str = "loss") -> Variable:
    dims = ("direction", "step")
    return Variable(name, description, dims, units=units, series=True)


def _plane(name: str, description: str) -> Variable:
    about = f"{description}, in the plane of the first two directions; or empty"
    return Variable(name, about, ("first", "second"), units="loss", bulk=True)


KIND = Kind(
    name="probe.landscape",
    version=2,
    summary="Slices of training and test loss, with the quadratic model.",
    params=LandscapeParams,
    returns=Landscape,
    outputs=(
        Variable("direction", "1 is the first", ("direction",), dtype="int64"),
        Variable("other", "the same, of a second one", ("other",), dtype="int64"),
        Variable("along", "kind of each direction", ("direction",), dtype="str"),
        Variable(
            "direction_norm",
            "length of a step of 1",
            ("direction",),
            units="parameter",
        ),
        Variable("step", "multiples of the direction", ("step",), series=True),
        _line("train_loss", "mean loss of the training samples, infinite or NaN kept"),
        _line("test_loss", "the same of the test samples; NaN without any"),
        _line("train_accuracy", "share of training samples that are right", "1"),
        _line("test_accuracy", "share of test samples that are right", "1"),
        _plane("plane_train_loss", "mean loss of the training samples"),
        _plane("plane_test_loss", "mean loss of the test samples"),
        Variable("centre_train_loss", "training loss at step 0", units="loss"),
        Variable("centre_test_loss", "test loss at step 0", units="loss"),
        Variable(
            "slope",
            "derivative of the training loss by the step, at 0",
            ("direction",),
            units="loss",
        ),
        Variable(
            "curvature",
            "second derivatives of the training loss by two steps, at 0",
            ("direction", "other"),
            units="loss",
        ),
        Variable(
            "rayleigh",
            "curvature along a unit step, the Rayleigh quotient of the Hessian",
            ("direction",),
            units="loss / parameter^2",
        ),
        Variable(
            "residuals",
            "||Hd - rayleigh d|| / ||d||; 0 for an eigenvector",
            ("direction",),
            units="loss / parameter^2",
        ),
        Variable(
            "converged",
            "whether an eigenvector's residual is within tol; true for others",
            ("direction",),
            dtype="bool",
        ),
        Variable(
            "checkpoint",
            "epochs of the trajectory",
            ("checkpoint",),
            dtype="int64",
            units="epoch",
            series=True,
        ),
        Variable(
            "path",
            "steps of the checkpoints, projected",
            ("checkpoint", "direction"),
            series=True,
        ),
        Variable(
            "explained",
            "share of the checkpoints' squared distances along it; NaN for others",
            ("direction",),
        ),
        Variable(
            "num_nonfinite", "losses on the slices that are not finite", dtype="int64"
        ),
        Variable("num_matvecs", "work: products with the Hessian", dtype="int64"),
        Variable("num_evaluations", "work: points evaluated", dtype="int64"),
    ),
    accelerated=True,
    inputs={
        "weights": Input(Weights, lacking=unknown_layers),
        "data": Input(Data, follows="weights", by_rows=True),
        "trajectory": Input(Trajectory, optional=True, wanted=_follows_training),
        "eigen": Input(
            Eigenvectors,
            optional=True,
            wanted=_takes_eigenvectors,
            keeps="eigenvectors",
            lacking=_too_few,
        ),
    },
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "L(w + t d), beside its quadratic model L(w) + t g.d + t² d.Hd / 2; planes "
        "likewise of two directions"
    ),
    source=(
        "Li, Xu, Taylor, Studer and Goldstein (2018), arXiv:1712.09913, sections 4 "
        "and 7"
    ),
    cost=(
        "num_directions · num_points passes over training and test data, "
        "num_points² more with plane; one gradient, a product per direction, and "
        "those that find eigenvectors (num_matvecs)"
    ),
    example=TRAINED
    + """\
  slices: {use: probe.landscape, weights: fit, directions: random,
           num_points: 11}
""",
    page="landscape.md",
    units={"distance": "step", "num_points": "step"},
)
