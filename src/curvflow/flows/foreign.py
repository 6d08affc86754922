"""Draws of other packages, with the statistics of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.stores.labelled.datasets import Dataset


def read_devinterp(path: str | Path) -> Dataset:
    """Read samples that devinterp 2 has stored, and diagnose their chains.

    Args:
        path: the store that `devinterp.slt.sampling.sample` has written.

    Returns:
        Named as of `probe.llc`: `loss_trace` (chain, draw), a draw being a step after
        the burn-in; `init_loss`, `nbeta`, `localization`, `lr`; `llc_mean`, `llc_std`,
        `llc_sem`, `llc_per_chain`, `r_hat`, `ess_bulk`, `ess_tail`, `num_failed` and
        `failed_at`, a draw. `llc_all_steps` is what devinterp itself tells, which takes
        the burn-in in. `num_left_out` counts tokens that never have a loss, such as
        padding; any other NaN among the tokens' losses fails its chain at that draw:
        `num_nan` (chain,), of all steps, and `num_nan_init` count them. Attributes are
        the sampler's settings.

    Raises:
        RequestError: this is no completed store of devinterp 2, or fewer than 8 steps
            follow the burn-in.
    """
    # Loaded here because the import of the package is to be cheap.
    from curvflow.stores.labelled.foreign_draws import read_samples
    from curvflow.tasks.llc.chain_results import summarised

    samples = read_samples(path)
    settings = samples.attrs
    kept = samples["step_losses"].isel(
        step=slice(int(settings["num_burnin_steps"]), None)
    )
    if kept.sizes["step"] < 8:
        raise RequestError(
            f"{path}: expected 8 steps or more after the burn-in, got "
            f"{kept.sizes['step']}. Sample more."
        )
    init_loss, nbeta = float(samples["init_loss"]), float(settings["n_beta"])
    found = summarised(kept.values, init_loss, nbeta)
    every = summarised(samples["step_losses"].values, init_loss, nbeta)
    told: dict[str, Any] = {
        name: (("chain",)[: value.ndim], value) for name, value in found.items()
    }
    return samples.drop_vars("step_losses").assign(
        loss_trace=(("chain", "draw"), kept.values),
        nbeta=nbeta,
        localization=float(settings.get("localization", 0.0)),
        lr=float(settings.get("lr", "nan")),
        llc_all_steps=float(every["llc_mean"]),
        **told,
    )
