"""Learning coefficients of one model without a study: `curvflow.llc` and `wbic`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.sampling import Method
from curvflow.tasks.library.operators import Memory, Module, at_once
from curvflow.tasks.library.preconditioners import Preconditioner
from curvflow.tasks.llc.library import (
    ChainOptions,
    Forward,
    LlcOptions,
    LlcResult,
    WbicResult,
    coefficient,
    criterion,
)
from curvflow.tasks.numerics.derivatives.guards import Cause
from curvflow.tasks.numerics.derivatives.subjects import Loss


def llc(
    net: Module,
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
    forward: Forward | None = None,
    allow: Collection[Cause] = (),
    store: str | Path | None = None,
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
        store: as for `hessian`: keeps what the chains return.

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
    arguments = locals()
    options: Any = {name: arguments[name] for name in LlcOptions.__annotations__}
    memory: Memory = at_once
    if store is not None:
        # Here, for zarr and others are needed only where a store is given.
        from curvflow.flows.library_store import memory as kept

        called, of = {"module": net, "loss": loss}, ("forward", "allow", "dtype")
        content = {name: options[name] for name in of}
        memory = kept(store, "llc", called=called, settings=content, data=data)
    return coefficient(net, loss, data, memory=memory, **options)


def wbic(
    net: Module,
    loss: Loss | str,
    data: Any,
    *,
    store: str | Path | None = None,
    **options: Unpack[ChainOptions],
) -> WbicResult:
    """Estimate Watanabe's WBIC about the weights of a module.

    It is n E L at nbeta = n / ln n, with the prior N(w*, 1 / localization), of the
    draws that `llc` takes: in a store either finds those of the other.

    Args:
        net: as for `llc`.
        loss: as for `llc`; minus a log likelihood, for the criterion to be in nats.
        data: as for `llc`.
        store: as for `llc`.
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
    return criterion(llc(net, loss, data, store=store, **options))


__all__ = ["llc", "wbic"]
