"""Draws as devinterp has stored them."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
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
        Both are means over the same tokens: those that are NaN throughout, such as
        padding, are left out and counted in `num_left_out`; any other NaN, counted in
        `num_nan` (chain,) and `num_nan_init`, makes the mean that it enters NaN.

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
            f"{path}: expected samples of devinterp 2, got none of "
            f"{', '.join(lacking)}. Sample again, by devinterp 2."
        )
    losses, first = (stored[x].load().astype("float64") for x in (LOSSES, INIT_LOSS))
    others = [dim for dim in losses.dims if dim not in ("chain", "step")]
    # Of tokens: batches have none in common between the losses and the first.
    tokens = [dim for dim in others if dim in first.dims]
    has_loss = _has_any(losses, tokens) & _has_any(first, tokens)
    is_nan, is_nan_first = (part.isnull() & has_loss for part in (losses, first))
    return xr.Dataset(
        {
            "step_losses": _mean(losses, has_loss, others).transpose("chain", "step"),
            "init_loss": _mean(first, has_loss, list(first.dims)),
            "num_nan": is_nan.sum([dim for dim in losses.dims if dim != "chain"]),
            "num_nan_init": is_nan_first.sum(),
            "num_left_out": (~has_loss).sum(),
        },
        attrs={k: v for k, v in settings.items() if _is_plain(v)},
    )


def _has_any(losses: xr.DataArray, tokens: list[Hashable]) -> xr.DataArray:
    return losses.notnull().any([dim for dim in losses.dims if dim not in tokens])


def _mean(
    losses: xr.DataArray, has_loss: xr.DataArray, over: list[Hashable]
) -> xr.DataArray:
    """Average over the tokens that have losses; the mean is NaN if one of these is."""
    share = has_loss.mean()
    return losses.where(has_loss, 0.0).mean(over, skipna=False) / share


def _opened(path: Path) -> xr.Dataset:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on what of Zarr's format is settled
            stored: xr.Dataset = xr.open_zarr(path, consolidated=False)
            return stored
    except (OSError, KeyError, ValueError) as error:
        raise RequestError(
            f"{path}: expected a Zarr store, got {error}. Name the folder that "
            "devinterp wrote."
        ) from error


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)
