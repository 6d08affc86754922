"""Covariances, influences and susceptibilities where the posterior is a Gaussian.

    python -m benchmarks.observables [--repetitions N]

Linear regressions from a random generator: of one to three outputs, squared error as a
sum or a mean, some with all parameters moving, some with weights or biases alone, about
weights that are no minimum. Moments of their losses have closed forms. First twenty
models, a run of `probe.llc` each, its settings calibrated: how many estimates are
within three standard errors. Then the coverage of intervals of 95 %, by chains of 300
seeds about one of them: estimate plus and minus 1.96 standard errors. Prints tables in
Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.probes_batched import member
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, DrawnLosses, Member, NodeData, Outcome, Weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.registry import Machine, find

MODELS, REPETITIONS, GROUPS = 20, 300, 3

# Draws of each chain: of the random models, and of the repetitions.
OF_MODELS, DRAWS = 2000, 500
PARTS = {"all": None, "weights": ("*weight",), "biases": ("*bias",)}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearGaussian:
    """A linear regression about weights, whose localised posterior is a Gaussian.

    Of samples with features z (inputs and 1), outputs o and weights w_o, the loss of a
    sample is c sum_o (z.w_o - y_o)^2, so that each w_o has the precision
    P = 2 c nbeta Z'Z / n + gamma over the parameters that move.

    Attributes:
        inputs: of training and test samples, (n + t, D).
        targets: of these, (n + t, C).
        num_train: n.
        weights: w*, rows of outputs, (C, D + 1), the bias last.
        loss: `sse` or `mse`.
        part: parameters that move.
        nbeta: inverse temperature.
        localization: gamma.
    """

    inputs: Floats
    targets: Floats
    num_train: int
    weights: Floats
    loss: Literal["sse", "mse"]
    part: str
    nbeta: float
    localization: float

    @classmethod
    def drawn(cls, seed: int) -> LinearGaussian:
        """Draw a model, its data and weights near the minimum."""
        random = np.random.default_rng(seed)
        size, outputs = int(random.integers(2, 6)), int(random.integers(1, 4))
        train, test = int(random.integers(20, 60)), 6
        inputs = random.normal(size=(train + test, size)) @ random.normal(
            size=(size, size)
        )
        features = np.hstack([inputs, np.ones((train + test, 1))])
        targets = features @ random.normal(size=(size + 1, outputs))
        targets += random.normal(size=targets.shape)
        fit = np.linalg.lstsq(features[:train], targets[:train], rcond=None)[0]
        return cls(
            inputs,
            targets,
            train,
            fit.T + 0.02 * random.normal(size=fit.T.shape),
            random.choice(["sse", "mse"]).item(),
            str(random.choice([*PARTS])),
            float(random.uniform(20, 100)),
            float(random.uniform(0.1, 2)),
        )

    @property
    def features(self) -> Floats:
        """Inputs and 1, (n + t, D + 1)."""
        return np.hstack([self.inputs, np.ones((len(self.inputs), 1))])

    @property
    def factor(self) -> float:
        """Factor c of the squared errors of a sample."""
        return 1.0 if self.loss == "sse" else 1 / self.targets.shape[1]

    @property
    def moving(self) -> Floats:
        """Features of the parameters that move, (n + t, F)."""
        columns = {"all": slice(None), "weights": slice(-1), "biases": slice(-1, None)}
        return self.features[:, columns[self.part]]

    @property
    def errors(self) -> Floats:
        """Errors of each sample's outputs at w*, (n + t, C)."""
        return self.features @ self.weights.T - self.targets

    def posterior(self, weighting: Floats) -> tuple[Floats, Floats]:
        """Return the mean of w - w*, (F, C), and the covariance for each output.

        Args:
            weighting: of each sample in the loss that is sampled, (n + t,): 1 / n of
                those of training.
        """
        z, factor = self.moving, 2 * self.factor * self.nbeta
        weighted = weighting[:, None] * z
        precision = factor * z.T @ weighted + self.localization * np.eye(z.shape[1])
        covariance = np.linalg.inv(precision).astype(np.float64)
        return -factor * covariance @ weighted.T @ self.errors, covariance

    def moments(self, weighting: Floats) -> tuple[Floats, Floats]:
        """Return means (n + t,) and covariances of the samples' losses.

        Args:
            weighting: as of `posterior`.
        """
        apart, covariance = self.posterior(weighting)
        errors = self.errors + self.moving @ apart
        spread = self.moving @ covariance @ self.moving.T
        outputs, c = self.targets.shape[1], self.factor
        means = c * ((errors**2).sum(1) + outputs * np.diag(spread))
        products = 4 * spread * (errors @ errors.T)
        return means, c**2 * (products + 2 * outputs * spread**2)

    @property
    def weighting(self) -> Floats:
        """Weight of each sample in the mean loss, (n + t,)."""
        return (np.arange(len(self.inputs)) < self.num_train) / self.num_train

    @property
    def groups(self) -> dict[str, list[int]]:
        """Subsets of the training samples by name."""
        return {
            f"group{number}": [*range(number, self.num_train, GROUPS)]
            for number in range(GROUPS)
        }

    def averaging(self, groups: Sequence[Sequence[int]]) -> Floats:
        """Return the matrix that takes means over groups, (G, n + t)."""
        rows = np.zeros((len(groups), len(self.inputs)))
        for row, numbers in zip(rows, groups, strict=True):
            row[list(numbers)] = 1 / len(numbers)
        return rows

    def probe(self, **settings: Any) -> Member:
        """Return the member of `probe.llc` that keeps all losses."""
        arrays = dataset(
            self.inputs[: self.num_train],
            self.targets[: self.num_train],
            self.inputs[self.num_train :],
            self.targets[self.num_train :],
        )
        data = Data("data", "data.array", {}, arrays, f"regression {id(self)}")
        text = pose(parse_model({"kind": "linear"}), self.loss, data).text
        flat = np.concatenate([self.weights[:, :-1].ravel(), self.weights[:, -1]])
        kept = {"weights": flat, "network": np.array(text)}
        weights = Weights("fit", "train", {}, kept, "weights")
        chosen = {
            "nbeta": self.nbeta,
            "localization": self.localization,
            "layers": PARTS[self.part],
            "keep_losses": "samples",
            "observed": "both",
            **settings,
        }
        return member("probe.llc", chosen, weights=weights, data=data)

    def known(self) -> dict[str, Floats]:
        """Return the closed forms of what `measured` estimates, by kind."""
        means, covariance = self.moments(self.weighting)
        train, tests = [*range(self.num_train)], [*range(self.num_train, len(means))]
        groups = self.averaging([*self.groups.values()])
        whole = self.averaging([train])
        responding = np.vstack([whole, self.averaging([tests])])
        losses = self.factor * (self.errors**2).sum(1)
        return {
            "probe.covariances": groups @ covariance @ groups.T,
            "probe.influence": -groups @ covariance[:, tests],
            "probe.susceptibility": -self.nbeta
            * (responding @ covariance @ (groups - whole).T),
            "probe.llc_pointwise": self.nbeta * groups @ (means - losses),
        }

    def measured(self, outcome: Outcome) -> dict[str, Mapping[str, Any]]:
        """Return what the kinds estimate from an outcome of `probe`, by kind."""
        groups = {"subsets": self.groups}
        settings: dict[str, dict[str, Any]] = {
            "probe.covariances": {"rows": groups},
            "probe.influence": {"samples": groups},
            "probe.susceptibility": {
                "shifts": groups,
                "observables": {"split": "test", "by": "all"},
            },
            "probe.llc_pointwise": {"observables": groups},
        }
        draws: NodeData = DrawnLosses("llc", "probe.llc", {}, outcome.arrays, "draws")
        return {
            kind: find(kind)
            .compute([member(kind, params, draws=draws)], Machine("cpu"))[0]
            .arrays
            for kind, params in settings.items()
        }


# The estimate of each kind.
ESTIMATES = {
    "probe.covariances": "covariance",
    "probe.influence": "influence",
    "probe.susceptibility": "susceptibility",
    "probe.llc_pointwise": "llc",
}


def deviations(
    model: LinearGaussian, outcomes: Sequence[Outcome]
) -> dict[str, tuple[Floats, Floats]]:
    """Return how far estimates are from closed forms, in standard errors, by kind.

    Args:
        model: the posterior.
        outcomes: of runs of `probe.llc` about it.

    Returns:
        Deviations (run, ...), and whether each estimate is called converged.
    """
    known, runs = model.known(), [model.measured(each) for each in outcomes]
    apart = {}
    for kind, name in ESTIMATES.items():
        arrays = [run[kind] for run in runs]
        z = [(each[name] - known[kind]) / each[f"{name}_sem"] for each in arrays]
        apart[kind] = np.stack(z), np.stack([each["converged"] for each in arrays])
    return apart


def of_models(count: int) -> None:
    """Print how many estimates of random models are within three errors."""
    found: dict[str, list[Floats]] = {kind: [] for kind in ESTIMATES}
    sure = dict.fromkeys(ESTIMATES, 0)
    for seed in range(count):
        model = LinearGaussian.drawn(seed)
        probe = model.probe(seed=seed, num_draws=OF_MODELS, num_steps_bw_draws=10)
        outcomes = find("probe.llc").compute([probe], Machine("cpu"))
        for kind, (z, converged) in deviations(model, outcomes).items():
            found[kind].append(z.ravel())
            sure[kind] += int(converged.sum())
    print(f"| of {count} models | estimates | converged | within 3 errors | spread |")
    print("|---|---|---|---|---|")
    for kind, parts in found.items():
        z = np.concatenate(parts)
        within = int((np.abs(z) < 3).sum())
        print(f"| `{kind}` | {z.size} | {sure[kind]} | {within} | {z.std():.2f} |")


def of_repetitions(count: int) -> None:
    """Print how many intervals of repeated chains hold the closed form."""
    model = LinearGaussian.drawn(0)
    probes = [model.probe(seed=seed, num_draws=DRAWS) for seed in range(count)]
    outcomes = find("probe.llc").compute(probes, Machine("cpu"))
    for kind, (z, _) in deviations(model, outcomes).items():
        held = (np.abs(z) < 1.96).reshape(count, -1).mean(0)
        error = 100 * np.sqrt(held.mean() * (1 - held.mean()) / count)
        print(
            f"| `{kind}` | {held.size} | {100 * held.mean():.1f} ± "
            f"{error:.1f} % | {100 * held.min():.1f} | {100 * held.max():.1f} |",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    of_models(MODELS)
    print(f"\n| {asked.repetitions} repetitions | entries | hold | least | most |")
    print("|---|---|---|---|---|")
    of_repetitions(asked.repetitions)


if __name__ == "__main__":
    main()
