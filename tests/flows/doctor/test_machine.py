"""Cores, memory and suspicious settings of a machine."""

import pytest

from curvflow.flows.doctor.machine import machine_findings


def test_this_machine_has_cores_and_memory():
    cores, memory, threads = machine_findings({})
    assert (cores.state, memory.state, threads.state) == ("ok", "ok", "ok")
    assert int(cores.message.split()[0]) >= 1
    assert float(memory.message.split()[0]) > 0
    assert threads.message == "no variable set; --threads decides"


@pytest.mark.parametrize(
    ("said", "state"), [("1", "ok"), ("100000", "warn"), ("many", "warn")]
)
def test_a_variable_that_asks_for_more_threads_than_cores_is_warned_of(said, state):
    *_, threads = machine_findings({"OMP_NUM_THREADS": said})
    assert (threads.state, threads.message) == (state, f"OMP_NUM_THREADS={said}")
    assert bool(threads.remedy) == (state == "warn")


def test_little_memory_is_warned_of():
    _, memory, _ = machine_findings({}, memory=1 << 30)
    assert memory.state == "warn"
    assert memory.message.startswith("1.0 GiB")
    assert memory.remedy
