"""Training of networks: all members of a tile in one program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.keys import sha256
from curvflow.schemas.kinds.shared.trained import (
    FINAL,
    PERPLEXED,
    PRECONDITIONER,
    RECORDED,
    RULES_RECORD,
)
from curvflow.schemas.kinds.train import TrainParams, kept_epochs, recorded_epochs
from curvflow.schemas.losses import IGNORED, CrossEntropy
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.losses import parse_loss
from curvflow.tasks.networks.problems import (
    Problem,
    data_set_bytes,
    data_shapes,
    grouped,
    load_samples,
    pose,
    read_bytes,
)
from curvflow.tasks.numerics.derivatives.precision import without_tf32
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes
from curvflow.tasks.rules.shared.kfac_memory import PassBytes, factor_pass_bytes
from curvflow.tasks.training.augmentation import augmenter
from curvflow.tasks.training.batches import Batches, LabelNoise, split_validation
from curvflow.tasks.training.cache_blocks import CPU_PASS_BYTES, rows_at_once
from curvflow.tasks.training.curves import Curves, Evaluation, evaluated_rows
from curvflow.tasks.training.fit import Fit
from curvflow.tasks.training.gradients import parts_in_memory
from curvflow.tasks.training.resumption import GroupSnapshots, resumable_epoch, resume
from curvflow.tasks.training.state import Checkpoints
from curvflow.tasks.training.step_context import StepNorms
from curvflow.tasks.training.stopping_criteria import Divergence, EarlyStopping
from curvflow.tasks.training.updates import Updates, group_key


def _params(member: Member) -> TrainParams:
    return cast("TrainParams", member.params)


def _problem(member: Member) -> Problem:
    params = _params(member)
    return pose(params.model, params.loss, member.one("data"))


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: weights, activations, data.

    Activations count by half, up to the bound of a pass: members share the passes.
    """
    params, data = _params(member), member.one("data")
    problem = _problem(member)
    network = problem.network
    item: int = getattr(torch, params.dtype).itemsize
    count = len(data["inputs"])
    batch = min(params.batch_size or count, count)
    evaluated = min(max(count, len(data["test_inputs"])), evaluated_rows(problem, item))

    rows = rows_at_once(problem, item)

    def in_one_pass(samples: int) -> int:
        if rows is not None:  # no pass holds more models than two
            return samples * network.width * item
        return min(samples * network.width * item, CPU_PASS_BYTES)

    # Weights, gradient, two moments, and the temporaries of an update.
    weights = 10 * item * network.num_parameters
    like = torch.empty(0, dtype=getattr(torch, params.dtype))
    parts = parts_in_memory(problem, batch, like, params.accumulation)
    together = len(range(batch)[parts[-1].rows])
    activations = max(4 * in_one_pass(together), 2 * in_one_pass(evaluated)) // 2
    # With a validation set or noise, a full batch is gathered for each member.
    is_own = params.validation_fraction or params.label_noise
    is_copied = is_own and batch == count
    copied = item * data["inputs"].size if is_copied else 0
    if params.augment is not None:  # what was drawn, and before and after it
        copied += 4 * item * batch * data["inputs"].size // count
    numbers = network.num_parameters
    if params.keep_preconditioner:
        numbers += params.rule.preconditioner_size(network.layout.shapes)
    kept = 2 * 8 * len(kept_epochs(params)) * numbers
    if params.until is not None:  # each is stored as it was on reaching the loss
        kept += weights // 2
    outputs = problem.num_outputs
    scratch = 8 * params.rule.scratch(network.layout.shapes, batch, outputs)
    working = scratch + activations
    factors = _factor_pass(member)
    if factors.shared:  # half of the scratch is there before inverses are found
        passes = max(activations, factors.each + factors.shared)
        working = max(scratch, scratch // 2 + passes) - factors.shared
    unshared = weights + working + copied + kept + read_bytes(data, batch, item)
    return unshared + data_bytes(member)


def data_bytes(member: Member) -> int:
    """Return the bytes that members share: of a data set, and of passes for factors."""
    item: int = getattr(torch, _params(member).dtype).itemsize
    return data_set_bytes(member.one("data"), item) + _factor_pass(member).shared


def _factor_pass(member: Member) -> PassBytes:
    params, count = _params(member), len(member.one("data")["inputs"])
    batch = min(params.batch_size or count, count)
    dtype = getattr(torch, params.dtype)
    return factor_pass_bytes(params.rule, _problem(member), batch, dtype)


@computes("train", member_bytes=member_bytes, data_bytes=data_bytes)
def train(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Train one network per member.

    The initial weights and the data order come from the member's seed alone, so that
    rules with equal seeds are compared in pairs; weights given stand in for the initial
    ones. Members that bring the result of shorter training go on from its end.

    Args:
        members: `data`, maybe `weights`, and parameters that differ in seed and rule.
        machine: the device to compute on, and the storage of snapshots.

    Returns:
        Curves, final values, checkpoints, the description of the network, and what the
        rule holds at the end.
    """

    def alike(member: Member) -> object:
        problem = _problem(member)
        shapes = data_shapes(member.one("data"))
        return problem.text, shapes, resumable_epoch(member, problem)

    snapshots = GroupSnapshots(machine.partial)
    return grouped(members, alike, partial(_train_together, machine, snapshots))


@without_tf32()  # three digits fewer than float32, and than a CPU has
def _train_together(
    machine: Machine, snapshots: GroupSnapshots, members: Sequence[Member]
) -> list[Outcome]:
    # Those that are trained alike side by side, so that no step needs to gather them.
    order = sorted(
        range(len(members)), key=lambda n: group_key(_params(members[n]).rule)
    )
    members = [members[number] for number in order]
    fit = _fit(members, machine)
    if note := fit.problem.network.note:
        machine.partial.record(note)
    for line in fit.updates.notes:
        machine.partial.tell(line)
    if not snapshots.begin_group(_name(members), fit) and resumable_epoch(
        members[0], fit.problem
    ):
        resume(fit, members)
    fit.run(snapshots.after_step)
    states = fit.states()
    outcomes = {
        number: _outcome(fit, row, _params(members[row]), states[row])
        for row, number in enumerate(order)
    }
    return [outcomes[number] for number in range(len(members))]


def _name(members: Sequence[Member]) -> str:
    """Return a hash of the members' parameters and inputs."""
    return sha256(
        [
            [
                m.params.model_dump_json(),
                *(n.digest for i in m.inputs.values() for n in i),
            ]
            for m in members
        ]
    )


def _fit(members: Sequence[Member], machine: Machine) -> Fit:
    params, problem = _params(members[0]), _problem(members[0])
    data = [member.one("data") for member in members]
    device, dtype = machine.device, getattr(torch, params.dtype)
    weights_MW = _initial(problem, members).to(device, dtype)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    seeds = [_params(m).seed for m in members]
    training, validation = split_validation(
        load_samples(problem, data, "", device, dtype),
        seeds,
        params.validation_fraction,
    )
    testing = load_samples(problem, data, "test_", device, dtype)
    sets = {"train": training, "validation": validation, "test": testing}
    measured = {
        name: Evaluation(problem, samples, int(data[0]["num_classes"]), params.accuracy)
        for name, samples in sets.items()
    }
    _check_counted(measured, seeds, machine)
    curves = Curves(recorded_epochs(params), problem, measured, len(members))
    updates = Updates([_params(m).rule for m in members], weights_MD, problem)
    scales = updates.scales(weights_MD) if params.keep_preconditioner else None
    return Fit(
        problem,
        weights_MD,
        statistics_MS,
        seeds,
        updates,
        Batches(training, seeds, params.batch_size, drop_last=params.drop_last),
        curves,
        Checkpoints(kept_epochs(params), weights_MW),
        Divergence(len(members), weights_MD.device, params.diverged_above),
        None if scales is None else Checkpoints(kept_epochs(params), scales),
        _early_stopping(params, weights_MW, updates.vectors(weights_MD), scales),
        StepNorms(weights_MD) if params.record_step_norms else None,
        machine.compiler,
        params.accumulation,
        _label_noise(params, problem),
        augmenter(params.augment, problem),
    )


def _check_counted(
    measured: Mapping[str, Evaluation], seeds: Sequence[int], machine: Machine
) -> None:
    """Refuse sets of which no label counts, where training goes by their losses.

    Raises:
        InputError: it is a training or a validation set.
    """
    for name, meaning in {"train": "training", "validation": "validation"}.items():
        if missing := measured[name].uncounted():
            raise InputError(
                f"validation_fraction: expected a {meaning} set with a label that "
                f"counts, got none for seed {seeds[missing[0]]}. Change either."
            )
    if measured["test"].uncounted():
        machine.partial.record("no label of the test data counts: test_loss is NaN")


def _label_noise(params: TrainParams, problem: Problem) -> LabelNoise | None:
    if not params.label_noise:
        return None
    if not problem.has_labels:
        raise InputError(
            "label_noise cannot be combined with values as targets. Remove it, or take "
            "data with labels."
        )
    if problem.loss != "cross_entropy":
        raise InputError(
            "label_noise cannot be combined with a loss other than the plain "
            "cross_entropy of labels that all count. Remove one of them."
        )
    return LabelNoise(params.label_noise, problem.num_outputs)


def _early_stopping(
    params: TrainParams,
    weights_MW: Tensor,
    states: Sequence[Tensor],
    scales: Tensor | None,
) -> EarlyStopping | None:
    if params.until is None:
        return None
    values = torch.empty(len(RECORDED), len(weights_MW), dtype=torch.float64)
    return EarlyStopping(params.until.train_loss, values, weights_MW, states, scales)


def _initial(problem: Problem, members: Sequence[Member]) -> Tensor:
    drawn: dict[tuple[int, str], Tensor] = {}  # of paired runs the same
    weights = []
    for member in members:
        params = _params(member)
        if "weights" in member.inputs:
            weights.append(_trained(problem, member.one("weights")))
            continue
        init = params.rule.init or params.model.init
        law = params.seed, repr(init)
        if law not in drawn:
            generator = stream(params.seed, "init")
            drawn[law] = initial_weights(problem.network, generator, init)
        weights.append(drawn[law])
    return torch.stack(weights)


def _trained(problem: Problem, weights: NodeData) -> Tensor:
    """Return trained weights as the initial weights.

    Raises:
        InputError: they belong to another network.
    """
    theirs, ours = (json.loads(str(t)) for t in (weights["network"], problem.text))
    for part in ("model", "input_shape", "parameters"):
        if theirs[part] != ours[part]:
            raise InputError(
                f"weights: expected a network with the {part} {ours[part]}, got "
                f"{theirs[part]}. Train it from there with the same model."
            )
    return torch.tensor(weights["weights"], dtype=torch.float64)


def _outcome(fit: Fit, number: int, params: TrainParams, state: Tensor) -> Outcome:
    diverged, reached = int(fit.divergence.epoch_M[number]), _reached(fit, number)
    if diverged >= 0:  # its numbers after divergence mean nothing
        state.fill_(torch.nan)
    measured = fit.curves.of(number)
    final = {f"final_{n}": measured[n][-1:].reshape(()) for n in FINAL}
    trained = max(diverged, reached)
    trained = trained if trained >= 0 else params.epochs
    counts = {
        "epoch": fit.curves.epochs,
        "num_gradients": trained * params.rule.gradients_per_step,
        "diverged_epoch": diverged,
        "num_parameters": fit.problem.network.num_parameters,
        "checkpoint": fit.checkpoints.epochs,
    }
    arrays: dict[str, Array] = {
        **measured,
        **final,
        **{name: np.array(count, dtype=np.int64) for name, count in counts.items()},
        "norm_tensor_sum": measured["sum_of_norms"][-1:].reshape(()),
        "weights": fit.checkpoints.of(number).numpy(),
        "network": np.array(fit.problem.text),
        "rule_state": state.numpy(),
        **_optional_arrays(fit, number),
        **_perplexities(fit.problem, measured),
    }
    if not params.rule.chooses_momentum:
        del arrays["chosen_momentum"]
    for name in set(RULES_RECORD) - set(params.rule.records):
        del arrays[name]
    if not params.record_step_norms:
        del arrays["step_norm"]
    if diverged < 0:
        return Outcome(arrays)
    return Outcome(
        arrays, "diverged", f"{fit.divergence.cause(number)} at epoch {diverged}"
    )


def _perplexities(problem: Problem, measured: Mapping[str, Array]) -> dict[str, Array]:
    loss = parse_loss(problem.loss)
    plain = CrossEntropy(ignore_index=getattr(loss, "ignore_index", IGNORED))
    if problem.tokens is None or loss not in ("cross_entropy", plain):
        return {}
    with np.errstate(over="ignore"):
        each = {f"{of}_perplexity": np.exp(measured[f"{of}_loss"]) for of in PERPLEXED}
    return each | {f"final_{n}": curve[-1:].reshape(()) for n, curve in each.items()}


def _reached(fit: Fit, number: int) -> int:
    """Return the epoch of early stopping, -1 without it."""
    return -1 if fit.early_stopping is None else int(fit.early_stopping.epoch_M[number])


def _optional_arrays(fit: Fit, number: int) -> dict[str, Array]:
    """Return the variables of early stopping and of stored scales, if there are any."""
    arrays: dict[str, Array] = {}
    if fit.early_stopping is not None:
        reached = _reached(fit, number)
        arrays["reached"] = np.array(reached >= 0)
        arrays["reached_epoch"] = np.array(float(reached) if reached >= 0 else np.nan)
    if fit.scales is not None:
        scales_CD = fit.scales.of(number).numpy()
        size = fit.updates.preconditioner_sizes[number]
        parts = scales_CD[:, :size], scales_CD[:, -2], scales_CD[:, -1]
        arrays |= dict(zip(PRECONDITIONER, parts, strict=True))
    return arrays
