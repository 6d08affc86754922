"""Kinds defined in a notebook: cached like any other, and compared like any other."""

import linecache
import sys
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

import curvflow
from curvflow.errors import ChangedCodeError, RequestError
from curvflow.flows.plan.code.cells import typed_text
from curvflow.flows.plan.code.sources import is_typed
from curvflow.schemas import kinds
from curvflow.tasks import registry

KIND = """
import curvflow
from curvflow import Numbers, Outcome, Params, Variable

class Chosen(Params):
    power: int = 2

@curvflow.stage("note.size", version=1, outputs=[Variable("size", "a size")])
def size(weights: curvflow.Weights, params: Chosen):
    \"\"\"Size of the weights.\"\"\"
    return {"size": scaled(abs(weights["weights"]).sum()) ** params.power}
"""
HELPER = "FACTOR = 2.0\n\ndef scaled(x):\n    return FACTOR * x\n"
STAGES = {
    "data": {"use": "toy.points"},
    "fit": {"use": "toy.fit", "data": "data", "seed": "${seed}"},
    "size": {"use": "note.size", "weights": "fit"},
}


class Notebook:
    """Runs cells as IPython does: compiled under a name that linecache knows."""

    def __init__(self):
        self.main, self.cells = ModuleType("__main__"), []

    def run(self, text):
        # IPython names a cell after its text.
        name = f"<ipython-input-{hash(text)}>"
        self.cells.append(name)
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        exec(compile(text, name, "exec"), self.main.__dict__)


class Prompt(Notebook):
    """Keeps what was run in `In` as well, in its order."""

    def run(self, text):
        self.main.__dict__.setdefault("In", [""]).append(text)
        super().run(text)


@pytest.fixture(params=[Notebook, Prompt])
def notebook(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = request.param()
    monkeypatch.setitem(sys.modules, "__main__", notebook.main)
    with mock.patch.dict(kinds._added), mock.patch.dict(registry._implementations):
        yield notebook
    for name in notebook.cells:
        linecache.cache.pop(name, None)


def executed(seeds=2, **asked):
    study = curvflow.Study(axes={"seed": seeds}, stages=STAGES)
    results = curvflow.run(study, **asked)
    assert results.run.failures == []
    return results.run.counts["executed"]["size"]


def test_a_kind_of_a_cell_is_computed_once_and_for_new_seeds(notebook):
    notebook.run(HELPER)
    notebook.run(KIND)
    assert executed() == 2
    assert executed() == 0
    assert executed(seeds=3) == 1
    expected = [(2 * 0.5**4) ** 2, (4 * 0.5**4) ** 2, (6 * 0.5**4) ** 2]
    study = curvflow.Study(axes={"seed": 3}, stages=STAGES)
    sizes = curvflow.open(study)["size"]["size"]
    np.testing.assert_allclose(sizes, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (KIND.replace(") **", " + 1) **"), "__main__:size changed"),
        (HELPER.replace("* x", "+ x"), r"__main__:scaled changed \(by size > scaled\)"),
        ("FACTOR = 3.0", r"__main__:FACTOR changed \(by size > scaled > FACTOR\)"),
        ("FACTOR += 1", "__main__:FACTOR changed"),
        ("def scaled(x): return x", "__main__:scaled changed.*__main__:FACTOR removed"),
        ("for FACTOR in [5, 6]: pass", "__main__:FACTOR changed"),
    ],
)
def test_a_changed_cell_is_noticed_and_questioned(notebook, cell, message):
    notebook.run(HELPER)
    notebook.run(KIND)
    executed()
    notebook.run(cell)
    with pytest.raises(ChangedCodeError, match=message) as caught:
        executed()
    assert "answer=curvflow.Answer(" in "".join(caught.value.__notes__)
    notebook.run(HELPER)
    notebook.run(KIND)
    assert executed() == 0
    notebook.run(cell)
    assert executed(answer=curvflow.Answer(rerun=["note.size"])) == 2
    assert executed() == 0


@pytest.mark.parametrize(
    "cell",
    [
        KIND,
        HELPER,
        HELPER.replace("(x):", "(x):\n    # what it is times\n"),
        KIND.replace("Size of", "How large"),
        "x = object()\nresults = {1: 2}\ndef idle(): return x",
        "import numpy as np\nfrom pathlib import Path as P\nclass A: pass",
        "_1 = 5",
    ],
)
def test_cells_that_change_nothing_cost_nothing(notebook, cell):
    notebook.run(HELPER)
    notebook.run(KIND)
    executed()
    notebook.run(cell)
    assert executed() == 0


def test_a_raised_version_computes_again_without_asking(notebook):
    notebook.run(HELPER)
    notebook.run(KIND)
    executed()
    notebook.run(KIND.replace("version=1", "version=2").replace(") **", " + 1) **"))
    assert executed() == 2


def test_a_restarted_kernel_finds_what_the_last_one_left(notebook, monkeypatch):
    notebook.run(HELPER + KIND)
    executed()
    again = type(notebook)()
    monkeypatch.setitem(sys.modules, "__main__", again.main)
    again.run(KIND)
    again.run(HELPER)
    assert executed() == 0
    again.run(HELPER.replace("2.0", "2.5"))
    with pytest.raises(ChangedCodeError, match="__main__:FACTOR changed"):
        executed()


def test_parameters_of_a_cell_that_was_run_again_are_those_of_now(notebook):
    notebook.run(HELPER)
    notebook.run(KIND)
    study = curvflow.Study(axes={"seed": 1}, stages=STAGES)
    curvflow.run(study)
    notebook.run(KIND.replace("power: int = 2", "power: int = 3"))
    results = curvflow.run(study)
    assert results.run.counts["executed"]["size"] == 1
    assert float(results["size"]["size"][0]) == pytest.approx((2 * 0.5**4) ** 3)


def test_workers_are_refused_a_kind_that_they_cannot_import(notebook):
    notebook.run(HELPER)
    notebook.run(KIND)
    with pytest.raises(RequestError, match=r"note\.size: .*Move it to a module.*"):
        executed(workers=2)
    assert executed(workers=1) == 2


@pytest.mark.parametrize("unseen", [HELPER, KIND, HELPER + KIND])
def test_what_stands_in_no_cell_is_reported_by_its_bytecode(notebook, unseen):
    for text in (HELPER, KIND):
        notebook.run(text)
        if text in unseen:
            exec(text, notebook.main.__dict__)  # as IPython does under %%time
    executed()
    exec(unseen, notebook.main.__dict__)
    assert executed() == 0
    exec(HELPER.replace("FACTOR * x", "FACTOR * x + 1"), notebook.main.__dict__)
    with pytest.raises(ChangedCodeError, match=r"__main__:scaled .*size > scaled"):
        executed()


def test_bytecode_shows_constants_inner_functions_and_methods(notebook):
    def digest_of(text):
        exec(text, notebook.main.__dict__)
        return typed_text()

    box = "class Box:\n    @property\n    def area(self): return {}\n"
    closed = "def make(y):\n    return lambda: y\nf = make({})\ndel make\n"
    nested = "def f(x):\n    return [y + {} for y in (lambda: x)()]\n"
    for template in (
        box,
        closed,
        nested,
        "def f(x, y=(1, {})): pass",
        "def f(*, y={}): pass",
    ):
        first = digest_of(template.replace("{}", "1"))
        assert digest_of(template.replace("{}", "1")) == first
        assert digest_of(template.replace("{}", "2")) != first


def test_names_stand_for_what_they_mean_now(notebook):
    notebook.run("import numpy as np\nfrom pathlib import PurePath\nt = (1, [2.0])")
    notebook.run("a = np.arange(3.0)\nlong = list(range(1000))\nb = object()")
    notebook.run("class Box:\n    side = 1\nf = lambda x: x\n_2 = 5\nc, d = b, b")
    notebook.run("class Box:\n    side = 2\n    def area(self): return self.side ** 2")
    text = typed_text().decode()
    parts = text.splitlines()
    assert {"import numpy as np", "from pathlib import PurePath", "t = (1, [2.0])"} <= {
        *parts
    }
    assert text.count("c, d = (b, b)") == text.count("class Box") == 1
    assert "side = 2" in text
    assert "f = lambda x: x" in parts
    assert "_2" not in text
    assert max(map(len, parts)) < 150
    notebook.run("a = a + 0")
    assert typed_text().decode() == text
    notebook.run("a[0] = 1")
    assert typed_text().decode() != text


@pytest.mark.parametrize(
    "cell",
    [
        "def scaled(x, k=K): return k * x",
        "def scaled(x, *, k=K): return k * x",
        "class Sc:\n    k = K\n\ndef scaled(x): return Sc.k * x",
        "def make(k):\n    return lambda x: k * x\n\nscaled = make(K)",
        "scaled = (lambda k: lambda x: k * x)(K)",
        "def by(k):\n    return lambda f: lambda x: k * f(x)\n\n"
        "@by(K)\ndef scaled(x): return x",
    ],
)
def test_what_was_taken_when_a_function_was_defined_is_noticed(notebook, cell):
    notebook.run("K = 2.0")
    notebook.run(cell)
    notebook.run(KIND)
    notebook.run("K = 3.0")
    executed()  # with the function of before
    assert executed() == 0
    notebook.run(cell)
    with pytest.raises(ChangedCodeError, match="__main__:"):
        executed()


@pytest.mark.parametrize(
    "made",
    [
        "np.float64(n)",
        "torch.tensor(float(n))",
        "torch.full((2,), n, dtype=torch.bfloat16)",
        "frozenset([n])",
        "[np.full(2, n)]",
        "{'a': np.float64(n)}",
        "np.array([(n, 1.0)], dtype='i4,f8')",
    ],
)
def test_values_that_a_cell_makes_anew_are_noticed(notebook, made):
    cell = f"n = next(count)\nK = {made}\ndel n"
    notebook.run("import itertools, numpy as np, torch\ncount = itertools.count(1)")
    notebook.run(cell)
    notebook.run("def scaled(x):\n    return x if K is not None else -x")
    notebook.run(KIND)
    executed()
    assert executed() == 0
    notebook.run(cell)
    with pytest.raises(ChangedCodeError, match="__main__:K changed"):
        executed()


def test_a_script_has_a_file_and_is_read_from_it(notebook):
    assert is_typed("__main__")
    notebook.main.__file__ = "script.py"
    assert not is_typed("__main__")
    assert not is_typed("json")
