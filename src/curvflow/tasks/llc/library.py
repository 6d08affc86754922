"""Learning coefficients and WBIC of any torch module, without a study."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack

import torch
import xarray as xr
from torch import Tensor

from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.probes.learning_coefficients import llc as llc_kind
from curvflow.schemas.kinds.probes.learning_coefficients import wbic as wbic_kind
from curvflow.schemas.kinds.shared.sampling import LlcParams, Method
from curvflow.schemas.nodes import Array, Factors
from curvflow.tasks.curvature.stored_factors import PRECONDITIONER, given_factors
from curvflow.tasks.library.arguments import checked
from curvflow.tasks.library.operators import Memory, Module, Probe, at_once
from curvflow.tasks.library.preconditioners import Preconditioner, factors_beside
from curvflow.tasks.llc.arviz import to_arviz
from curvflow.tasks.llc.draws import wbic_arrays
from curvflow.tasks.llc.modules import module_targets
from curvflow.tasks.llc.targets import options_of
from curvflow.tasks.numerics.derivatives.batches import Batch
from curvflow.tasks.numerics.derivatives.guards import Cause
from curvflow.tasks.numerics.derivatives.subjects import Loss, Settings
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets
from curvflow.tasks.numerics.sampling.coefficient import (
    estimate_coefficients,
    variables,
)
from curvflow.tasks.registry import Machine

Forward = Callable[[Module, Batch], Tensor]


@dataclass(frozen=True, repr=False, eq=False)
class LlcResult:
    """A local learning coefficient with its error, diagnostics and verdict.

    Attributes:
        llc_mean: nbeta (E L - L(w*)), over the chains that did not fail.
        llc_sem: standard error, of draws and of what moves too slowly for them.
        llc_per_chain: estimate of each chain, (C,); NaN of one that failed.
        verdict: `converged`, or why the chains cannot be trusted.
        reason: the verdict in words, with numbers and what to do about it.
        r_hat: rank-normalised split R-hat of the losses.
        ess: effective number of draws, the lesser of bulk and tail.
        work: gradients over all data that calibration and chains took.
        loss_trace: mean loss at the draws, (C, K).
        draws: weights of the draws, (C, K, D), with `keep_draws`; else None.
        variables: everything that `probe.llc` returns, by name.

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.tensor([[1.0], [2.0], [3.0]]).double()
        >>> few = {"num_draws": 8, "num_burnin_steps": 1, "num_steps_bw_draws": 1}
        >>> fit = curvflow.llc(net, "mse", (x, x), num_chains=2, **few)
        >>> fit.value == float(fit) == fit.llc_mean
        True
    """

    llc_mean: float
    llc_sem: float
    llc_per_chain: Array
    verdict: str
    reason: str
    r_hat: float
    ess: float
    work: float
    loss_trace: Array
    draws: Array | None
    variables: Mapping[str, Array]

    @property
    def value(self) -> float:
        """The estimate, `llc_mean`."""
        return self.llc_mean

    @property
    def sem(self) -> float:
        """Its standard error, `llc_sem`."""
        return self.llc_sem

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        shown = f"{self.llc_mean:.4g} ± {self.llc_sem:.2g}, {self.verdict}"
        return f"LlcResult({shown}, {self.work:.0f} gradients)"

    def to_xarray(self) -> xr.Dataset:
        """Return all variables, with units and descriptions, as a study returns them.

        Returns:
            Dimensions chain, draw and trial.

        Examples:
            >>> dict(fit.to_xarray()["loss_trace"].sizes)
            {'chain': 2, 'draw': 8}
        """
        return _dataset(llc_kind.KIND, self.variables)

    def to_arviz(self) -> xr.DataTree:
        """Return the draws as arviz takes them, see `curvflow.to_arviz`.

        Examples:
            >>> list(fit.to_arviz())
            ['posterior', 'sample_stats', 'constant_data']
        """
        return to_arviz(self.to_xarray())


@dataclass(frozen=True, repr=False, eq=False)
class WbicResult:
    """The widely applicable Bayesian information criterion, with its error.

    Attributes:
        wbic: n E L at nbeta = n / ln n, in nats where L is minus a log likelihood.
        wbic_sem: standard error.
        wbic_per_chain: of each chain, (C,); NaN of one that failed.
        training_loss: n L(w*).
        penalty: wbic - training_loss, the coefficient times ln n.
        llc: the coefficient by the same draws, with the verdict on them.
        variables: everything that `probe.wbic` returns, by name.

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.tensor([[1.0], [2.0], [3.0]]).double()
        >>> few = {"num_draws": 8, "num_burnin_steps": 1, "num_steps_bw_draws": 1}
        >>> criterion = curvflow.wbic(net, "mse", (x, x), num_chains=2, **few)
        >>> criterion.work == criterion.llc.work
        True
    """

    wbic: float
    wbic_sem: float
    wbic_per_chain: Array
    training_loss: float
    penalty: float
    llc: LlcResult
    variables: Mapping[str, Array]

    @property
    def value(self) -> float:
        """The criterion, `wbic`."""
        return self.wbic

    @property
    def sem(self) -> float:
        """Its standard error, `wbic_sem`."""
        return self.wbic_sem

    @property
    def work(self) -> float:
        """Gradients over all data that calibration and chains took."""
        return self.llc.work

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"WbicResult({self.wbic:.4g} ± {self.wbic_sem:.2g}, {self.verdict})"

    @property
    def verdict(self) -> str:
        """Verdict on the draws."""
        return self.llc.verdict

    @property
    def reason(self) -> str:
        """Reason of the verdict."""
        return self.llc.reason

    def to_xarray(self) -> xr.Dataset:
        """Return all variables, with units and descriptions, as a study returns them.

        Returns:
            Dimension chain.

        Examples:
            >>> float(criterion.to_xarray()["wbic"]) == criterion.value
            True
        """
        return _dataset(wbic_kind.KIND, self.variables)


class ChainOptions(TypedDict, total=False):
    """Options of `curvflow.wbic`: those of `curvflow.llc`, which has them one by one.

    They are its parameters, except `nbeta`.
    """

    calibrate: Literal["auto", "none"]
    sampling_method: Method | None
    lr: float | None
    localization: float | None
    batch_size: int | None
    num_chains: int
    num_draws: int
    num_burnin_steps: int | None
    num_steps_bw_draws: int
    at_draws: Literal["full", "control_variate", "batch"]
    layers: Sequence[str] | None
    friction: float
    decay: float
    damping: float
    max_hold: float
    keep_draws: bool
    preconditioner: Preconditioner | None
    seed: int
    dtype: Literal["float32", "float64"] | None
    forward: Forward | None
    allow: Collection[Cause]


class LlcOptions(ChainOptions, total=False):
    """Options of `curvflow.llc`, which has them one by one.

    Attributes:
        nbeta: inverse temperature.
    """

    nbeta: float | Literal["auto", "devinterp"]


def coefficient(
    module: Module,
    loss: Loss | str,
    data: Any,
    *,
    memory: Memory = at_once,
    **options: Unpack[LlcOptions],
) -> LlcResult:
    """Estimate a local learning coefficient, or return the one that was kept.

    Args:
        module: as for `curvflow.llc`, as are all but the memory.
        loss: of outputs and targets.
        data: batches.
        memory: runs the probe, or returns what it returned before.
        **options: see `LlcOptions`.

    Returns:
        The estimate with its verdict.

    Raises:
        InputError: a parameter, the module, the loss or the data cannot be taken.
    """
    params = parameters(options)
    beside = factors_beside(llc_kind.KIND, params, options.get("preconditioner"))

    def compute() -> Mapping[str, Array]:
        dtype = options.get("dtype")
        targets = module_targets(
            module,
            loss,
            data,
            layers=params.layers,
            seed=params.seed,
            dtype=None if dtype is None else getattr(torch, dtype),
            settings=Settings(
                forward=options.get("forward"),
                allow=options.get("allow", ()),
                seed=params.seed,
            ),
        )
        targets = replace(targets, factors=_factors(beside, targets))
        (estimate,) = estimate_coefficients(targets, [options_of(params)])
        return variables(estimate)

    digests = {name: node.digest for name, (node,) in beside.items()}
    return _result(memory(Probe(llc_kind.KIND, params, compute, digests)))


# Options that are no parameters of the probe.
_OF_THE_MODULE = ("preconditioner", "forward", "allow")


def parameters(options: LlcOptions) -> LlcParams:
    """Return the parameters of the probe; an omitted precision is the default.

    Args:
        options: of `curvflow.llc`.

    Raises:
        InputError: a value cannot be taken.
    """
    given = {k: v for k, v in options.items() if k not in _OF_THE_MODULE}
    if given.get("dtype") is None:
        given.pop("dtype", None)
    layers = options.get("layers")
    if isinstance(layers, list):
        given["layers"] = tuple(layers)
    return checked(LlcParams, **given)


def criterion(fit: LlcResult) -> WbicResult:
    """Return the criterion that draws at nbeta = n / ln n make.

    Args:
        fit: of these draws.

    Returns:
        The criterion, without a further gradient.
    """
    variables = wbic_arrays(fit.variables)
    return WbicResult(
        wbic=float(variables["wbic"]),
        wbic_sem=float(variables["wbic_sem"]),
        wbic_per_chain=variables["wbic_per_chain"],
        training_loss=float(variables["training_loss"]),
        penalty=float(variables["penalty"]),
        llc=fit,
        variables=variables,
    )


def _factors(
    beside: Mapping[str, Sequence[Factors]], targets: ChainTargets
) -> BlockOperator | None:
    if not beside:
        return None
    size, machine = targets.num_free, Machine(str(targets.weights.device))
    return given_factors(beside[PRECONDITIONER], machine, size)


def _dataset(kind: Kind, variables: Mapping[str, Array]) -> xr.Dataset:
    present = [each for each in kind.outputs if each.name in variables]
    return xr.Dataset(
        {
            each.name: (
                each.dims,
                variables[each.name],
                {"units": each.units, "description": each.description},
            )
            for each in present
        },
        attrs={"kind": kind.name},
    )


def _result(variables: Mapping[str, Array]) -> LlcResult:
    def number(name: str) -> float:
        return float(variables[name])

    return LlcResult(
        llc_mean=number("llc_mean"),
        llc_sem=number("llc_sem"),
        llc_per_chain=variables["llc_per_chain"],
        verdict=str(variables["verdict"]),
        reason=str(variables["reason"]),
        r_hat=number("r_hat"),
        ess=min(number("ess_bulk"), number("ess_tail")),
        work=number("gradient_equivalents"),
        loss_trace=variables["loss_trace"],
        draws=variables.get("draws"),
        variables=variables,
    )
