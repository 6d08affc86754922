"""Independent draws of Gaussian posteriors of linear regressions, as an edge."""

import numpy as np

from benchmarks.observables import LinearGaussian
from curvflow.schemas.nodes import DrawnLosses
from tests.tasks.toys import compute, member

CHAINS, DRAWS, SURE = 4, 2000, 4


def drawn(model, seed=0, failed=(), verdict="converged", draws=DRAWS):
    """Losses of all samples at independent draws of the posterior."""
    random = np.random.default_rng(seed)
    mean, covariance = model.posterior(model.weighting)
    shape = (CHAINS, draws, mean.shape[1], len(mean))
    root = np.linalg.cholesky(covariance)
    apart = mean.T + random.normal(size=shape) @ root.T
    errors = model.errors + (apart @ model.moving.T).swapaxes(-1, -2)
    losses = model.factor * (errors**2).sum(-1)
    count = model.num_train
    trace, failed_at = losses[..., :count].mean(-1), np.full(CHAINS, -1)
    for chain in failed:
        failed_at[chain] = draws // 2
        losses[chain, draws // 2 :] = trace[chain, draws // 2 :] = np.nan
    init = model.factor * (model.errors**2).sum(1)
    none = np.full(len(init), -1)
    row = np.concatenate([np.arange(count), np.arange(len(init) - count)])
    arrays = {
        "observed_losses": losses,
        "observed_init_losses": init,
        "observed_is_test": np.arange(len(init)) >= count,
        "observed_row": row,
        "observed_token": none,
        "observed_label": none,
        "observed_count": np.ones_like(none),
        "loss_trace": trace,
        "init_loss": init[:count].mean(),
        "nbeta": np.array(model.nbeta),
        "localization": np.array(model.localization),
        "num_samples": np.array(count),
        "failed_at": failed_at,
        "verdict": np.array(verdict),
        "reason": np.array("as it is"),
    }
    assert set(arrays) == set(DrawnLosses.takes)
    return DrawnLosses("llc", "probe.llc", {}, arrays, f"draws-{seed}")


def computed(kind, draws, **params):
    (outcome,) = compute(kind, [member(kind, params, draws=draws)])
    return outcome


def assert_near(arrays, name, truth, sure=SURE):
    """Hold estimates to their closed forms, and errors to a part of their spread."""
    z = (arrays[name] - truth) / arrays[f"{name}_sem"]
    assert np.abs(z).max() < sure, z
    assert arrays["converged"].all()
    assert arrays["verdict"] == "converged"


def response(model, groups, of, amount=1e-4):
    """Derivative of the mean losses of `of` as weight moves to groups, (of, groups)."""
    weighting, rows = model.weighting, []
    for group in model.averaging(groups):
        means = [
            model.moments((1 - h) * weighting + h * group)[0] for h in (-amount, amount)
        ]
        rows.append(model.averaging(of) @ (means[1] - means[0]) / (2 * amount))
    return np.stack(rows, axis=1)


MODELS = [LinearGaussian.drawn(seed) for seed in (0, 1, 2)]
