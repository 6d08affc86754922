"""Variables, chance, the network and processes that a user's code uses."""

import json
import os

import numpy as np
import pytest

from curvflow.flows.plan.why.explain import explain
from curvflow.flows.reads import between_calls, hook, places
from tests.flows.reads.project import flip, reader

VARIABLE = 'def read():\n    return float(os.environ.get("MY_VALUE", "0"))'


def test_a_variable_that_is_not_declared_is_warned_of_once_per_stage(mine, monkeypatch):
    monkeypatch.setenv("MY_VALUE", "1")
    reader(mine, VARIABLE)
    mine.executed()
    (warning,) = mine.lines
    assert "MY_VALUE" in warning
    assert "env: [MY_VALUE]" in warning
    assert mine.reads()["one"] == {"undeclared": ["MY_VALUE"]}


READINGS = {
    "default": "os.environ.setdefault('MY_VALUE', '3')",
    "popped": "os.environ.pop('MY_VALUE', None)",
    "bytes": "os.environb.get(b'MY_VALUE')",
    "expanded": "os.path.expandvars('$MY_VALUE')",
    "asked": "'MY_VALUE' in os.environ",
    "getenv": "os.getenv('MY_VALUE')",
}


@pytest.mark.parametrize("how", READINGS)
def test_a_variable_that_is_read_in_any_way_is_warned_of(mine, monkeypatch, how):
    monkeypatch.setenv("MY_VALUE", "1")
    reader(mine, f"def read():\n    {READINGS[how]}\n    return 1.0")
    mine.executed()
    assert mine.reads()["one"] == {"undeclared": ["MY_VALUE"]}


def test_what_an_installed_module_starts_on_import_is_not_warned_of(
    mine, tmp_path_factory, monkeypatch
):
    folder = tmp_path_factory.mktemp("installed")
    (folder / "starting.py").write_text("import os\nos.system('true')\n")
    monkeypatch.setattr(places, "_installed", lambda: (f"{folder}/",))
    monkeypatch.syspath_prepend(str(folder))
    mine.names.add("starting")
    reader(mine, "def read():\n    import starting\n    return 1.0")
    mine.executed()
    assert mine.lines == []


@pytest.mark.processes
def test_a_pool_of_processes_is_warned_of(mine):
    reader(
        mine,
        """
import multiprocessing
def read():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(float, ("1",))
""",
    )
    mine.executed()
    assert [line[:25] for line in mine.lines] == ["one: uses another process,"[:25]]


def test_a_declared_variable_counts_by_the_digest_of_its_value(mine, monkeypatch):
    monkeypatch.setenv("MY_VALUE", "12345678")
    reader(mine, VARIABLE)
    mine.study(one='use: "mine:one", env: [MY_VALUE]', two='use: "mine:two"')
    mine.executed()
    assert mine.lines == []
    assert "12345678" not in json.dumps(mine.reads())
    assert mine.executed() == {}
    monkeypatch.setenv("MY_VALUE", "2")
    assert mine.causes() == ["variable MY_VALUE: has another value"]
    assert mine.executed() == {"one": 1}
    monkeypatch.delenv("MY_VALUE")
    assert mine.executed() == {"one": 1}


def test_a_copy_of_all_variables_is_no_use_of_each(mine):
    reader(mine, "def read():\n    return float(len({**os.environ}) > 0)")
    mine.executed()
    assert mine.lines == []


CHANCE = {
    "unseeded": "import random\ndef read():\n    random.seed()\n"
    "    return random.random()",
    "own_unseeded": "import random\ndef read():\n    return random.Random().random()",
    "torch_unseeded": "import torch\ndef read():\n    torch.seed()\n"
    "    return float(torch.rand(()))",
    "random": "import random\ndef read():\n    return random.random()",
    "many": "import random\ndef read():\n"
    "    return [random.random() for _ in range(9**4)][0]",
    "numpy": "def read():\n    return np.random.rand()",
    "generator": "def read():\n    return np.random.default_rng().random()",
    "torch": "import torch\ndef read():\n    return float(torch.rand(()))",
    "network": "import socket\ndef read():\n"
    "    return socket.getaddrinfo('localhost', 1) and 1.0",
    "process": "import subprocess\ndef read():\n    subprocess.run(['true'])\n"
    "    return 1.0",
}


@pytest.mark.parametrize("source", CHANCE)
def test_chance_network_and_processes_are_warned_of(mine, source, monkeypatch):
    # Other tests may have left threads of Dask in this process.
    monkeypatch.setattr(between_calls, "serves", lambda: False)
    reader(mine, CHANCE[source])
    mine.executed()
    assert len(mine.lines) == 1
    assert mine.lines[0].startswith("one: uses ")


def test_what_threads_of_dask_may_have_drawn_is_no_chance(mine, monkeypatch):
    monkeypatch.setattr(between_calls, "serves", lambda: True)
    reader(mine, CHANCE["random"])
    mine.executed()
    assert mine.lines == []


SEEDED = {
    "random": "import random\ndef read():\n    random.seed(0)\n"
    "    return random.random()",
    "own": "import random\ndef read():\n    return random.Random(0).random()",
    "numpy": "def read():\n    np.random.seed(0)\n    return np.random.rand()",
    "generator": "def read():\n    return np.random.default_rng(0).random()",
    "torch": "import torch\ndef read():\n    torch.manual_seed(5)\n"
    "    return float(torch.rand(()))",
}


@pytest.mark.parametrize("source", SEEDED)
def test_seeded_generators_are_no_chance(mine, source):
    reader(mine, SEEDED[source])
    mine.executed()
    assert mine.lines == []


def test_nothing_is_patched_and_nothing_is_heard_while_no_code_of_a_users_runs(mine):
    before = os.environ.encodekey, np.random.bit_generator.randbits
    reader(mine, VARIABLE)
    mine.executed()
    assert hook._eyes == ()
    assert (os.environ.encodekey, np.random.bit_generator.randbits) == before


def test_why_tells_what_a_result_stands_on(mine, monkeypatch):
    reader(mine, VARIABLE.replace("\n", '\n    open(HERE + "/x.txt").close()\n'))
    mine.write("x.txt", "1")
    monkeypatch.setenv("MY_VALUE", "1")
    mine.executed()
    (answer,) = explain(mine.plan(), "one", {})
    first, *lines = str(answer).splitlines()
    assert "done" in first
    assert lines[0].startswith("  read x.txt, content 6b86b273ff34")
    assert lines[1] == "  used the variable MY_VALUE, which is not declared"
    flip(mine.folder / "x.txt")
    (answer,) = explain(mine.plan(), "one", {})
    assert str(answer).startswith("one: stale: file x.txt: content 6b86b273ff34 -> ")
