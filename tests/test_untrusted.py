"""Names from users reach no path unescaped, and no file can run code when read."""

import ast
from pathlib import Path

import pytest

import curvflow
from curvflow.errors import RequestError
from curvflow.flows.upkeep.pins import pin_run
from curvflow.stores.memory import MemoryStore
from tests.pictures import _figures_are_placed_only

__all__ = ["_figures_are_placed_only"]

SOURCE = Path(__file__).parents[1] / "src" / "curvflow"
# What can make code run while it reads; zarr, JSON and text cannot.
EXECUTING = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNPRINTABLE = ["a\0b", "a\nb"]
HOSTILE = [
    "../x",
    "..",
    ".",
    "a/b",
    "/etc/x",
    "a\\b",
    *UNPRINTABLE,
    "",
    " ",
    "~",
    "é",
]

STUDY = """\
study: tiny
axes:
  label: {LABEL: 0.1}
  seed: 2
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [2]},
        rule: {rule: sgd, lr: "${label}"}, seed: "${seed}", epochs: 2}
  table: {use: aggregate.summary, of: fit, over: seed}
  loss: {use: figure.lines, of: fit, y: train_loss, over: seed}
"""


def quoted(name):
    return '"' + "".join(f"\\U{ord(c):08x}" for c in name) + '"'


def written(folder, text):
    path = folder / "home" / "study.yaml"
    path.parent.mkdir()
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize(
    ("where", "line", "plain"),
    [
        ("study", "study: {}\n", "tiny"),
        ("axes", "  {}: {{LABEL", "label"),
        ("stages", "  {}: {{use", "table"),
    ],
    ids=["study", "axes", "stages"],
)
def test_a_name_that_could_be_a_path_is_refused(tmp_path, where, line, plain, name):
    assert line.format(plain) in STUDY
    text = STUDY.replace(line.format(plain), line.format(quoted(name)))
    text = text.replace("LABEL", "some")
    with pytest.raises(RequestError, match=rf"\d: {where}.*expected a.* name"):
        curvflow.run(written(tmp_path, text), store="memory:")
    assert {path.name for path in tmp_path.rglob("*")} == {"home", "study.yaml"}


@pytest.mark.parametrize("label", UNPRINTABLE, ids=ascii)
def test_a_label_that_a_terminal_would_act_on_is_refused(tmp_path, label):
    study = written(tmp_path, STUDY.replace("LABEL", quoted(label)))
    with pytest.raises(RequestError, match="expected a label of printable characters"):
        curvflow.run(study, store=tmp_path / "home" / "store")


LABELS = [name for name in HOSTILE if name not in UNPRINTABLE]


@pytest.mark.parametrize("label", [*LABELS, "../" * 9 + "x"], ids=ascii)
def test_a_label_leaves_no_file_outside_the_folder_of_results(tmp_path, label):
    study = written(tmp_path, STUDY.replace("LABEL", quoted(label)))
    results = curvflow.run(study, store=tmp_path / "home" / "store")
    folder = tmp_path / "home" / "results" / "tiny"
    assert results.files
    assert {path.parent for path in results.files} == {folder}
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    home = {path.name for path in study.parent.iterdir()}
    assert home == {"study.yaml", "store", "results"}


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 101], ids=ascii)
def test_the_name_of_a_pin_is_no_path(name):
    with pytest.raises(RequestError, match="--name"):
        pin_run(MemoryStore(), "tiny", name, number=None, reason="")


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = getattr(node.func.value, "id", "")
            given = {one.arg: ast.unparse(one.value) for one in node.keywords}
            yield f"{owner}.{node.func.attr}", given


def faults(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        yield from (name for name in names if name.partition(".")[0] in EXECUTING)
    for name, given in calls(tree):
        if name == "torch.load" and given.get("weights_only") != "True":
            yield name
        if name.endswith(".load") and given.get("allow_pickle", "False") != "False":
            yield name
        if name in {"np.load", "numpy.load"} and given.get("allow_pickle") != "False":
            yield name
        if name.endswith(".read_pickle"):
            yield name


# A run and its workers, which compute for it, speak in pickles as Dask does, and so do
# a monitor and the process that it starts. Published files are known by their
# checksums, and nothing but arrays is made of them.
PICKLES = (
    "flows/run/runners/",
    "flows/monitor/background.py",
    "flows/published/decoders.py",
)


def test_no_file_is_read_that_could_run_code():
    found = [
        (place, fault)
        for path in sorted(SOURCE.rglob("*.py"))
        for place in [path.relative_to(SOURCE).as_posix()]
        for fault in faults(path.read_text(encoding="utf-8"))
        if fault != "pickle" or not place.startswith(PICKLES)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib.memory import Memory",
        "def f():\n    import shelve",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "np.load(file)",
        "pd.read_pickle(file)",
    ],
)
def test_reading_that_could_run_code_is_found(text):
    assert len(list(faults(text))) >= 1
