"""Losses of chains about networks that are not dense layers alone."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from curvflow.schemas.models import parse_model
from curvflow.tasks.llc import losses as sampled
from curvflow.tasks.networks.problems import Samples, pose

MEMBERS, CHAINS, COUNT = 2, 4, 7
OWNER = torch.tensor([0, 1, 1, 0])
EXACT = {"rtol": 1e-11, "atol": 1e-12}
CASES = {
    "strings": ({"kind": "conv1d_xord", "filters": 2}, (6,), 2),
    "images": ({"kind": "preresnet", "depth": 8, "width": 0.125}, (1, 8, 8), 3),
    "dropout": ({"kind": "lenet5", "dropout": 0.5}, (1, 28, 28), 3),
}


def posed(case):
    model, shape, classes = CASES[case]
    data = {"inputs": np.zeros((COUNT, *shape)), "targets": np.zeros(COUNT)}
    data["test_targets"] = data["targets"][:0]
    return pose(
        parse_model(model), "cross_entropy", data | {"num_classes": np.array(classes)}
    )


def drawn(case, problem, members):
    """Samples of each member, or of one for all; weights and statistics of chains."""
    _, shape, classes = CASES[case]
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(members, COUNT, *shape, generator=source).double()
    targets = torch.randint(classes, (members, COUNT), generator=source)
    network = problem.network
    weights_CD = torch.randn(CHAINS, network.num_parameters, generator=source).double()
    # Means and variances that no data have had.
    kept = torch.rand(CHAINS, network.statistics.size, generator=source).double()
    return Samples(inputs, targets), 0.2 * weights_CD, 0.5 + kept


def by_autograd(problem, samples, weights_CD, statistics_CS, rows_CB):
    """Mean losses and gradients chain by chain, no network being in training."""
    losses, gradients = [], []
    for chain, owner in enumerate(OWNER.tolist()):
        member = owner if len(samples.inputs) > 1 else 0
        rows = slice(None) if rows_CB is None else rows_CB[chain]
        w_D = weights_CD[chain].clone().requires_grad_()
        w_1W = torch.cat([w_D, statistics_CS[chain]])[None]
        outputs = problem.network.outputs(w_1W, samples.inputs[member, rows][None])
        loss = cross_entropy(outputs[0], samples.targets[member, rows])
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, w_D)[0])
    return torch.stack(losses), torch.stack(gradients)


@pytest.mark.parametrize("passes", ["one", "several"])
@pytest.mark.parametrize("batch", [None, 5])
@pytest.mark.parametrize("members", [1, MEMBERS])
@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_those_of_each_chain(
    monkeypatch, case, members, batch, passes
):
    problem = posed(case)
    samples, weights_CD, statistics_CS = drawn(case, problem, members)
    rows_CB = None
    if batch is not None:
        source = torch.Generator().manual_seed(2)
        rows_CB = torch.randint(COUNT, (CHAINS, batch), generator=source)
    if passes == "several":
        # Three samples of one chain at once.
        each = 8 * problem.network.width
        monkeypatch.setattr(sampled, "CHAIN_BYTES", 3 * each)
        monkeypatch.setattr(sampled, "PASS_BYTES", {"cpu": 3 * each})
    losses = sampled.SampledLosses(problem, samples, statistics_CS, OWNER)
    assert losses._dense is None
    taken = weights_CD.clone()
    found_C, found_CD = losses.gradients(taken, rows_CB)
    expected = by_autograd(problem, samples, weights_CD, statistics_CS, rows_CB)
    torch.testing.assert_close(found_C, expected[0], **EXACT)
    torch.testing.assert_close(found_CD, expected[1], **EXACT)
    torch.testing.assert_close(losses.values(taken, rows_CB), expected[0], **EXACT)
    assert torch.equal(taken, weights_CD)


def test_more_passes_are_taken_where_they_are_to_be_small(monkeypatch):
    problem = posed("strings")
    samples, weights_CD, statistics_CS = drawn("strings", problem, 1)
    seen = []
    whole = sampled.SampledLosses._losses

    def watched(self, weights_CD, statistics_CS, samples, draw):
        seen.append((len(weights_CD), samples.count))
        return whole(self, weights_CD, statistics_CS, samples, draw)

    monkeypatch.setattr(sampled.SampledLosses, "_losses", watched)
    each = 8 * problem.network.width
    monkeypatch.setattr(sampled, "CHAIN_BYTES", 4 * each)
    monkeypatch.setattr(sampled, "PASS_BYTES", {"cpu": 8 * each})
    sampled.SampledLosses(problem, samples, statistics_CS, OWNER).values(
        weights_CD, None
    )
    assert seen == [(2, 4), (2, 3), (2, 4), (2, 3)]
