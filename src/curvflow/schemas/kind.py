"""The declaration of a kind: everything about it but the computation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.schemas.params import Params

ELLIPSIS = "..."


@dataclass(frozen=True)
class Variable:
    """One array of a kind's result.

    Attributes:
        name: the field's standard name; a variable named like its only dimension is
            that dimension's coordinate.
        description: what it is, for `curvflow kinds` and the attributes of exports.
        dims: dimensions within one node; a last `...` stands for any further ones.
        dtype: NumPy's name, or `str`.
        or_dtype: another that some results have, such as whole numbers that stay so.
        units: `1` for pure numbers, else such as `loss / parameter^2`.
        bulk: too large for tables (weights, images); read only on request.
        series: runs along training or draws; figures take it by name, tables do not.
        sliced: the dimension, always the first, along which each index has a digest of
            its own, so that a consumer may depend on one slice.
        optional: some results lack it, as their parameters say.
        error_of: the variable whose error it is; where that is none but rounding, so is
            this, and two results are compared by the size of that variable.
        file: suffix of the file these bytes are, such as `.png`.
        judged_by: the variable of the same node that says whether this can be relied
            on: a text, `converged` or what is wrong, or a flag of this one's shape.
        rests_on: the variable of the same node that says how a condition of this one is
            known: a text, `assumed` where nothing shows that it holds.

    Examples:
        >>> import curvflow
        >>> curvflow.Variable("radius", "of the hull", units="parameter").tabular
        True
    """

    name: str
    description: str
    dims: tuple[str, ...] = ()
    dtype: str = "float64"
    units: str = "1"
    bulk: bool = False
    series: bool = False
    sliced: str | None = None
    optional: bool = False
    error_of: str | None = None
    file: str | None = None
    judged_by: str | None = None
    rests_on: str | None = None
    or_dtype: str | None = None

    @property
    def tabular(self) -> bool:
        """True if tables hold it by default."""
        return not (self.bulk or self.series or self.file)


@dataclass(frozen=True)
class Samples:
    """Form of a data set's samples; None where only its arrays have it.

    Attributes:
        shape: of the inputs of one sample.
        targets: labels of classes, or values.
        outputs: number of classes, or of the values of one target.
        tokens: labels of one sample, T; None of one label alone.
        vocabulary: number of tokens that inputs may name; None where they name none.
    """

    shape: tuple[int, ...] | None = None
    targets: Literal["labels", "values"] | None = None
    outputs: int | None = None
    tokens: int | None = None
    vocabulary: int | None = None


# Content of the files that parameters name, arrays by field and name.
Files = Mapping[str, Mapping[str, Array]]

# Kinds of the stages taken, by input and stage.
Taken = Mapping[str, Mapping[str, "Kind"]]

# Labels of the study's axes, by name.
Axes = Mapping[str, Sequence[Label]]

# Where a wrong value is written in a stage, what is wrong with it, and what to do.
ParamProblem = tuple[tuple[str | int, ...], str, str]

# What a truth is computed from: the eigenvalues of the operator, ascending, (D,); its
# matrix, (D, D); that of each sample alone, (N, D, D); gradients of samples, (N, D);
# eigenvalues at each checkpoint, (C, D); or, of factors, the matrix, the number of the
# block that holds an entry, -1 outside all, and the matrix of the factors, (3, D, D).
TruthOf = Literal[
    "eigenvalues", "matrix", "samples", "gradients", "checkpoints", "factors"
]

# From parameters, what is known, and result to the true values of variables.
Truth = Callable[[Any, Array, Mapping[str, Array]], Mapping[str, Array]]

# In place of names of variables: the main ones of the kinds taken.
MAIN = "main"

# The axis that a figure has of the stages taken, with those of the study.
STAGE = "stage"


@dataclass(frozen=True)
class Shares:
    """Inputs and parameters that the stages of two inputs must have in common.

    Attributes:
        of: the other input; "" for what takes both, whose own inputs and epochs these
            are then.
        inputs: of both stages, such as their weights.
        params: of both stages.
    """

    of: str
    inputs: tuple[str, ...] = ()
    params: tuple[str, ...] = ()


@dataclass(frozen=True)
class Input:
    """One input of a kind.

    Attributes:
        edge: the type taken.
        follows: another input, or several; when this one is not given, take the result
            of this name that the first of them given was computed from (a probe's data
            are its weights').
        many: a list of stages may be given, reduced over axes.
        unless: other inputs, of which one in its place is enough; both are too much.
            What follows an input that is replaced is not needed either.
        optional: may be left out.
        excludes: other inputs that cannot be given with it.
        wanted: of one that may be left out, from the parameters to whether it is
            needed; without that it is too much.
        settles: parameters that it determines, and which keep their defaults.
        keeps: a flag that the stage taken must have set, if it has such a parameter,
            for its result to hold what is taken.
        lacking: from the parameters, and name and parameters of the stage taken, to
            what these request and that one cannot have: where it is written, `expected
            ..., got ...`, and what to do.
        shares: what the stage taken must have in common with that of another input.
        by_rows: arrays on disk are taken as such, and rows of them read as needed;
            else they are read whole.
        single: the stage taken lacks the axes that others are reduced over.
    """

    edge: type[NodeData]
    follows: str | tuple[str, ...] = ()
    many: bool = False
    unless: tuple[str, ...] = ()
    optional: bool = False
    excludes: tuple[str, ...] = ()
    wanted: Callable[[Any], bool] | None = None
    settles: tuple[str, ...] = ()
    keeps: str = ""
    lacking: Callable[[Any, str, Any], Iterable[ParamProblem]] | None = None
    shares: Shares | None = None
    by_rows: bool = False
    single: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the inputs that this one may follow."""
        return (self.follows,) if isinstance(self.follows, str) else self.follows

    def followed(self, given: Collection[str]) -> str | None:
        """Return the input among those given that this one follows, if any."""
        return next((name for name in self.sources if name in given), None)


@dataclass(frozen=True)
class Continues:
    """Continuation of a kind from one of its stored results.

    Attributes:
        param: the parameter that is raised, such as `epochs`.
        allows: from the parameters of the shorter and of the longer computation to
            whether the longer may begin where the shorter ended, with equal results.
        parts: variables read of the shorter result; None for all. One of those that are
            optional may be lacking.
    """

    param: str
    allows: Callable[[Any, Any], bool]
    parts: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of stage, declared without torch so that planning needs none.

    Attributes:
        name: as `use:` names it, such as `probe.hessian_trace`.
        version: raised by hand when the meaning of the results changes.
        summary: one line for `curvflow kinds`.
        params: the parameter model; all of it enters the key.
        returns: the edge type of the result.
        outputs: the variables returned.
        main: names of those that are its result, without what says how it was come by;
            tables of `quantities: main` take them.
        inputs: what it takes, by parameter name.
        varying: dotted parameter paths that may differ within one tile; a path names
            its whole subtree.
        reduces: parameters that hold names of axes to be reduced over.
        reduces_any: whether a stage taken may lack some of these axes.
        check_axes: from the parameters and the labels of the study's axes to labels
            that these do not have, and axes that will not do: where it is written,
            `expected ..., got ...`, and what to do.
        selects: parameters that hold names of input variables; when all are None, all
            tabular variables are taken.
        per_stage: parameters that may name stages taken, as a mapping's keys or a list;
            a kind that has some takes `stage` for an axis that is reduced over.
        checkpoints: epochs at which a kind that returns Weights keeps them; of
            parameters whose files alone show them None.
        check: looks at the files that the parameters name while planning, and raises
            InputError with `expected ..., got ...`.
        check_names: from the parameters and the kinds taken, by input and stage, to
            names that these do not have: where it is written, `expected ..., got ...`,
            and what to do.
        judges: takes the verdicts on what it takes too, to say or leave out what is
            not converged.
        alike: from the parameters to names of parameters in which results that are
            taken together must not differ, where the stages taken have them.
        null_takes: parameters to the input whose parameter of the same name they take
            where they are null; null there too, it is measured of each result.
        settings: outputs of the kinds taken that say how what has a verdict was
            estimated; taken with it, to say where they differ.
        rows: from the parameters and the labels of axes to what stands behind the name
            of a quantity in the rows of its table; None if not known.
        vectorised: computes its tile in one program; else node by node.
        accelerated: runs on a GPU where there is one.
        home: `module:name` of a user's kind, distinguished from others of its name.
        loads: dotted parameter path to package: the module of that package named by the
            parameter's value, or `factory` if the path has none, runs as well.
        carries: parameter paths, each with its subtree, whose code runs again wherever
            the result is taken as Weights: to measure a network is to compute it.
        continues: how it goes on from a stored result; None if it cannot.
        truth: of a probe of an operator, from the parameters, the known, and
            the result to what its variables truly are; `make truth` compares them. A
            variable that it leaves out is not compared.
        truth_of: the known: the eigenvalues (D,), or another of `TruthOf`.
        known_samples: of a kind that returns Data, from the parameters and the form of
            the samples taken to that of those returned, as far as planning knows it.
        samples_in_files: the same of a kind that returns what files hold, from the
            parameters and the files that they name.
    """

    name: str
    version: int
    summary: str
    params: type[Params]
    returns: type[NodeData]
    outputs: tuple[Variable, ...]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    varying: tuple[str, ...] = ()
    reduces: tuple[str, ...] = ()
    reduces_any: bool = False
    check_axes: Callable[[Any, Axes], Iterable[ParamProblem]] | None = None
    selects: tuple[str, ...] = ()
    per_stage: tuple[str, ...] = ()
    checkpoints: Callable[[Any], Sequence[int] | None] | None = None
    check: Callable[[Any, Files], None] | None = None
    check_names: Callable[[Any, Taken], Iterable[ParamProblem]] | None = None
    main: tuple[str, ...] = ()
    judges: bool = False
    alike: Callable[[Any], Sequence[str]] | None = None
    null_takes: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    rows: Callable[[Any, Mapping[str, Sequence[Label]]], list[str]] | None = None
    vectorised: bool = True
    accelerated: bool = False
    home: str = ""
    loads: Mapping[str, str] = field(default_factory=dict)
    carries: tuple[str, ...] = ()
    continues: Continues | None = None
    truth: Truth | None = None
    truth_of: TruthOf = "eigenvalues"
    known_samples: Callable[[Any, Samples], Samples] | None = None
    samples_in_files: Callable[[Any, Files], Samples] | None = None

    def output(self, name: str) -> Variable | None:
        """Return the declared variable of this name, if any."""
        return next((v for v in self.outputs if v.name == name), None)

    def chosen(self, names: Collection[str] | None = None) -> list[Variable]:
        """Return the variables of some names, with the coordinates of their dims.

        Args:
            names: names of variables; if none, all that tables hold.

        Returns:
            The variables, in the order declared.
        """
        wanted = [v for v in self.outputs if (v.name in names if names else v.tabular)]
        dims = {dim for variable in wanted for dim in variable.dims}
        return [
            v
            for v in self.outputs
            if v in wanted or (v.dims == (v.name,) and v.name in dims)
        ]

    def selected(self, params: Params) -> tuple[str, ...]:
        """Return the input variables that parameters name; empty if all are taken."""
        names: list[str] = []
        for field_name in self.selects:
            value = getattr(params, field_name)
            if isinstance(value, Mapping):  # a variable per stage
                names += value.values()
            else:
                names += [value] if isinstance(value, str) else (value or [])
        return tuple(names)

    def as_json(self) -> dict[str, Any]:
        """Return the declaration as plain data, parameters as JSON Schema."""
        return {
            "name": self.name,
            "version": self.version,
            "summary": self.summary,
            "inputs": {name: i.edge.__name__ for name, i in self.inputs.items()},
            "returns": self.returns.__name__,
            "params": self.params.model_json_schema(),
            "outputs": [asdict(variable) for variable in self.outputs],
        }


def error_of(kind: Kind, name: str) -> str:
    """Return the variable that is another's standard error; empty if none is.

    Args:
        kind: the declaration of both.
        name: `llc_mean` has `llc_sem`, `trace` has `trace_sem`.
    """
    names = (f"{name}_sem", f"{name.removesuffix('_mean')}_sem")
    return next((error for error in names if kind.output(error)), "")
