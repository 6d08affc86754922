"""Samples that devinterp 2 has stored: one flat group of Zarr, with its settings."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import xarray as xr

from curvflow.errors import RequestError

LOSSES, INIT_LOSS = "sampling_loss_micro", "init_loss"


def read_samples(path: str | Path) -> xr.Dataset:
    """Read the losses of every step, and how they were sampled.

    Args:
        path: the store that `devinterp.slt.sampling.sample` has written.

    Returns:
        `step_losses` (chain, step), of the steps' batches, burn-in included, and
        `init_loss`, the mean over its batches; the sampler's settings as attributes.

    Raises:
        RequestError: there is no such store, it was not completed, or it holds no
            losses.
    """
    stored = _opened(Path(path))
    if stored.attrs.get("completed") != 1:
        raise RequestError(
            f"{path}: expected completed samples of devinterp, got an unfinished "
            "store. Sample again."
        )
    settings = stored.attrs.get("metadata", {}).get("config", {}).get("sampler", {})
    lacking = [name for name in (LOSSES, INIT_LOSS) if name not in stored]
    lacking += [name for name in ("n_beta", "num_burnin_steps") if name not in settings]
    if lacking:
        raise RequestError(
            f"{path}: expected samples of devinterp 2, got none of {', '.join(lacking)}"
        )
    losses = stored[LOSSES].load().astype("float64")
    others = [dim for dim in losses.dims if dim not in ("chain", "step")]
    return xr.Dataset(
        {
            "step_losses": losses.mean(others).transpose("chain", "step"),
            "init_loss": stored[INIT_LOSS].load().astype("float64").mean(),
        },
        attrs={k: v for k, v in settings.items() if _is_plain(v)},
    )


def _opened(path: Path) -> xr.Dataset:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on what of Zarr's format is settled
            stored: xr.Dataset = xr.open_zarr(path, consolidated=False)
            return stored
    except (OSError, KeyError, ValueError) as error:
        raise RequestError(f"{path}: expected a Zarr store, got {error}") from error


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)
