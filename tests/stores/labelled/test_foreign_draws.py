"""Draws handed to arviz."""

import arviz_base
import arviz_stats
import numpy as np
import pytest
import torch
import xarray as xr

import curvflow
from curvflow.errors import RequestError
from curvflow.tasks.numerics.sampling.diagnostics import summarise

NBETA, INIT_LOSS, CHAINS, DRAWS = 50.0, 0.2, 4, 200


def draws():
    """Results of probe.llc over an axis of three seeds."""
    losses = INIT_LOSS + np.random.default_rng(0).gamma(2, 0.01, (3, CHAINS, DRAWS))
    dims = ("seed", "chain", "draw")
    return xr.Dataset(
        {
            "loss_trace": (dims, losses),
            "distance_trace": (dims, np.sqrt(losses)),
            "init_loss": ("seed", np.full(3, INIT_LOSS)),
            "nbeta": ("seed", np.full(3, NBETA)),
        },
        coords={"seed": [0, 1, 2]},
        attrs={"kind": "probe.llc"},
    )


def test_arviz_finds_the_estimate_and_its_error():
    tree = curvflow.to_arviz(draws())
    fine = torch.full((CHAINS,), -1)
    summary = arviz_stats.summary(tree, var_names=["llc", "loss"], round_to="none")
    for seed, losses in enumerate(draws()["loss_trace"].values):
        ours = summarise(torch.from_numpy(losses), INIT_LOSS, NBETA, fine)
        row = summary.loc[f"llc[{seed}]"]
        assert row["mean"] == pytest.approx(ours.llc_mean, rel=1e-10)
        assert row["mcse_mean"] == pytest.approx(ours.llc_sem, rel=1e-10)
        # Of the losses: the two draws beside the median fold onto one rank by rounding.
        row = summary.loc[f"loss[{seed}]"]
        assert row["r_hat"] == pytest.approx(ours.r_hat, rel=1e-10)
        assert row["ess_bulk"] == pytest.approx(ours.ess_bulk, rel=1e-10)


def test_groups_are_those_that_arviz_makes():
    tree = curvflow.to_arviz(draws())
    theirs = arviz_base.from_dict({"posterior": {"loss": np.zeros((CHAINS, DRAWS))}})
    assert isinstance(tree, type(theirs))
    assert set(tree.children) == {"posterior", "sample_stats", "constant_data"}
    assert tree["posterior"]["loss"].dims == ("chain", "draw", "seed")
    assert tree["sample_stats"]["distance"].dims == ("chain", "draw", "seed")


def test_verdicts_and_their_reasons_come_along(tmp_path):
    words = ["converged", "drifting", "failed"]
    reasons = ["", "R-hat is 1.2", "4 of 4 chains left the finite numbers"]
    judged = draws().assign(
        verdict=("seed", np.array(words, object)),
        reason=("seed", np.array(reasons, object)),
    )
    told = curvflow.to_arviz(judged)["constant_data"]
    assert told["verdict"].sel(seed=1).item() == "drifting"
    assert told["reason"].values.tolist() == reasons
    alone = curvflow.to_arviz(judged.isel(seed=1, drop=True))
    for group in ("posterior", "sample_stats", "constant_data"):
        assert alone[group].attrs["verdict"] == "drifting"
        assert alone[group].attrs["reason"] == "R-hat is 1.2"
    assert "verdict" not in curvflow.to_arviz(judged)["posterior"].attrs
    alone.to_netcdf(tmp_path / "draws.nc")
    arviz_stats.summary(curvflow.to_arviz(judged), var_names=["llc"])


def test_what_is_no_draws_is_refused():
    with pytest.raises(
        RequestError, match=r"expected results of probe\.llc, got probe\.x"
    ):
        curvflow.to_arviz(xr.Dataset(attrs={"kind": "probe.x"}))
