"""Recorded functions against the functions."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from curvflow.tasks.numerics import stream
from curvflow.tasks.numerics.derivatives.recorded_graphs import (
    CannotRecordError,
    record,
)

MATRIX = torch.randn(3, 3, generator=stream(0, "tape"), dtype=torch.float64)


def several(x):
    first, second = torch.split(MATRIX @ x, [1, 2])
    return torch.cat([second.sin(), first * MATRIX[0, 0], x.new_zeros(1)])


def written(x):
    into = torch.zeros_like(x)
    into[1:].copy_(x[1:])
    return into.mul_(x).div_(2)


def twice(x):
    return torch.tanh(MATRIX @ x) * torch.tanh(MATRIX @ x)


def arguments(count):
    return torch.randn(count, 3, generator=stream(1, "tape"), dtype=torch.float64)


@pytest.mark.parametrize("function", [several, written, twice])
def test_a_tape_gives_the_function_at_other_arguments(function):
    like, *others = arguments(4)
    tape, value = record(function, like)
    assert torch.equal(value, function(like))
    for one in (like, *others):
        assert torch.equal(tape(one), function(one))


@pytest.mark.parametrize("function", [several, written, lambda x: MATRIX[0]])
def test_a_value_is_written_into_memory_at_hand(function):
    like, other = arguments(2)
    tape, _ = record(function, like)
    size = len(function(other))
    memory = torch.full((size + 2,), torch.nan, dtype=torch.float64)
    tape(other, into=memory[1:-1])
    assert torch.equal(memory[1:-1], function(other))
    assert memory[[0, -1]].isnan().all()


def test_parts_are_joined_where_they_belong_without_new_memory():
    x = arguments(1)[0].repeat(100_000)
    tape, _ = record(lambda x: torch.cat([x.sin(), x.cos()]), x)
    room = torch.empty(2 * len(x), dtype=x.dtype)
    with profile(activities=[ProfilerActivity.CPU]) as result:
        tape(x, into=room)
    assert "aten::copy_" not in {event.key for event in result.key_averages()}


def test_the_argument_and_what_is_read_stay_as_they_were():
    (like,), matrix = arguments(1), MATRIX.clone()
    before = like.clone()
    record(written, like)[0](like)
    assert torch.equal(like, before)
    assert torch.equal(MATRIX, matrix)


def count(tape, name):
    return sum(name in str(step.run) for step in tape._steps)


def test_what_is_the_same_twice_is_run_once_and_what_is_not_needed_never():
    (like,) = arguments(1)
    assert count(record(twice, like)[0], "tanh") == 1
    assert count(record(lambda x: (x.exp(), x.sin())[1], like)[0], "exp") == 0


def test_what_the_argument_does_not_enter_is_computed_while_recording():
    (like,) = arguments(1)
    tape, _ = record(lambda x: torch.linalg.inv(MATRIX @ MATRIX) @ x, like)
    assert not count(tape, "inv")
    constant, _ = record(lambda x: MATRIX[0], like)
    assert constant(like).equal(MATRIX[0])


@pytest.mark.parametrize(
    "function",
    [lambda x: x * x.sum().item(), lambda x: x + torch.rand_like(x)],
    ids=["numbers", "draws"],
)
def test_what_cannot_be_run_again_is_refused(function):
    (like,) = arguments(1)
    with pytest.raises(CannotRecordError, match="draws"):
        record(function, like)
