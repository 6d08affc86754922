"""The code of the kinds that ship, and edits of a copy of this package."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from curvflow.flows.plan.code.fingerprints import Code, Fingerprints
from curvflow.schemas.kinds import all_kinds
from tests.flows.plan.code.project import (
    ADAM,
    FILES,
    LINEAR,
    MLP,
    PACKAGE,
    SGD,
    codes,
    copy_package,
    fit,
    moved,
    node,
    own_kind,
    write,
)
from tests.loops import for_each

STUDIES = Path(__file__).parents[4] / "studies"
TRAINED = {"sgd", "adam", "linear", "factory"}
NORMS = {"norms", "norms_linear", "norms_factory"}
ON_WEIGHTS = NORMS | {"sharpness", "plain"}

# The function to which a statement is added, and whose code that is.
EDITS = [
    ("one rule", "tasks/rules/adaptive/adam.py", "step", {"adam"}),
    ("the other rule", "tasks/rules/sgd.py", "init", TRAINED - {"adam"}),
    ("one model", "tasks/models/linear.py", "build", {"linear", "norms_linear"}),
    (
        "another model",
        "tasks/models/mlp.py",
        "build",
        {"sgd", "adam", "norms", "sharpness", "plain"},
    ),
    (
        "how factories are built",
        "tasks/models/factory.py",
        "build",
        {"factory", "norms_factory"},
    ),
    (
        "what networks share",
        "tasks/networks/layers.py",
        "dense_layers",
        (TRAINED | ON_WEIGHTS) - {"factory", "norms_factory"},
    ),
    ("a probe", "tasks/probes/norms.py", "norms", NORMS),
    ("a probe's helper", "tasks/probes/norms.py", "_together", NORMS),
    ("the width of its tiles", "tasks/probes/norms.py", "member_bytes", set()),
    ("the training", "tasks/train.py", "train", TRAINED),
    ("a data set", "tasks/data/factory.py", "factory", {"points"}),
    ("another data set", "tasks/data/xor.py", "xor", set()),
    ("the registry", "tasks/registry.py", "find", set()),
    ("the decorator", "tasks/registry.py", "computes", set()),
    ("a method of parameters", "schemas/rules/_base.py", "hyper", TRAINED),
    ("a check of parameters", "schemas/rules/sgd.py", "_check_momentum", set()),
    ("the engine", "flows/graph/graph.py", "expand", set()),
]


def kept_in(module: str, code: Code) -> bool:
    return any(name.startswith(f"curvflow.{module}") for name in code.definitions)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("copied"), FILES)
    return folder, copy_package(folder)


@pytest.fixture(scope="module")
def before(copied):
    return codes(*copied)


@pytest.mark.parametrize(
    ("file", "function", "concerned"),
    [edit[1:] for edit in EDITS],
    ids=[edit[0] for edit in EDITS],
)
def test_an_edit_of_the_package_concerns_who_runs_it(
    file, function, concerned, copied, before, tmp_path
):
    package = tmp_path / "curvflow"
    shutil.copytree(copied[1], package, copy_function=os.symlink)
    lengthen(package / file, function)
    result = moved(before, codes(copied[0], package))
    assert set(result) == concerned
    module = f"curvflow.{file[:-3].replace('/', '.')}:"
    for name, definitions in result.items():
        (only,) = definitions
        assert only.startswith(module)
        assert only.endswith(function)
        assert only in before[name].paths


def lengthen(path: Path, function: str) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (result,) = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.name == function
    ]
    result.body[-1:] = [*ast.parse("1 + 1").body, result.body[-1]]
    path.unlink()  # a link to the file that all share
    path.write_text(ast.unparse(tree), encoding="utf-8")


def test_a_copy_of_the_package_elsewhere_has_the_same_fingerprints(copied, before):
    assert moved(before, codes(copied[0])) == {}


@pytest.fixture(scope="module")
def prints(copied):
    return Fingerprints(copied[0])


@for_each("name", [n for n, k in all_kinds().items() if not k.home])
def test_every_shipped_kind_has_a_fingerprint(name, prints):
    kind = all_kinds()[name]
    digits = node("data.digits")
    digits.kind = kind
    digits.params = kind.params.model_construct(
        rule=fit(MLP, SGD).params.rule, model=None, factory="lab.points:make"
    )
    code = prints.of(digits)
    assert len(code.fingerprint) == 64
    assert code.definitions
    assert set(code.paths) == set(code.definitions)
    assert all(len(digest) == 16 for digest in code.definitions.values())


def test_every_module_that_tasks_load_by_a_computed_name_is_declared():
    declared = {
        package for kind in all_kinds().values() for package in kind.loads.values()
    }
    loaded = set()
    for path in sorted((PACKAGE / "tasks").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if "import_module" in text else ():
            if (
                isinstance(call, ast.Call)
                and getattr(call.func, "id", "") == "import_module"
                and isinstance(call.args[0], ast.JoinedStr)
            ):
                loaded.add(ast.unparse(call.args[0]).strip("f'").partition(".{")[0])
    # The registry loads the kinds themselves.
    assert loaded - {"curvflow.tasks"} == declared


def test_a_probe_of_a_network_runs_its_model_but_no_rule(tmp_path):
    fingerprints = Fingerprints(tmp_path)
    norms = fingerprints.of(node("probe.norms", weights=fit(MLP, SGD)))
    assert kept_in("tasks.models.mlp:", norms)
    assert not kept_in("tasks.models.linear:", norms)
    assert not kept_in("tasks.rules", norms)
    assert norms.paths["curvflow.tasks.models.mlp:build"] == (
        "curvflow.tasks.probes.norms:norms",
        "curvflow.tasks.models.mlp:build",
    )


def test_training_runs_only_the_rule_and_the_model_that_it_names(tmp_path):
    code = Fingerprints(tmp_path).of(fit(LINEAR, ADAM))
    assert kept_in("tasks.rules.adaptive.adam:", code)
    assert not kept_in("tasks.rules.sgd:", code)
    assert kept_in("tasks.models.linear:", code)
    assert not kept_in("tasks.models.mlp:", code)


def test_what_takes_no_weights_runs_no_model(tmp_path):
    trained = fit(MLP, SGD)
    table = node("aggregate.summary", {"over": "seed"}, of=trained)
    assert not kept_in("tasks.models", Fingerprints(tmp_path).of(table))


def test_weights_made_of_weights_pass_the_model_on(tmp_path):
    write(tmp_path, {"mine.py": "def prune(weights):\n    return weights\n"})
    kind = own_kind("mine", "mine:prune")
    pruned = node(kind, weights=fit(MLP, SGD))
    code = Fingerprints(tmp_path).of(node("probe.norms", weights=pruned))
    assert kept_in("tasks.models.mlp:", code)


def test_alike_nodes_share_their_code(tmp_path):
    fingerprints = Fingerprints(tmp_path)
    first, second = (fit(MLP, {**SGD, "lr": lr}) for lr in (0.1, 0.2))
    assert fingerprints.of(first) is fingerprints.of(second)


TELL = """
import json, sys
from pathlib import Path
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.graph.graph import expand

for study in map(Path, sys.argv[2:]):
    opened = open_study(study, store=sys.argv[1])
    fingerprints = Fingerprints(study.parent)
    graph = expand(opened.study, opened.files)
    print(json.dumps({
        "told": {node.stage: fingerprints.of(node).fingerprint for node in graph},
        "loaded": sorted(sys.modules),
    }))
"""
OWN = {
    "mine.py": """
import numpy as np
from curvflow import Variable, Weights, stage

@stage("probe.count", version=1, outputs=[Variable("count", "how many")])
def count(weights: Weights):
    return {"count": np.array(weights["weights"].size)}
""",
    "own.yaml": """
study: own
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 1}
  count: {use: "mine:count", weights: fit}
""",
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return what one process tells of a shipped study, and then of one's own."""
    folder = write(tmp_path_factory.mktemp("planned"), OWN)
    studies = STUDIES / "quickstart.yaml", folder / "own.yaml"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TELL, folder / "store", *studies],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.processes
def test_the_code_of_a_study_is_reported_without_loading_what_computes(planned):
    result, _ = planned
    assert all(result["told"].values())
    assert "torch" not in result["loaded"]
    computing = [n for n in result["loaded"] if n.startswith("curvflow.tasks.")]
    assert computing == ["curvflow.tasks.registry"]


@pytest.mark.processes
def test_a_stage_of_the_users_own_has_a_fingerprint_in_a_real_study(planned):
    _, result = planned
    assert result["told"].keys() == {"data", "fit", "count"}
    assert all(result["told"].values())
