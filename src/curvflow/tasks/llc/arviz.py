"""Draws as arviz takes them."""

from __future__ import annotations

import xarray as xr

from curvflow.errors import RequestError

STATISTICS = {"batch_loss_trace": "batch_loss", "distance_trace": "distance"}
WORDS = ("verdict", "reason")
CONSTANTS = ("init_loss", "nbeta", "localization", "lr", "num_samples", *WORDS)


def to_arviz(draws: xr.Dataset) -> xr.DataTree:
    """Return draws as arviz 1.0 and arviz-base 0.8 take them; neither is needed here.

    Args:
        draws: results of a `probe.llc`, as `results["stage"]` is, or what
            `read_devinterp` returns.

    Returns:
        `posterior` with `loss` and `llc`, nbeta (loss - init_loss), so that the mean of
        `llc` and its mcse are the estimate and its standard error; `sample_stats`;
        `constant_data`, with `verdict` and `reason` along the axes of the study, which
        are attributes too if there are no axes. Dimensions chain and draw, then these
        axes. A chain that failed has NaN.

    Raises:
        RequestError: the dataset has no draws.

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.tensor([[1.0], [2.0], [3.0]]).double()
        >>> chains = {"num_draws": 8, "num_burnin_steps": 1, "num_steps_bw_draws": 1}
        >>> fit = curvflow.llc(net, "mse", (x, x), **chains)
        >>> tree = curvflow.to_arviz(fit.to_xarray())
        >>> tree["posterior"]["llc"].dims
        ('chain', 'draw')
    """
    if not {"chain", "draw"} <= set(draws.get("loss_trace", xr.DataArray()).dims):
        kind = draws.attrs.get("kind", "a dataset without loss_trace")
        raise RequestError(
            f"to_arviz: expected results of probe.llc, got {kind}. Pass those."
        )
    loss = _leading(draws["loss_trace"])
    llc = _leading(draws["nbeta"] * (draws["loss_trace"] - draws["init_loss"]))
    statistics = {
        short: _leading(draws[name])
        for name, short in STATISTICS.items()
        if name in draws
    }
    constants = {name: draws[name] for name in CONSTANTS if name in draws}
    single = {
        n: constants[n] for n in WORDS if n in constants and not constants[n].dims
    }
    words = {name: str(array.item()) for name, array in single.items()}
    attrs = {**draws.attrs, **words, "inference_library": "curvflow"}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"loss": loss, "llc": llc}, attrs=attrs),
            "sample_stats": xr.Dataset(statistics, attrs=attrs),
            "constant_data": xr.Dataset(constants, attrs=attrs),
        }
    )


def _leading(array: xr.DataArray) -> xr.DataArray:
    return array.transpose("chain", "draw", ...)
