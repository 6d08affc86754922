"""Learning coefficients and WBIC of any torch module, without a study."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import xarray as xr
from torch import Tensor, nn

from curvflow.errors import InputError
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.probes.learning_coefficients import llc as llc_kind
from curvflow.schemas.kinds.probes.learning_coefficients import wbic as wbic_kind
from curvflow.schemas.kinds.shared.sampling import LlcParams, Method
from curvflow.schemas.nodes import Array, Factors
from curvflow.tasks.curvature.preconditioners import PRECONDITIONER, given_factors
from curvflow.tasks.library.arguments import checked
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

    def __repr__(self) -> str:
        shown = f"{self.llc_mean:.4g} ± {self.llc_sem:.2g}, {self.verdict}"
        return f"LlcResult({shown}, {self.work:.0f} gradients)"

    def to_xarray(self) -> xr.Dataset:
        """Return all variables, with units and descriptions, as a study returns them.

        Returns:
            Dimensions chain, draw and trial.
        """
        return _dataset(llc_kind.KIND, self.variables)

    def to_arviz(self) -> xr.DataTree:
        """Return the draws as arviz takes them, see `curvflow.to_arviz`."""
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
    """

    wbic: float
    wbic_sem: float
    wbic_per_chain: Array
    training_loss: float
    penalty: float
    llc: LlcResult
    variables: Mapping[str, Array]

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
        """
        return _dataset(wbic_kind.KIND, self.variables)


def llc(
    net: nn.Module,
    loss: Loss | str,
    data: Any,
    *,
    nbeta: float | Literal["auto", "devinterp"] = "auto",
    calibrate: Literal["auto", "none"] = "auto",
    sampling_method: Method | None = None,
    lr: float | None = None,
    localization: float | None = None,
    batch_size: int | None = None,
    num_chains: int = 4,
    num_draws: int = 500,
    num_burnin_steps: int | None = None,
    num_steps_bw_draws: int = 20,
    at_draws: Literal["full", "control_variate", "batch"] = "full",
    layers: Sequence[str] | None = None,
    friction: float = 0.1,
    decay: float = 0.99,
    damping: float = 0.1,
    max_hold: float = 0.1,
    keep_draws: bool = False,
    preconditioner: Preconditioner | None = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] | None = None,
    forward: Callable[[nn.Module, Batch], Tensor] | None = None,
    allow: Collection[Cause] = (),
) -> LlcResult:
    """Estimate the local learning coefficient about the weights of a module.

    Chains draw from p(w) ~ exp(-nbeta L(w) - localization / 2 |w - w*|^2), L the mean
    loss over all samples, and the coefficient is nbeta (E L - L(w*)). It is the
    computation of `probe.llc`: equal seeds give equal bits about dense networks.

    Args:
        net: the module at the weights w*, in eval mode if it has dropout or batch norm.
        loss: of outputs and targets, the mean over a batch or of each sample; or
            `cross_entropy`, `mse`, `sse`, `bce` or `poisson`.
        data: a batch (inputs, targets) or a dictionary, a list of batches, or a loader;
            all samples are in memory.
        nbeta: inverse temperature; `auto` is n / ln n of n samples, `devinterp` is
            b / ln b of the batch size.
        calibrate: `auto` chooses those of None among the sampler, lr, localization,
            batch_size and num_burnin_steps from the measured curvature; `none` requires
            them.
        sampling_method: `multiscale_mala`, `mala`, `sgld`, `rmsprop_sgld`, `adam_sgld`,
            `sghmc` or `sgnht`.
        lr: step, epsilon: drift lr / 2, noise of variance lr.
        localization: gamma, the strength of the quadratic well about w*.
        batch_size: samples per step; None for all, or as calibrated.
        num_chains: chains, each with its random stream.
        num_draws: draws of each chain.
        num_burnin_steps: steps before the first draw.
        num_steps_bw_draws: steps from draw to draw.
        at_draws: the loss at a draw: `full`, `control_variate` or `batch`.
        layers: names or patterns of the parameters that move; None moves all that
            require a gradient.
        friction: of sghmc and sgnht.
        decay: of rmsprop_sgld and adam_sgld.
        damping: of the same.
        max_hold: share of the coefficient that the localization may take; calibration
            lowers it, and above that the verdict is `held`.
        keep_draws: whether the weights of draws are kept.
        preconditioner: factors of the same module and data by `curvflow.kronecker`, in
            whose metric mala and sgld may move, see docs/llc.md.
        seed: of all that is drawn.
        dtype: precision; None for that of the module.
        forward: from the module and a batch to outputs; by default the module of the
            inputs.
        allow: causes of refusal to let through, see docs/operators.md.

    Returns:
        The estimate with its verdict.

    Raises:
        InputError: a parameter, the module, the loss or the data cannot be taken; the
            cause is named.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20.

    Examples:
        >>> import torch, curvflow
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> inputs = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).double()
        >>> data = inputs, net(inputs).detach()
        >>> fit = curvflow.llc(net, "mse", data, nbeta=1000.0, num_draws=200)
        >>> fit.verdict
        'converged'
        >>> abs(fit.llc_mean - 2 / 2) < 5 * fit.llc_sem  # regular: half the parameters
        True
    """
    params = _params(locals())
    targets = module_targets(
        net,
        loss,
        data,
        layers=params.layers,
        seed=params.seed,
        dtype=None if dtype is None else getattr(torch, dtype),
        settings=Settings(forward=forward, allow=allow, seed=seed),
    )
    beside = factors_beside(llc_kind.KIND, params, preconditioner)
    targets = replace(targets, factors=_factors(beside, targets))
    (estimate,) = estimate_coefficients(targets, [options_of(params)])
    return _result(variables(estimate))


def _factors(
    beside: Mapping[str, Sequence[Factors]], targets: ChainTargets
) -> BlockOperator | None:
    if not beside:
        return None
    size, machine = targets.num_free, Machine(str(targets.weights.device))
    return given_factors(beside[PRECONDITIONER], machine, size)


def _params(arguments: Mapping[str, Any]) -> LlcParams:
    """Return the parameters of `probe.llc` among the arguments of `llc`.

    Each is the argument of its name; an omitted precision is the default.
    """
    given = {
        name: arguments[name] for name in LlcParams.model_fields if name in arguments
    }
    if given["dtype"] is None:
        del given["dtype"]
    if given["layers"] is not None:
        given["layers"] = tuple(given["layers"])
    return checked(LlcParams, **given)


def wbic(net: nn.Module, loss: Loss | str, data: Any, **options: Any) -> WbicResult:
    """Estimate Watanabe's WBIC about the weights of a module.

    It is n E L at nbeta = n / ln n, with the prior N(w*, 1 / localization).

    Args:
        net: as for `llc`.
        loss: as for `llc`; minus a log likelihood, for the criterion to be in nats.
        data: as for `llc`.
        **options: those of `llc`, except `nbeta`.

    Returns:
        The criterion, and the coefficient by the same draws.

    Raises:
        InputError: as for `llc`; or `nbeta` is given.

    Reference:
        Watanabe (2013), JMLR 14, 867: definition of WBIC and theorem 4.

    Examples:
        >>> import torch, curvflow
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> inputs = torch.linspace(-1, 1, 50).double()[:, None]
        >>> data = inputs, net(inputs).detach()
        >>> criterion = curvflow.wbic(net, "sse", data, num_draws=200)
        >>> criterion.training_loss
        0.0
        >>> criterion.penalty == criterion.wbic
        True
    """
    if "nbeta" in options:
        raise InputError(
            "nbeta cannot be combined with wbic, which is defined at n / ln n. Remove "
            "it, or take llc."
        )
    fit = llc(net, loss, data, **options)
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
