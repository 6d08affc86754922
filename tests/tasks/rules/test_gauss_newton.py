"""Steps by conjugate gradients against dense solves and closed forms."""

from functools import partial

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Member, NodeData
from curvflow.tasks.rules import gauss_newton
from curvflow.tasks.training.state import leaves
from tests.tasks.rules.checks import rule, trained_on
from tests.tasks.rules.posed import NET, Posed
from tests.tasks.toys import as_data, blobs, train_all, train_member, waves

# For the tests that hold for all rules.
SETTINGS = [
    {"momentum": "quadratic", "l2": 0.01, "cg_tolerance": 0.3, "cg_steps": 4},
    {"matrix": "layers", "cg_steps": 2, "warm_start": 0.95, "step": "lr", "lr": 0.5},
    {
        "preconditioner": "kron",
        "factor_decay": 0.9,
        "inv_update_steps": 2,
        "cg_steps": 2,
        "damping_adaptation_interval": 2,
        "reject": True,
        "kl_clip": 0.5,
    },
]

# Solved as well as double precision allows.
SOLVED = {"cg_tolerance": 1e-12, "cg_steps": 300, "damping": 0.2, "l2": 0.05}
KRON = {"preconditioner": "kron", "fisher_type": "type-2", "inverse": "exact"}


@pytest.fixture(scope="module")
def posed():
    return Posed(blobs())


def damped_of(posed, matrix, damping):
    """Return the dense matrix that is solved with."""
    curvature = posed.curvature()
    if matrix == "layers":
        kept = torch.zeros_like(curvature[0])
        for places in posed.network.layout.modules().values():
            kept[places[:, None], places] = 1.0
        curvature = curvature * kept
    return curvature + damping * torch.eye(len(curvature[0]), dtype=torch.float64)


def solved(matrix, right):
    return torch.linalg.solve(matrix, right.unsqueeze(2)).squeeze(2)


def stepped(posed, *fields, **given):
    return posed.stepped(*fields, **given, name="gauss_newton")


@pytest.mark.parametrize("loss", ["cross_entropy", "sse"])
@pytest.mark.parametrize("matrix", ["whole", "layers"])
@pytest.mark.parametrize("preconditioner", [{}, KRON], ids=["plain", "kron"])
def test_a_step_is_that_of_the_dense_solve(loss, matrix, preconditioner):
    posed = Posed(blobs() if loss == "cross_entropy" else waves(), loss=loss)
    fields = {**SOLVED, **preconditioner, "matrix": matrix}
    change, state, _ = stepped(posed, fields)
    gradient = posed.gradient + 0.05 * posed.weights
    direction = -solved(damped_of(posed, matrix, 0.25), gradient)
    # The length is the best by the whole matrix.
    whole = damped_of(posed, "whole", 0.25)
    image = (whole @ direction.unsqueeze(2)).squeeze(2)
    slope = (gradient * direction).sum(1, keepdim=True)
    rate = -slope / (direction * image).sum(1, keepdim=True)
    torch.testing.assert_close(state.control.rate, rate, rtol=1e-8, atol=0)
    torch.testing.assert_close(change, rate * direction, rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(
        state.control.predicted, rate * slope / 2, rtol=1e-8, atol=0
    )
    assert (state.residual <= 1e-12).all()
    if matrix == "whole":
        torch.testing.assert_close(rate, torch.ones_like(rate), rtol=1e-8, atol=0)


@pytest.mark.parametrize("preconditioner", [{}, KRON], ids=["plain", "kron"])
def test_one_step_solves_a_linear_regression(preconditioner):
    data = waves()
    fields = {**SOLVED, **preconditioner, "damping": 0.0, "l2": 0.0}
    rules = [rule(rule="gauss_newton", **fields, damping_adaptation_interval=1)] * 2
    (end,), problem = trained_on(data, {"kind": "linear"}, rules, 1)
    x = np.c_[data["inputs"], np.ones(len(data["inputs"]))]
    best = np.linalg.lstsq(x, data["targets"], rcond=None)[0]
    tensors = problem.network.layout.named(end)
    weight, bias = tensors["layer1.weight"].mT, tensors["layer1.bias"][:, None]
    for solution in torch.cat([weight, bias], 1):
        np.testing.assert_allclose(solution, best, rtol=1e-8, atol=1e-10)


def test_factors_that_are_the_matrix_leave_one_product():
    posed = Posed(waves(), {"kind": "linear"})
    fields = {**SOLVED, "cg_tolerance": 1e-9}
    _, state, hyper = stepped(posed, {**fields, **KRON})
    assert (state.iterations == 1).all()
    _, plain, _ = stepped(posed, fields)
    assert (plain.iterations > 1).all()
    recorded = gauss_newton.recorded(state, hyper)
    assert recorded["cg_iterations"] is state.iterations
    assert recorded["cg_residual"] is state.residual
    assert set(recorded) == set(hyper.rule.records)


def test_products_are_limited_and_the_step_is_the_best_that_they_reach(posed):
    change, state, _ = stepped(posed, {**SOLVED, "cg_steps": 3})
    assert (state.iterations == 3).all()
    gradient = posed.gradient + 0.05 * posed.weights
    matrix, spanned = damped_of(posed, "whole", 0.25), [gradient]
    for _ in range(2):
        spanned.append(solved(torch.linalg.inv(matrix), spanned[-1]))
    krylov = torch.linalg.qr(torch.stack(spanned, dim=2))[0]
    small = krylov.mT @ matrix @ krylov
    within = solved(small, (krylov.mT @ gradient.unsqueeze(2)).squeeze(2))
    expected = -(krylov @ within.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(change, expected, rtol=1e-8, atol=1e-11)
    # What is left of the residual is what is recorded.
    left = (matrix @ change.unsqueeze(2)).squeeze(2) + gradient
    recorded = left.norm(dim=1) / gradient.norm(dim=1)
    torch.testing.assert_close(state.residual[:, 0], recorded, rtol=1e-8, atol=0)


def test_each_network_stops_at_its_own_residual(posed):
    fields = [{**SOLVED, "cg_tolerance": tol} for tol in (0.3, 1e-6)]
    change, state, _ = stepped(posed, *fields)
    loose, tight = state.iterations.flatten().tolist()
    assert loose < tight
    assert state.residual[0] <= 0.3
    assert state.residual[0] > 1e-3
    assert state.residual[1] <= 1e-6
    for row, one in enumerate(fields):
        alike, _, _ = stepped(posed, one)
        assert torch.equal(change[row], alike[row])


@pytest.mark.parametrize("matrix", ["whole", "layers"])
def test_a_warm_start_begins_with_a_multiple_of_the_last_solution(posed, matrix):
    fields = {**SOLVED, "matrix": matrix, "damping_adaptation_interval": None}
    whole, state, _ = stepped(posed, {**fields, "warm_start": 1.0})
    fields["cg_tolerance"] = 1e-9
    again, after, _ = stepped(
        posed, {**fields, "warm_start": 1.0}, count=1, state=state
    )
    assert (after.iterations == 0).all()
    torch.testing.assert_close(again, whole, rtol=1e-12, atol=0)
    # A share of it begins with the rest of the residual.
    half = {**fields, "warm_start": 0.5, "cg_tolerance": 0.51}
    _, after, _ = stepped(posed, half, count=1, state=state)
    assert (after.iterations == 0).all()
    expected = torch.full_like(after.residual, 0.5)
    torch.testing.assert_close(after.residual, expected, rtol=1e-9, atol=0)
    # Beside others without a start a network begins with none.
    cold, warm = ({**fields, "warm_start": start} for start in (0.0, 1.0))
    beside, _, _ = stepped(posed, cold, warm, count=1, state=state)
    alone, _, _ = stepped(posed, cold)
    assert torch.equal(beside[0], alone[0])


@pytest.mark.parametrize("fields", SETTINGS)
def test_a_model_alone_steps_as_among_others(fields):
    posed, alone = Posed(blobs()), Posed(blobs())
    change, state, _ = stepped(posed, fields)
    alone.weights, alone.gradient = alone.weights[:1], alone.gradient[:1]
    alone.statistics = alone.statistics[:1]
    of_one, state_of_one, _ = stepped(alone, fields)
    assert torch.equal(of_one, change[:1])
    for one, both in zip(leaves(state_of_one), leaves(state), strict=True):
        assert (one is None and both is None) or torch.equal(one, both[:1])


@pytest.mark.parametrize("preconditioner", [{}, KRON], ids=["plain", "kron"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_diverged_model_leaves_its_siblings_bit_for_bit(number, preconditioner):
    posed = Posed(blobs(), models=3)
    whole, _, _ = stepped(posed, {**SOLVED, **preconditioner})
    posed.weights, posed.gradient = posed.weights.clone(), posed.gradient.clone()
    posed.weights[1, 0] = posed.gradient[1] = number
    change, _, _ = stepped(posed, {**SOLVED, **preconditioner})
    assert torch.equal(change[[0, 2]], whole[[0, 2]])
    assert not torch.isfinite(change[1]).all()


def test_singular_factors_without_damping_end_in_a_verdict():
    data = blobs()
    twice = {n: np.c_[data[n], data[n][:, :1]] for n in ("inputs", "test_inputs")}
    flat = as_data({**data.arrays, **twice}, "flat")
    fields = {"damping": 0.0, "damping_adaptation_interval": None, "cg_steps": 5}
    members = [
        train_member(
            flat, model={"kind": "logistic"}, rule={"rule": "gauss_newton", **one}
        )
        for one in (
            {**fields, "preconditioner": "kron"},
            {**fields, "preconditioner": "kron", "l2": 0.1},
        )
    ]
    singular, damped = train_all(members)
    assert singular.status == "diverged"
    assert damped.status == "ok"


def test_many_networks_are_multiplied_in_several_passes(posed, monkeypatch):
    four = Posed(blobs(), models=4)
    whole, _, _ = stepped(four, SOLVED)
    monkeypatch.setattr("curvflow.tasks.rules.shared.kfac_networks.CPU_GRAPH_BYTES", 1)
    apart, _, _ = stepped(four, SOLVED)
    torch.testing.assert_close(apart, whole, rtol=1e-10, atol=1e-13)


def test_resumed_training_is_the_same_bit_for_bit():
    fit = partial(train_member, blobs(), model=NET, batch_size=16)

    def nodes(epochs):
        rules = [{"rule": "gauss_newton", **fields} for fields in SETTINGS]
        return [fit(rule=one, epochs=epochs) for one in rules]

    whole, short = train_all(nodes(2)), train_all(nodes(1))
    longer = [
        Member(
            node.params,
            node.inputs,
            earlier=NodeData("fit", "train", {}, done.arrays, "e", done.status),
        )
        for node, done in zip(nodes(2), short, strict=True)
    ]
    for result, other in zip(train_all(longer), whole, strict=True):
        names = "weights", "rule_state", "train_loss", "cg_iterations", "cg_residual"
        for name in names:
            np.testing.assert_array_equal(result.arrays[name], other.arrays[name])
        assert np.isnan(result.arrays["cg_iterations"][0])
        assert (result.arrays["cg_iterations"][1:] > 0).all()


def test_what_factors_cannot_see_is_refused_with_factors_alone():
    with pytest.raises(InputError, match="gauss_newton cannot be combined with a loss"):
        stepped(Posed(waves(), loss="huber"), KRON)
    change, _, _ = stepped(Posed(waves(), loss="huber"), {})
    assert torch.isfinite(change).all()
    batch_norm = {"factory": "tests.tasks.toys:make_batch_norm"}
    with pytest.raises(InputError, match="gauss_newton cannot be combined with a fac"):
        stepped(Posed(blobs(), batch_norm), {})


def test_a_tolerance_of_one_is_refused():
    with pytest.raises(ValueError, match="less than 1"):
        rule(rule="gauss_newton", cg_tolerance=1.0)
