"""Stores of devinterp 2, written here in its layout."""

import numpy as np
import pytest
import zarr

import curvflow
from curvflow.errors import RequestError

CHAINS, BURN_IN, DRAWS, NBETA = 3, 20, 60, 40.0
SAMPLER = {
    "lr": 1e-4,
    "n_beta": NBETA,
    "localization": 100.0,
    "num_burnin_steps": BURN_IN,
    "num_steps_bw_draws": 1,
    "num_draws": DRAWS,
    "num_chains": CHAINS,
    "sampling_method": "rmsprop_sgld",
    "bounding_box_size": None,
    "sampling_method_kwargs": {},
}


FIRST = np.float32(np.linspace(2.2, 2.4, 5))


def losses():
    drawn = np.random.default_rng(0).normal(2.5, 0.1, (CHAINS, BURN_IN + DRAWS, 2, 5))
    drawn[:, :BURN_IN] -= np.linspace(0.4, 0, BURN_IN)[:, None, None]
    return drawn.astype(np.float32)


def written(path, values=None, completed=1, sampler=SAMPLER, first=FIRST):
    """A flat group; dimensions named; the settings in its attributes."""
    root = zarr.open_group(str(path), mode="w", zarr_format=3)
    root.attrs["metadata"] = {"config": {"sampler": sampler}}
    values = losses() if values is None else values
    dims = ("chain", "step", "batch_sampling", "token_pos")
    for name, array, names in (
        ("sampling_loss_micro", values, dims),
        (
            "init_loss",
            np.zeros((CHAINS, 5), np.float32) + first,
            ("chain", "token_pos"),
        ),
    ):
        made = root.create_array(
            name, shape=array.shape, dtype=array.dtype, dimension_names=names
        )
        made[...] = array
    root.attrs["completed"] = completed
    return path


def test_a_store_is_read_with_our_statistics(tmp_path):
    draws = curvflow.read_devinterp(written(tmp_path / "samples.zarr"))
    every = losses().astype(np.float64).mean((2, 3))
    assert draws["loss_trace"].dims == ("chain", "draw")
    np.testing.assert_allclose(draws["loss_trace"], every[:, BURN_IN:])
    assert float(draws["init_loss"]) == pytest.approx(2.3, rel=1e-6)
    init_loss = float(draws["init_loss"])
    llc = NBETA * (every[:, BURN_IN:].mean() - init_loss)
    assert float(draws["llc_mean"]) == pytest.approx(llc)
    assert float(draws["llc_all_steps"]) == pytest.approx(
        NBETA * (every.mean() - init_loss)
    )
    assert float(draws["llc_all_steps"]) < llc - 10 * float(draws["llc_sem"])
    assert float(draws["r_hat"]) < 1.1
    assert float(draws["localization"]) == 100
    assert draws.attrs["sampling_method"] == "rmsprop_sgld"
    assert curvflow.to_arviz(draws)["posterior"]["llc"].mean() == pytest.approx(llc)


def test_a_failed_chain_is_counted_and_left_out(tmp_path):
    values = losses()
    values[1, BURN_IN + 7 :] = np.nan
    draws = curvflow.read_devinterp(written(tmp_path / "samples.zarr", values))
    assert int(draws["num_failed"]) == 1
    assert draws["failed_at"].values.tolist() == [-1, 7, -1]
    assert np.isnan(draws["llc_per_chain"][1])
    assert float(draws["llc_mean"]) == pytest.approx(
        float(np.nanmean(draws["llc_per_chain"]))
    )


def test_a_token_that_is_nan_at_one_draw_fails_the_chain_and_is_counted(tmp_path):
    values = losses()
    values[1, BURN_IN + 7, 0, 3] = np.nan
    draws = curvflow.read_devinterp(written(tmp_path / "samples.zarr", values))
    assert draws["num_nan"].values.tolist() == [0, 1, 0]
    assert draws["failed_at"].values.tolist() == [-1, 7, -1]
    assert int(draws["num_left_out"]) == int(draws["num_nan_init"]) == 0


def test_tokens_without_any_loss_are_left_out_of_both_means(tmp_path):
    values, first = losses(), np.linspace(2.2, 2.4, 5)
    values[..., 4], first[4] = np.nan, np.nan
    path = written(tmp_path / "samples.zarr", values, first=first)
    draws = curvflow.read_devinterp(path)
    assert int(draws["num_left_out"]) == 1
    assert draws["num_nan"].values.tolist() == [0, 0, 0]
    assert int(draws["num_failed"]) == 0
    assert float(draws["init_loss"]) == pytest.approx(first[:4].mean())
    every = values[..., :4].astype(np.float64).mean((2, 3))
    np.testing.assert_allclose(draws["loss_trace"], every[:, BURN_IN:])


def test_a_token_without_a_first_loss_is_left_out_of_both_means(tmp_path):
    first = np.linspace(2.2, 2.4, 5)
    first[4] = np.nan
    draws = curvflow.read_devinterp(written(tmp_path / "samples.zarr", first=first))
    assert int(draws["num_left_out"]) == 1
    assert float(draws["init_loss"]) == pytest.approx(first[:4].mean())


def test_a_first_loss_that_one_chain_lacks_leaves_no_estimate(tmp_path):
    first = np.array([np.linspace(2.2, 2.4, 5)] * CHAINS)
    first[1, 2] = np.nan
    draws = curvflow.read_devinterp(written(tmp_path / "samples.zarr", first=first))
    assert int(draws["num_nan_init"]) == 1
    assert np.isnan(draws["llc_mean"])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            {"completed": 0},
            "expected completed samples of devinterp, got an unfinished",
        ),
        ({"sampler": {}}, "got none of n_beta, num_burnin_steps"),
        (
            {"sampler": {**SAMPLER, "num_burnin_steps": 75}},
            "expected 8 steps or more after the burn-in, got 5",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, case, message):
    path = written(tmp_path / "samples.zarr", **case)
    with pytest.raises(RequestError, match=message):
        curvflow.read_devinterp(path)


def test_a_path_without_a_store_is_refused(tmp_path):
    with pytest.raises(RequestError, match="expected a Zarr store"):
        curvflow.read_devinterp(tmp_path / "none.zarr")
