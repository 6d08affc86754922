"""Parameters of probes: the curvature matrix, Lanczos runs, and what spectra allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from curvflow.errors import nearest
from curvflow.schemas.kind import Input, ParamProblem, Shares, Variable
from curvflow.schemas.losses import has_likelihood, loss_name
from curvflow.schemas.nodes import Data, Factors, Graph, Matrix, Ritz, Weights
from curvflow.schemas.params import Names, Neutral, Params

UNITS = "loss / parameter^2"
FEW = 12  # names that a message lists

# Traces of diagonal blocks by the vectors of the whole.
LAYER_TRACES = (
    Variable("layer", "names of the parameter tensors", ("layer",), "str"),
    Variable(
        "layer_trace",
        "trace of the diagonal block of each parameter tensor, same vectors",
        ("layer",),
        units=UNITS,
    ),
    Variable(
        "layer_trace_sem", "standard error of each block", ("layer",), units=UNITS
    ),
    Variable(
        "layer_trace_low",
        "lower ends of intervals of 95 %, each for a block; NaN of too few "
        "signs, and of fewer than 21 of which the draws of the block agree",
        ("layer",),
        units=UNITS,
    ),
    Variable(
        "layer_trace_high",
        "upper ends of these intervals",
        ("layer",),
        units=UNITS,
    ),
)

OperatorName = Literal[
    "hessian",
    "ggn",
    "fisher_type2",
    "fisher_mc",
    "fisher_empirical",
    "residual",
    "gradient_covariance",
]
GraphOperatorName = Literal[
    "normalized_laplacian",
    "laplacian",
    "adjacency",
    "normalized_adjacency",
    "signless_laplacian",
    "modularity",
    "bethe_hessian",
]
AnyOperatorName = Literal[OperatorName, GraphOperatorName]
GRAPH_OPERATORS: tuple[GraphOperatorName, ...] = get_args(GraphOperatorName)
NORMALIZED = ("normalized_laplacian", "normalized_adjacency")
OrderName = Literal[
    "forward_over_reverse",
    "reverse_over_reverse",
    "retained",
    "linearised",
    "auto",
]


# Second moments of the gradients of samples.
OF_SAMPLES = ("fisher_empirical", "gradient_covariance")


class NetworkModeParams(Params):
    """The mode of a network, as it is used or as it is trained."""

    mode: Annotated[Literal["eval", "train"], Neutral("eval")] = Field(
        "eval",
        description="of the network: eval, as it is used; train, with the statistics "
        "of each batch in batch norms, differentiated through, and with dropout, one "
        "mask per batch",
    )


class ModeParams(NetworkModeParams):
    """The same, and the batches of training."""

    train_batch_size: Annotated[int | None, Neutral(None)] = Field(
        None,
        ge=1,
        description="samples of these batches, taken in the order of the data; null "
        "takes all samples as one batch",
    )
    seed: int = Field(0, ge=0, description="seed of all that is drawn")

    @model_validator(mode="after")
    def _batches_of_training(self) -> ModeParams:
        if self.mode == "eval" and self.train_batch_size is not None:
            raise ValueError(
                "train_batch_size cannot be combined with mode eval. Remove "
                "train_batch_size, or set mode to train."
            )
        return self


class OperatorParams(ModeParams):
    """Matrix of the mean loss over the data, whole or the block of some layers.

    A matrix that is data itself is taken as it is; of a graph one is made.
    """

    operator: Annotated[AnyOperatorName, Neutral("hessian")] = Field(
        "hessian",
        description="of the mean training loss: hessian; ggn, generalised "
        "Gauss-Newton; fisher_type2, over the model's own labels; fisher_mc, over "
        "labels drawn from it; fisher_empirical, over the labels given; residual, "
        "hessian minus ggn; "
        "gradient_covariance, of the samples' gradients about their mean; of a graph "
        "normalized_laplacian, if none is named, or laplacian, adjacency, "
        "normalized_adjacency, signless_laplacian, modularity, bethe_hessian",
    )
    isolated: Annotated[Literal["zero", "one", "drop"], Neutral("zero")] = Field(
        "zero",
        description="eigenvalue of a node without edges in the normalized operators of "
        "a graph; drop leaves such nodes out, of any operator",
    )
    r: Annotated[float | Literal["auto"], Neutral("auto")] = Field(
        "auto",
        description="of the bethe_hessian (r^2 - 1) I - r A + D of a graph; auto takes "
        "the root of <d^2> / <d> - 1, by the mean degree and mean squared degree",
    )
    layers: Annotated[Names | None, Neutral(None)] = Field(
        None,
        min_length=1,
        description="parameter tensors, by name or pattern such as layer1.*, whose "
        "diagonal block is looked at; null takes all",
    )
    mc_samples: Annotated[int, Neutral(1)] = Field(
        1, ge=1, description="labels drawn per sample, for fisher_mc"
    )
    order: Annotated[OrderName, Neutral("forward_over_reverse")] = Field(
        "forward_over_reverse",
        description="of differentiation, for hessian and residual; they agree up to "
        "rounding. auto takes the fastest here, so that last bits may differ",
    )
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the products"
    )

    @model_validator(mode="after")
    def _of_graphs(self) -> OperatorParams:
        if self.r != "auto" and self.operator != "bethe_hessian":
            raise ValueError(
                f"r cannot be combined with operator {self.operator}. Remove r, or "
                "take operator bethe_hessian."
            )
        if (
            self.isolated == "one"
            and self.operator in GRAPH_OPERATORS
            and self.operator not in NORMALIZED
        ):
            raise ValueError(
                f"isolated one cannot be combined with operator {self.operator}, of "
                "which a node without edges has what it has. Take zero or drop."
            )
        return self

    @model_validator(mode="after")
    def _of_no_single_samples(self) -> OperatorParams:
        if self.mode == "train" and self.operator in OF_SAMPLES:
            raise ValueError(
                f"mode train cannot be combined with operator {self.operator}, which "
                "is of gradients of single samples, and these meet in a batch. Take "
                "mode eval, or operator ggn."
            )
        return self


# Over labels of a model's own law.
OF_LIKELIHOODS = ("fisher_type2", "fisher_mc")

_WITHOUT_LIKELIHOOD = {
    "operator": "Take ggn, or fisher_empirical.",
    "fisher_type": "Take type-2, or empirical.",
}


def unknown_layers(params: Any, name: str, training: Any) -> Iterator[ParamProblem]:
    """Yield patterns of layers that no parameter tensor of a network matches.

    Args:
        params: with `layers`.
        name: of the stage that returns the weights.
        training: its parameters, which may have a model with known tensors.
    """
    tensors = getattr(getattr(training, "model", None), "tensors", ())
    if tensors:
        yield from unmatched_layers(params, name, tensors)


def unmatched_layers(
    params: Any, name: str, tensors: Sequence[str]
) -> Iterator[ParamProblem]:
    """Yield patterns of layers that match none of some parameter tensors.

    Args:
        params: with `layers`.
        name: of the stage that returns the weights.
        tensors: names of them all.
    """
    for number, pattern in enumerate(params.layers or ()):
        if not any(fnmatchcase(tensor, pattern) for tensor in tensors):
            message = f"expected parameter tensors of '{name}', got {pattern}"
            yield ("layers", number), message, nearest_pattern(pattern, tensors)


def nearest_pattern(pattern: str, names: Sequence[str]) -> str:
    """Return the suggestion of a name or pattern closest to one without any tensor.

    Args:
        pattern: that matches no name.
        names: of the parameter tensors.

    Returns:
        A sentence for the end of a message, with a few names where none is close.
    """
    parts = [name.split(".") for name in names]
    modules = {".".join(part[:end]) for part in parts for end in range(1, len(part))}
    known = {*names, *(f"{module}.*" for module in modules)}
    known |= {f"*{word}*" for part in parts for word in part}
    listed = [*names[: FEW - 1], "...", names[-1]] if len(names) > FEW else names
    return nearest(pattern, known, f"Known: {', '.join(listed)}.")


def no_operator_of_weights(
    params: Any, name: str, training: Any
) -> Iterator[ParamProblem]:
    """Yield what weights lack: tensors of these names, or operators of a graph.

    Args:
        params: of the operator.
        name: of the stage that returns the weights.
        training: its parameters.
    """
    if params.operator in GRAPH_OPERATORS:
        message = f"expected an operator of the weights '{name}', got {params.operator}"
        yield ("operator",), message, f"Known: {', '.join(get_args(OperatorName))}."
    if params.operator in OF_LIKELIHOODS:
        yield from no_likelihood(params, "operator", name, training)
    yield from unknown_layers(params, name, training)


def no_likelihood(
    params: Any, field: str, name: str, training: Any
) -> Iterator[ParamProblem]:
    """Yield that labels are to be drawn from a loss that is of no likelihood.

    Args:
        params: of the operator.
        field: of them that requests labels.
        name: of the stage that returns the weights.
        training: its parameters, which may have a loss.
    """
    loss = getattr(training, "loss", None)
    if loss is not None and not has_likelihood(loss):
        message = f"{getattr(params, field)} cannot be combined with a loss without a "
        message += f"likelihood, got {loss_name(loss)} of '{name}'"
        yield (field,), message, _WITHOUT_LIKELIHOOD[field]


def no_operator_of_graphs(params: Any, name: str, graph: Any) -> Iterator[ParamProblem]:
    """Yield an operator that a graph has not.

    Args:
        params: of the operator; hessian counts if it is written down.
        name: of the stage that returns the graph.
        graph: its parameters, not used.
    """
    written = "operator" in params.model_fields_set
    if written and params.operator not in GRAPH_OPERATORS:
        message = f"expected an operator of the graph '{name}', got {params.operator}"
        yield ("operator",), message, f"Known: {', '.join(GRAPH_OPERATORS)}."


Lacking = Callable[[Any, str, Any], Iterator[ParamProblem]]


def of_all_eigenvalues(field: str) -> Lacking:
    """Return what refuses Ritz data that lack eigenvalues taken out as atoms.

    Args:
        field: the input that takes the Ritz data.
    """

    def lacking(params: Any, name: str, ritz: Any) -> Iterator[ParamProblem]:
        if getattr(ritz, "deflate", ()):
            message = (
                f"expected Ritz data of all eigenvalues, got '{name}' with deflate"
            )
            hint = f"Remove deflate of '{name}'; probe.moments reads its atoms."
            yield (field,), message, hint

    return lacking


OF_GRAPHS = ("isolated", "r", "deflate")
_OF_NETWORKS = ("layers", "mc_samples", "mode", "train_batch_size", "order")
_SETTLED = ("operator", *_OF_NETWORKS, *OF_GRAPHS)


def _alternatives(*others: str) -> dict[str, Input]:
    """Return the inputs of which one is enough; `data` go with weights."""

    def without(name: str) -> tuple[str, ...]:
        names = ("weights", "matrix", "graph", "factors", *others)
        return tuple(other for other in names if other != name)

    return {
        "weights": Input(
            Weights,
            unless=without("weights"),
            settles=OF_GRAPHS,
            lacking=no_operator_of_weights,
        ),
        "data": Input(Data, follows="weights", by_rows=True),
        "matrix": Input(Matrix, unless=without("matrix"), settles=_SETTLED),
        "graph": Input(
            Graph,
            unless=without("graph"),
            settles=_OF_NETWORKS,
            lacking=no_operator_of_graphs,
        ),
        "factors": Input(Factors, unless=without("factors"), settles=_SETTLED),
    }


# One of these is enough: weights, with the data they were trained on, or a matrix, a
# graph, or the factors of a network.
OPERATOR_INPUTS = _alternatives()

# The same, or what a probe.spectrum has stored of the operator. Factors are read as
# Ritz data, too.
_STORED = (*_SETTLED, "seed", "dtype")
OPERATOR_OR_RITZ_INPUTS = {
    **_alternatives("ritz"),
    "factors": replace(_alternatives("ritz")["factors"], settles=_STORED),
    "ritz": Input(
        Ritz,
        unless=("weights", "matrix", "graph", "factors"),
        settles=_STORED,
        lacking=of_all_eigenvalues("ritz"),
    ),
}


def ritz_inputs(
    *settled: str,
    orders: Callable[[Any], int] | None = None,
    reads_atoms: bool = False,
) -> dict[str, Input]:
    """Return the same inputs for a kind with parameters that Ritz data leave no say.

    Args:
        settled: these parameters, in addition to those of the operator.
        orders: from the parameters to the moments that are taken of the Ritz data,
            which hold two for each step but one.
        reads_atoms: whether the kind adds eigenvalues that were taken out.

    Returns:
        The inputs by name.
    """

    def lacking(params: Any, name: str, spectrum: Any) -> Iterator[ParamProblem]:
        if not reads_atoms:
            yield from of_all_eigenvalues("ritz")(params, name, spectrum)
        steps = getattr(spectrum, "num_steps", None)  # all eigenvalues are no runs
        if orders and steps and orders(params) > 2 * steps - 1:
            message = (
                f"expected at most the {2 * steps - 1} moments that the {steps} steps "
                f"of '{name}' hold, got {orders(params)}"
            )
            hint = f"Lower it, or raise num_steps of '{name}'."
            yield ("num_moments",), message, hint

    ritz, factors = (OPERATOR_OR_RITZ_INPUTS[name] for name in ("ritz", "factors"))
    settles = (*_STORED, *settled)
    return {
        **OPERATOR_OR_RITZ_INPUTS,
        "ritz": replace(ritz, settles=settles, lacking=lacking),
        "factors": replace(factors, settles=settles),
    }


def larger_than_formed(params: Any, name: str, matrix: Any) -> Iterator[ParamProblem]:
    """Yield that a matrix is larger than one that is formed.

    Args:
        params: with `max_size`.
        name: of the stage that returns the matrix, or the graph of one.
        matrix: its parameters, which may have its `rows`.
    """
    rows = getattr(matrix, "rows", None)
    if rows is not None and rows > params.max_size and params.isolated != "drop":
        message = f"expected at least the {rows} rows of '{name}', got "
        yield ("max_size",), message + str(params.max_size), "Raise it."


def _formed_of_graph(params: Any, name: str, graph: Any) -> Iterator[ParamProblem]:
    yield from no_operator_of_graphs(params, name, graph)
    yield from larger_than_formed(params, name, graph)


# The same inputs, of a kind that forms the matrix, up to `max_size`.
FORMED_INPUTS = {
    **OPERATOR_INPUTS,
    "matrix": replace(OPERATOR_INPUTS["matrix"], lacking=larger_than_formed),
    "graph": replace(OPERATOR_INPUTS["graph"], lacking=_formed_of_graph),
}


def more_than_rows(params: Any, name: str, matrix: Any) -> Iterator[ParamProblem]:
    """Yield that more eigenvalues are wanted than a matrix has rows.

    Args:
        params: with `k`.
        name: of the stage that returns the matrix.
        matrix: its parameters, which may have its `rows`.
    """
    rows = getattr(matrix, "rows", None)
    if rows is not None and params.k > rows:
        message = f"expected at most the {rows} rows of '{name}', got {params.k}"
        yield ("k",), message, "Lower it."


class LanczosParams(OperatorParams):
    """Number, length and starting vectors of Lanczos runs."""

    num_runs: int = Field(
        10,
        ge=1,
        description="runs from random vectors",
    )
    num_steps: int = Field(
        100, ge=1, description="products per run; a run ends early where it is exact"
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of the entries of the first vectors"
    )


# With rel_error, runs are doubled this many times at most.
DOUBLINGS = 3


class RefinedParams(LanczosParams):
    """Lanczos runs that are made longer until the quadrature is accurate enough."""

    rel_error: Annotated[float | None, Neutral(None)] = Field(
        None,
        gt=0,
        description="error of the quadrature, relative to the value, that is enough: "
        f"num_steps is doubled until it is met, {2**DOUBLINGS} times as many at most; "
        "null takes num_steps",
    )


def judged(
    name: str,
    description: str,
    dims: tuple[str, ...] = (),
    *,
    unit: str = "1",
    flag: str = "converged",
) -> tuple[Variable, ...]:
    """Return the variables of a trace of a function, by quadrature of Ritz data.

    Args:
        name: of the value.
        description: of the value.
        dims: of all of them.
        unit: of the value and its errors.
        flag: name of the variable that says whether the quadrature has converged.
    """

    def part(suffix: str, text: str, of: str | None = None) -> Variable:
        return Variable(f"{name}_{suffix}", text, dims, units=unit, error_of=of)

    return (
        Variable(name, description, dims, units=unit, judged_by=flag),
        part("sem", "standard error, of the vectors and of the quadrature", name),
        part("vectors", "standard error of the random vectors alone", name),
        part("quadrature", "most that the quadrature may be off", name),
        part("low", "lower end of an interval of 95 %"),
        part("high", "upper end of an interval of 95 %"),
        Variable(
            flag,
            "whether the quadrature is off by at most rel_error of the value; without "
            "one, by the standard error of the vectors, or 1 %",
            dims,
            dtype="bool",
        ),
        Variable(
            "steps_needed",
            "steps that should bring the quadrature within rel_error, or 1 %; those "
            "made, if they did; all D where eigenvalues may be negative, as no rate is "
            "known",
            dims,
            dtype="int64",
        ),
    )


# A Hessian and draws go together if both are of the same point of the same loss.
SAME_LOSS = Shares("draws", inputs=("weights", "data"), params=("layers", "mode"))

# What is left of the Hessian, and what is not of its kind.
OTHERS = ("residual", "gradient_covariance")


def no_hessian(params: Any, name: str, ritz: Any) -> Iterator[ParamProblem]:
    """Yield that Ritz data are of a matrix that is no Hessian, nor stands for one.

    Args:
        params: not looked at.
        name: of the stage that returns the Ritz data.
        ritz: its parameters.
    """
    yield from of_all_eigenvalues("ritz")(params, name, ritz)
    operator = getattr(ritz, "operator", "hessian")
    if operator in OTHERS:
        message = f"expected the hessian, ggn or a fisher, got '{name}' of {operator}"
        yield ("ritz",), message, f"Set operator of '{name}' to hessian."
    if getattr(ritz, "mode", "eval") == "train":
        message = f"expected Ritz data in mode eval, as draws are, got '{name}' in "
        yield ("ritz",), f"{message}train", f"Remove mode of '{name}'."


NBETA = Variable("nbeta", "inverse temperature", units="1 / loss")
LOCALIZATION = Variable("localization", "gamma", units="1 / parameter^2")


def not_at_wbic(params: Any, name: str, draws: Any) -> Iterator[ParamProblem]:
    """Yield that draws are not known to be at nbeta = n / ln n.

    Args:
        params: not looked at.
        name: of the stage that returns the draws.
        draws: its parameters.
    """
    nbeta = getattr(draws, "nbeta", "auto")
    if nbeta != "auto":
        message = f"expected draws at nbeta auto, which is n / ln n, got '{name}' at "
        yield ("draws",), f"{message}{nbeta}", f"Set nbeta of '{name}' to auto."


def not_localised(params: Any, name: str, draws: Any) -> Iterator[ParamProblem]:
    """Yield that draws have no localization, so that no prior goes with them.

    Args:
        params: whose `prior_precision`, if it has one, may be given instead.
        name: of the stage that returns the draws.
        draws: its parameters.
    """
    given = getattr(params, "prior_precision", None)
    if given is None and getattr(draws, "localization", None) == 0:
        message = f"expected a localization above 0, got '{name}' with 0"
        yield ("draws",), message, f"Raise localization of '{name}', or leave it null."
