"""Node results, and the types of edges between stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from curvflow.schemas.params import Params

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
else:  # of annotations alone, for which NumPy need not be loaded
    Array = Any
Label = str | int | float | bool
Status = Literal["ok", "diverged"]

# The column of tables that counts the failed nodes they are made without.
FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """Result of a stage for one node.

    Attributes:
        arrays: one array per declared variable; may lack some if it diverged.
        status: divergence is a result with a reason, not an error.
        reason: why it diverged, in words, with the step.

    Examples:
        >>> import curvflow
        >>> curvflow.Outcome({}, "diverged", "loss is infinite at step 3").status
        'diverged'
    """

    arrays: Mapping[str, Array]
    status: Status = "ok"
    reason: str = ""


@dataclass(frozen=True)
class NodeData:
    """A node's result as its consumers see it; base of the edge types.

    Attributes:
        stage: name of the stage in the study.
        kind: name of its kind, whose declaration holds units and descriptions.
        coords: axis labels of the node.
        arrays: the variables that the edge takes.
        digest: content hash of exactly the arrays that are taken.
        status: `ok` or `diverged`.
        reason: why it diverged.
    """

    stage: str
    kind: str
    coords: Mapping[str, Label]
    arrays: Mapping[str, Array]
    digest: str
    status: Status = "ok"
    reason: str = ""

    # Variables a consumer depends on; None means all that tables hold.
    takes: ClassVar[tuple[str, ...] | None] = None
    # Further ones, which not every kind of this type has.
    takes_if_there: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, name: str) -> Array:
        """Return one variable's array."""
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.arrays


@dataclass(frozen=True)
class Absent:
    """A node taken that has no result, for it failed or takes one that did.

    Attributes:
        stage: name of the stage in the study.
        coords: axis labels of the node.
    """

    stage: str
    coords: Mapping[str, Label]


class Data(NodeData):
    """A data set: `inputs` (N, ...), and `targets`, labels (N,) or values (N, C)."""

    takes: ClassVar[tuple[str, ...] | None] = (
        "inputs",
        "targets",
        "test_inputs",
        "test_targets",
        "num_classes",
    )
    takes_if_there: ClassVar[tuple[str, ...]] = ("input_parts",)


class Weights(NodeData):
    """A trained network: `weights` (D,) at one checkpoint, and `network`, its JSON."""

    takes: ClassVar[tuple[str, ...] | None] = ("weights", "network")


class Preconditioned(Weights):
    """Weights with the preconditioner of their training rule, if it was kept."""

    takes: ClassVar[tuple[str, ...] | None] = (
        "weights",
        "network",
        "preconditioner",
        "preconditioned_lr",
        "stable_up_to",
    )


class Trajectory(NodeData):
    """A training's kept weights: `weights` (C, D), and the `checkpoint` of each."""

    takes: ClassVar[tuple[str, ...] | None] = ("checkpoint", "weights", "network")


class Eigenvectors(NodeData):
    """Stored `eigenvectors` (K, D), of unit length, and which have `converged` (K,)."""

    takes: ClassVar[tuple[str, ...] | None] = ("eigenvectors", "converged")


class Eigenvalues(NodeData):
    """Computed `eigenvalues` (K,), `residuals`, and which have `converged`, of `size`.

    A repeated one is found `columns` times for certain, in so many `iterations`; in
    none if they were read of Ritz data.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "eigenvalues",
        "residuals",
        "converged",
        "iterations",
    )
    takes_if_there: ClassVar[tuple[str, ...]] = ("size", "columns")


class Landscape(NodeData):
    """Slices of a loss along directions, and through the plane of two."""

    takes: ClassVar[tuple[str, ...] | None] = (
        "along",
        "step",
        "train_loss",
        "test_loss",
        "train_accuracy",
        "test_accuracy",
        "plane_train_loss",
        "plane_test_loss",
        "path",
        "slope",
        "curvature",
        "rayleigh",
        "converged",
        "centre_train_loss",
        "centre_test_loss",
        "num_nonfinite",
    )


class Matrix(NodeData):
    """A symmetric matrix of `size` D in one `form`, to be probed as it is.

    `dense` has `dense` (D, D); `sparse` has `indptr`, `indices` and `values` of its
    compressed rows; `kernel` has `points` (D, d) and `kernel`, the JSON of the function
    of two points that gives an entry. Unused variables have no elements.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "form",
        "dense",
        "indptr",
        "indices",
        "values",
        "points",
        "kernel",
        "size",
    )


class Graph(NodeData):
    """An undirected graph of `size` nodes as the compressed rows of its adjacency.

    `indptr` (size + 1,) int64 and `indices` int32, the neighbours of each node in
    rising order: every edge stands in the rows of both its ends, a loop once in its
    own. `weights` of these entries, positive, has no elements where all are 1.
    """

    takes: ClassVar[tuple[str, ...] | None] = ("indptr", "indices", "weights", "size")


# Eigenvalues that are known exactly, and taken out of what else is told.
ATOMS = ("atom_values", "atom_counts")


class Spectrum(NodeData):
    """A spectrum as points with weights, of an operator of `size` D.

    Either the `mass` of each point of a `grid`, with the `multipliers` of a density of
    largest entropy and what these are of, or Ritz data.
    """

    takes: ClassVar[tuple[str, ...] | None] = ("size",)
    takes_if_there: ClassVar[tuple[str, ...]] = (
        "grid",
        "mass",
        "multipliers",
        "multipliers_covariance",
        "basis",
        "basis_support",
        "prior",
        "support",
        "converged",
        "num_draws",
        "ritz_values",
        "ritz_weights",
        *ATOMS,
    )


class Ritz(Spectrum):
    """Ritz data of Lanczos runs on an operator of `size` D.

    `ritz_values`, `ritz_weights` and `ritz_residuals` (run, node), one run for each
    random start vector; a run that ended early has weight 0 and value NaN behind its
    end. They are of the eigenvalues that `atom_values` and `atom_counts` (atom,), if
    there are any, do not tell. Where `reorthogonalized` is there, and false, they may
    hold copies, whose weights together are those of one.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "ritz_values",
        "ritz_weights",
        "ritz_residuals",
        "size",
        "num_matvecs",
    )
    takes_if_there: ClassVar[tuple[str, ...]] = ("reorthogonalized", *ATOMS)


class Factors(Ritz):
    """A block-diagonal matrix on D of the weights of a network, by its eigenpairs.

    Each `block` (block,) is (U x V) diag(values) (U x V)' of `groups`, rows and columns
    of `left_size` and `right_size`, on the parameters at `columns` (entry,), block
    after block. `values` (entry,), `left_vectors`, `right_vectors` and, where values
    are products, `left_values` and `right_values` follow in the same order. As Ritz
    data they are all eigenvalues as one run.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "block",
        "groups",
        "left_size",
        "right_size",
        "columns",
        "values",
        "left_vectors",
        "right_vectors",
        "left_values",
        "right_values",
        "ritz_values",
        "ritz_weights",
        "ritz_residuals",
        "size",
        "num_matvecs",
    )
    takes_if_there: ClassVar[tuple[str, ...]] = ()


class Moments(NodeData):
    """Normalised traces tr p_k(A) / D, k = 0 .. K, of an operator of `size` D.

    `moments` (order,), `moments_covariance` (order, order) of these means, `basis` of
    the polynomials p_k, `support` (2,), the interval they are taken over. Eigenvalues
    that `atom_values` and `atom_counts` (atom,) tell are among them. `num_draws` random
    vectors were averaged.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "moments",
        "moments_covariance",
        "basis",
        "support",
        "size",
    )
    takes_if_there: ClassVar[tuple[str, ...]] = ("num_draws", *ATOMS)


class Entropic(Spectrum):
    """A density of largest entropy on an operator's spectrum, as masses of a grid.

    `multipliers` (order,) belong to polynomials of a `basis` over `basis_support`.
    """

    takes: ClassVar[tuple[str, ...] | None] = ("grid", "mass", "size")
    takes_if_there: ClassVar[tuple[str, ...]] = (
        "multipliers",
        "multipliers_covariance",
        "basis",
        "basis_support",
        "support",
        "converged",
        "num_draws",
        *ATOMS,
    )


class Distribution(NodeData):
    """The share `cumulative` of a spectrum up to each point of a `grid` (point,).

    `cumulative_low` and `cumulative_high` bound it.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "grid",
        "cumulative",
        "cumulative_low",
        "cumulative_high",
    )


class Density(Entropic, Distribution):
    """A spectral density: `density` (point,) at `grid` (point,), maybe within ends."""

    takes: ClassVar[tuple[str, ...] | None] = ("grid", "density", "size")
    takes_if_there: ClassVar[tuple[str, ...]] = ("density_low", "density_high")


class Draws(NodeData):
    """Draws of chains from the tempered posterior about weights.

    `loss_trace` (chain, draw) over all `num_samples`, `init_loss` at the weights,
    `nbeta` and `localization` of the posterior, `num_parameters` that moved; a chain
    that failed has `failed_at` (chain,) of 0 or more and NaN behind that step. If its
    settings were found by a sweep, `trial_*` (trial,) and `predicted` record it.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "loss_trace",
        "init_loss",
        "nbeta",
        "localization",
        "num_samples",
        "num_parameters",
        "failed_at",
        "llc_mean",
        "llc_sem",
        "verdict",
        "lr",
        "trial_parameter",
        "trial_value",
        "trial_llc",
        "trial_sem",
        "trial_in_plateau",
        "predicted",
    )


class DrawnLosses(NodeData):
    """Losses of samples, tokens or labels at the draws of chains about weights.

    `observed_losses` (chain, draw, observable), `observed_init_losses` at the weights,
    and what each is of: `observed_is_test`, `observed_row`, `observed_token`,
    `observed_label`, -1 where it is none, and `observed_count`, what it is the mean
    over; with the whole loss and the posterior, as `Draws` has them.
    """

    takes: ClassVar[tuple[str, ...] | None] = (
        "observed_losses",
        "observed_init_losses",
        "observed_is_test",
        "observed_row",
        "observed_token",
        "observed_label",
        "observed_count",
        "loss_trace",
        "init_loss",
        "nbeta",
        "localization",
        "num_samples",
        "failed_at",
        "verdict",
        "reason",
    )


class Table(NodeData):
    """A table of statistics of other results, with the dimension `quantity`."""


class Distances(Table):
    """A table of distances, which also has them as a `matrix` (item, other_item).

    `labels` (item, axis) of each item, on each `axis` that the items are of.
    """

    takes: ClassVar[tuple[str, ...] | None] = ("matrix", "axis", "item", "labels")


class Localized(NodeData):
    """Estimates at an `nbeta` and a `localization`, which are all that is taken."""

    takes: ClassVar[tuple[str, ...] | None] = ("nbeta", "localization")


class Hold(Table):
    """A table of one `localization` (quantity,), for several estimates."""

    takes: ClassVar[tuple[str, ...] | None] = ("localization",)


class Figure(NodeData):
    """A figure as the bytes of PNG, SVG and PDF files."""


class Numbers(NodeData):
    """Any measured variables: what probes return and aggregates take."""


@dataclass(frozen=True)
class Member:
    """One node of a tile: its parameters and the results it takes.

    Attributes:
        params: validated parameters, axis values substituted.
        inputs: per input name the results taken; a plain input holds one.
        files: content of the files that the parameters name, per field.
        earlier: the stored result of the same node with a smaller value of what its
            kind continues, to go on from; None to begin at the beginning.
        absent: per input those of many results that failed, where a table or figure of
            the others is requested; what is returned must count them.
    """

    params: Params
    inputs: Mapping[str, Sequence[NodeData]] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    earlier: NodeData | None = None
    absent: Mapping[str, Sequence[Absent]] = field(default_factory=dict)

    @property
    def all_absent(self) -> list[Absent]:
        """The absent results of all inputs."""
        return [absent for several in self.absent.values() for absent in several]

    def one(self, name: str) -> NodeData:
        """Return the single result of a plain input."""
        (only,) = self.inputs[name]
        return only
