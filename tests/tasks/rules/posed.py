"""A problem with stacked models, a gradient, and dense matrices to hold steps to."""

import json

import numpy as np
import torch

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import fisher_draws, fisher_roots
from curvflow.tasks.numerics.derivatives.gauss_newton import BatchedGaussNewton
from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from curvflow.tasks.rules import functions_of
from curvflow.tasks.training.gradients import Noise, gradients
from curvflow.tasks.training.step_context import Hyper
from tests.tasks.rules.checks import rule, started, step_at
from tests.tasks.toys import as_data

NET = {"kind": "mlp", "hidden": [4], "activation": "tanh"}
DECODER = {"kind": "transformer", "width": 4, "heads": 2, "layers": 1, "vocabulary": 4}
FORMS = {
    "mc": "sampled",
    "type-2": "exact",
    "recursive": "exact",
    "empirical": "empirical",
}


def images(num_samples=6, side=8, channels=1):
    x = np.random.default_rng(0).normal(size=(num_samples, channels, side, side))
    return as_data(dataset(x, np.arange(num_samples) % 3), "images")


def tokens(num_samples=6, length=3):
    x = np.random.default_rng(0).integers(0, 4, size=(num_samples, length))
    return as_data(dataset(x, np.arange(num_samples) % 2), "tokens")


class Posed:
    """A problem with its samples, two models, their weights and gradients."""

    def __init__(self, data, model=NET, loss="auto", scale=1.0, models=2):
        self.problem = pose(parse_model(model), loss, data)
        self.network = self.problem.network
        self.samples = load_samples(self.problem, [data], "", "cpu", torch.float64)
        self.weights = scale * started(models, self.network.num_parameters)
        self.statistics = self.network.first_statistics().expand(models, -1)
        noise = Noise(range(models), 0, "dropout", self.weights)
        given = self.problem, self.weights, self.statistics, self.samples, noise
        self.gradient = gradients(*given, without=models).gradient

    def context(self, count=0):
        models = len(self.weights)
        given = {"batch": self.samples, "problem": self.problem}
        return step_at(count, models, **given)(slice(0, models))

    def stepped(self, *several, count=0, state=None, name="kfac"):
        """Return the change of the weights, the state, and the hyper-parameters.

        Args:
            several: fields of the rule of each model, or once for all.
            count: steps before.
            state: after these.
            name: of the rule.
        """
        rules = [rule(rule=name, **fields) for fields in several]
        rules = rules if len(rules) > 1 else rules * len(self.weights)
        hyper, functions = Hyper(rules, self.weights), functions_of(rules[0])
        state = state or functions.init(self.weights, hyper, self.problem)
        given = self.gradient, state, self.weights, hyper, self.context(count)
        new, state = functions.step(*given)
        return new - self.weights, state, hyper

    def roots(self, fisher_type, num_draws=1):
        """Return the roots of a pass, with the labels that the first step draws."""
        outputs = json.loads(self.problem.text)["num_outputs"]
        drawn = None
        if fisher_type == "mc":
            draws = fisher_draws(self.problem.loss, outputs, num_draws)
            drawn = self.context().draw((self.samples.count, *draws))
        scale = self.samples.count if self.problem.criterion.is_sum else 1

        def of(part, found):
            given = FORMS[fisher_type], self.problem.loss, found, part.targets
            rows = None if drawn is None else drawn[part.models, part.rows]
            return scale**0.5 * fisher_roots(*given, rows)

        return of

    def factors(
        self, fisher_type="type-2", num_draws=1, fixed=None, given=None, **choices
    ):
        """Return the factors of `kronecker` of the same batch, maybe of given roots."""
        layout = self.network.layout
        recorded = Recorded(
            self.network.outputs_and_uses,
            layout.names,
            layout.shapes,
            self.weights,
            self.statistics if fixed is None else fixed,
            self.samples.inputs,
            self.samples.targets,
            self.roots(fisher_type, num_draws)
            if given is None
            else lambda part, _: given[part.models, part.rows],
            self.samples.count,
            2,
        )
        how = "recursive" if fisher_type == "recursive" else None
        return factors(recorded, Choices(**choices, recursion=how)).operator

    def curvature(self):
        """Return the Gauss-Newton matrices of the loss, (M, D, D)."""
        scale = self.samples.count if self.problem.criterion.is_sum else 1
        operator = BatchedGaussNewton(
            self.network.outputs,
            lambda f, y: scale * self.problem.criterion.of_samples(f, y),
            self.weights,
            self.samples.inputs,
            self.samples.targets,
        )
        size = self.weights.shape[1]
        eye = torch.eye(size, dtype=torch.float64).expand(len(self.weights), -1, -1)
        return operator @ eye
