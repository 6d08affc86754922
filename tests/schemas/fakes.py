"""Fake kinds and a study of them, so that tests of the grammar need no others."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal
from unittest import mock

from pydantic import Discriminator, Field, PositiveInt, Tag, model_validator

from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Data, Figure, NodeData, Numbers, Table, Weights
from curvflow.schemas.params import Names, Params
from curvflow.schemas.study import draft, jsonschema
from curvflow.schemas.study.study import Study, load_study

FILE = "study.yaml"
STUDY = """\
study: toys
axes:
  seed: 3
  rule:
    small: {rule: sgd, lr: 0.1, init: {normal: 0.03}}
    large: {rule: adam, lr: 0.001}
stages:
  data: {use: fake.data, path: digits.npz}
  fit:
    use: fake.train
    data: data
    model: {kind: mlp, hidden: [12]}
    rule: "${rule}"
    seed: "${seed}"
    epochs: 500
  trace: {use: fake.probe, weights: fit, at: final, num_probes: 64}
  table: {use: fake.summary, of: [fit, trace], over: seed}
  curve: {use: fake.figure, of: fit, y: loss, x: epoch, label: rule, over: seed}
expect:
  - stage: table
    where: {rule: small}
    quantity: trace
    value: 7.18
    sd: 0.29
    source: Table 1
profiles:
  smoke: {axes.seed: 2, stages.fit.epochs: 400}
"""


class DataParams(Params):
    """Parameters of the fake data."""

    path: str
    split: Annotated[tuple[float, float], Field(strict=False)] = (0.8, 0.2)
    seed: int = 0


class Normal(Params):
    """A form told by its only key."""

    normal: float = Field(gt=0)


class Uniform(Params):
    """Another form told by its only key."""

    uniform: float = Field(gt=0)


def _only_key(value: object) -> str | None:
    return next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else None


class Sgd(Params):
    """A form told by a literal."""

    rule: Literal["sgd"] = "sgd"
    lr: float = Field(gt=0, le=1)
    init: (
        Annotated[
            Annotated[Normal, Tag("normal")] | Annotated[Uniform, Tag("uniform")],
            Discriminator(_only_key),
        ]
        | None
    ) = None


class Adam(Params):
    """Another form told by a literal."""

    rule: Literal["adam"] = "adam"
    lr: float = Field(gt=0)
    beta: float = Field(0.9, ge=0, lt=1)


class Mlp(Params):
    """A model."""

    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]
    activation: Literal["relu", "tanh"] = "relu"
    bias: bool = True


class Linear(Params):
    """A model without a mandatory field."""

    kind: Literal["linear"] = "linear"


class TrainParams(Params):
    """Parameters of the fake training."""

    model: Annotated[Mlp | Linear, Field(discriminator="kind")]
    rule: Annotated[Sgd | Adam, Field(discriminator="rule")]
    seed: int = Field(0, ge=0)
    epochs: int = Field(ge=1)
    every: int = Field(100, ge=1)
    batch: int | Literal["full"] = "full"
    schedule: float | Annotated[Names, Field(min_length=2)] | Normal | Uniform = 1.0
    note: str = Field("", pattern="^[a-z]*$")
    options: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> "TrainParams":
        if self.every > self.epochs:
            raise ValueError(
                f"expected every of at most epochs, got {self.every}. Lower it."
            )
        if self.note == "odd":
            raise ValueError("this is odd")
        return self


class ProbeParams(Params):
    """Parameters of the fake probe."""

    num_probes: int = Field(64, ge=2, multiple_of=2)
    nbeta: float | None = None


class SummaryParams(Params):
    """Parameters of the fake aggregate."""

    over: str | Names
    quantities: Names | None = None


class FigureParams(Params):
    """Parameters of the fake figure."""

    y: str
    x: str = "epoch"
    label: str | None = None
    over: str | Names | None = None


DATA = Kind(
    name="fake.data",
    version=1,
    summary="Data.",
    params=DataParams,
    returns=Data,
    outputs=(Variable("inputs", "points", ("sample",), bulk=True),),
)
TRAIN = Kind(
    name="fake.train",
    version=1,
    summary="Training.",
    params=TrainParams,
    returns=Weights,
    outputs=(
        Variable("loss", "loss per epoch", ("epoch",), series=True),
        Variable("final_loss", "last loss"),
        Variable("weights", "weights", ("checkpoint", "parameter"), bulk=True),
    ),
    inputs={"data": Input(Data)},
    checkpoints=lambda p: range(0, p.epochs + 1, p.every),
)
PROBE = Kind(
    name="fake.probe",
    version=1,
    summary="Probe.",
    params=ProbeParams,
    returns=Numbers,
    outputs=(
        Variable("trace", "trace"),
        Variable("layer", "names", ("layer",), "str"),
    ),
    inputs={"weights": Input(Weights), "data": Input(Data, follows="weights")},
)
AVERAGE = Kind(
    name="fake.average",
    version=1,
    summary="Average weights, of data unknown.",
    params=ProbeParams,
    returns=Weights,
    outputs=(Variable("weights", "weights", ("parameter",), bulk=True),),
    inputs={"of": Input(Weights, many=True)},
)
SUMMARY = Kind(
    name="fake.summary",
    version=1,
    summary="Summary.",
    params=SummaryParams,
    returns=Table,
    outputs=(
        Variable("quantity", "names", ("quantity",), "str"),
        Variable("mean", "mean", ("quantity",)),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over",),
    selects=("quantities",),
)
FIGURE = Kind(
    name="fake.figure",
    version=1,
    summary="Figure.",
    params=FigureParams,
    returns=Figure,
    outputs=(Variable("png", "picture", ("byte",), "uint8", file=".png"),),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over", "label", "x"),
    selects=("y",),
)
ANYTHING = Kind(
    name="fake.anything",
    version=1,
    summary="Takes whatever there is.",
    params=ProbeParams,
    returns=Numbers,
    outputs=(Variable("size", "size"),),
    inputs={"of": Input(NodeData)},
)
KINDS = (DATA, TRAIN, PROBE, AVERAGE, SUMMARY, FIGURE, ANYTHING)


@contextmanager
def fake_kinds() -> Iterator[None]:
    """Make the fake kinds, and no others, known; forget them again."""
    added = {kind.name: kind for kind in sorted(KINDS, key=lambda kind: kind.name)}
    with (
        mock.patch.object(draft, "all_kinds", return_value=added),
        mock.patch.object(draft, "known_kind", added.get),
        mock.patch.object(jsonschema, "all_kinds", return_value=added),
    ):
        yield


def edited(*edits: tuple[str, str], text: str = STUDY) -> str:
    """Replace parts of the study, each of which must be there once."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def load(*edits: tuple[str, str], **how: object) -> Study:
    """Load the study of fake kinds after some edits."""
    return load_study(edited(*edits), file=FILE, **how)  # type: ignore[arg-type]
