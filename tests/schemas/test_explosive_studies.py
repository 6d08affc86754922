"""Studies that explode are refused on one line, before they cost time or memory."""

import json
import random
import subprocess
import sys
import textwrap

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.open_study import with_max_nodes
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.study.python_source import plain_document
from curvflow.schemas.study.study import load_study

pytestmark = pytest.mark.processes

HEAD = """\
study: big
axes: {AXES}
stages:
  data: {use: data.two_moons}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, epochs: EPOCHS,
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}"MORE}
"""


def study(axes="seed: 2", epochs="3", more="", below=""):
    text = HEAD.replace("AXES", axes).replace("EPOCHS", epochs)
    return text.replace("MORE", more) + below


def laughs():
    more = [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 31)]
    return "\n".join(["a0: &a0 [lol, lol]", *more])


def long_texts():
    return f"a: &a {'x' * 300_000}\nb: [{', '.join(['*a'] * 30)}]"


CHAIN = "".join(
    f"  s{n}: {{use: aggregate.summary, of: {f's{n - 1}' if n else 'fit'}}}\n"
    for n in range(1100)
)
CASES = {
    "aliases of aliases": (laughs(), "100,000 values"),
    "aliases of long texts": (long_texts(), "1,000,000 characters"),
    "many brackets": ("study: " + "[" * 100_000, "50 levels"),
    "nested keys": ("".join(f"{' ' * n}a:\n" for n in range(1400)), "50 levels"),
    "nested aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000)),
        "50 levels",
    ),
    "a key of 10 MB": (f"? {'k' * 10_000_000}\n: 1\n", "1,000,000 characters"),
    "a key of 0.9 MB": (f"? {'k' * 900_000}\n: 1\n", "a key of a study"),
    "a long number": (study(axes="seed: 0x" + "f" * 9000), "1,200 digits"),
    "a product of axes": (
        study(
            axes="seed: 3000, b: 3000, c: 3000",
            below='  d: {use: data.two_moons, seed: "${b}"}\n'
            "  more: {use: train, data: d, model: {kind: mlp, hidden: [3]}, epochs: 3,"
            ' rule: {rule: sgd, lr: 0.1}, seed: "${c}"}\n'
            "  m: {use: probe.norms, weights: fit}\n"
            '  last: {use: probe.hessian_trace, weights: more, seed: "${seed}"}\n',
        ),
        "10,000,000 nodes",
    ),
    "many axes": (
        study(
            axes=", ".join(["seed: 1000000", *(f"a{n}: 1000000" for n in range(99))])
        ),
        "1,000,000 labels",
    ),
    "a figure of a million labels": (
        study(
            axes="seed: 1000000",
            below="  f: {use: figure.lines, of: fit, y: train_loss, label: seed}\n",
        ),
        "10,000 labels to draw",
    ),
    "a million figures": (
        study(
            axes="seed: 1000000",
            below="  f: {use: figure.lines, of: fit, y: train_loss}\n",
        ),
        "10,000 figures",
    ),
    "a checkpoint at each of many epochs": (
        study(epochs="1000000000000000000000", more=", checkpoints: {every: 1}"),
        "100,000 checkpoints",
    ),
    "the epochs of many networks": (
        study(
            axes="seed: 1000",
            epochs="50000",
            more=", checkpoints: {every: 1}",
            below="  norms: {use: probe.norms, weights: fit, at: all}\n",
        ),
        "10,000,000 nodes",
    ),
    "the checkpoints of many networks": (
        study(
            axes="seed: 900000",
            epochs="30",
            more=", checkpoints: {every: 2}",
            below="  norms: {use: probe.norms, weights: fit, at: all}\n"
            "  t: {use: probe.trace, weights: fit}\n",
        ),
        "got 16,200,001, most of them by seed 900,000 x its epochs",
    ),
    "a chain of stages": (study(below=CHAIN), "1,000 stages"),
    "many profiles": (
        study(below="profiles:\n" + "".join(f"  p{n}: {{}}\n" for n in range(3000))),
        "profiles",
    ),
    "many references": (
        study(
            axes="seed: 1000000",
            below="  m: {use: data.factory, factory: 'a:b', kwargs: {x: ["
            + ", ".join(['"${seed}"'] * 2000)
            + "]}}\n",
        ),
        "2,004 at each of 1,000,000 points",
    ),
}
CHILD = """
import json, os, resource, sys, time
from pathlib import Path
from curvflow.errors import RequestError
from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.kinds import all_kinds
all_kinds()

def plan(path):
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = 1024 * (used.ru_maxrss + 700_000)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    begin = time.process_time()
    try:
        study = open_study(str(path), store="memory:").study
        expand(study, SourceFiles(Path(".")))
        said = "planned"
    except RequestError as error:
        said = str(error)
    seconds = time.process_time() - begin
    path.with_suffix(".json").write_text(json.dumps({"said": said, "seconds": seconds}))

for path in sorted(Path(sys.argv[1]).glob("*.yaml")):
    if not (child := os.fork()):
        plan(path)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return the file of each case, planned by a fork of one process for each."""
    folder = tmp_path_factory.mktemp("explosive")
    files = {name: folder / f"{n}.yaml" for n, name in enumerate(CASES)}
    for name, path in files.items():
        path.write_text(CASES[name][0])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return files, done.stderr


@pytest.mark.parametrize("name", CASES)
def test_what_explodes_is_refused_on_one_line_in_bounded_time_and_memory(planned, name):
    files, said = planned
    path, word = files[name], CASES[name][1]
    answer = path.with_suffix(".json")
    assert answer.exists(), said[-2000:]
    done = json.loads(answer.read_text())
    assert word in done["said"]
    assert "\n" not in done["said"]
    assert len(done["said"]) < 10_000
    assert str(path) in done["said"]
    assert done["seconds"] < 3


def test_a_study_within_the_bound_is_planned_and_one_beyond_it_is_not(tmp_path):
    text = study(axes="seed: 30", epochs="5", more=", checkpoints: {every: 2}")
    text += "  norms: {use: probe.norms, weights: fit, at: all}\n"
    loaded = load_study(text, file="study.yaml")
    number = 1 + 30 + 30 * 4
    graph = expand(with_max_nodes(loaded, number), SourceFiles(tmp_path))
    assert len(list(graph)) == number
    with pytest.raises(StudyError, match=r"at most 150 nodes .* got 151, .* epochs"):
        expand(with_max_nodes(loaded, number - 1), SourceFiles(tmp_path))
    with pytest.raises(StudyError, match=r"at most 10 nodes .* got 151, .* seed 30 x "):
        expand(with_max_nodes(loaded, 10), SourceFiles(tmp_path))


def random_study(draw):
    """Return a study of trainings with stages at some or all of their checkpoints."""
    epochs, every = draw.randint(2, 9), draw.randint(1, 3)
    more = f", checkpoints: {{every: {every}}}"
    text = study(f"seed: {draw.randint(1, 9)}, s: 3", str(epochs), more)
    for number in range(draw.randint(1, 5)):
        at = draw.choice(["", ", at: all", f", at: [0, {epochs}]"])
        use = "probe.norms"
        if not number or draw.random() < 0.5:
            use = 'probe.hessian_trace, seed: "${s}"'
        text += f"  p{number}: {{use: {use}, weights: fit{at}}}\n"
    more = "  more: {use: aggregate.summary, of: p0, over: seed}\n"
    return text + draw.choice(["", more])


@pytest.mark.parametrize("number", range(20))
def test_as_many_nodes_as_a_study_has_are_planned_and_one_fewer_refused(
    tmp_path, number
):
    loaded = load_study(random_study(random.Random(number)), file="study.yaml")
    nodes = len(list(expand(loaded, SourceFiles(tmp_path))))
    expand(with_max_nodes(loaded, nodes), SourceFiles(tmp_path))
    with pytest.raises(StudyError, match=f"at most {nodes - 1} nodes .* got {nodes}"):
        expand(with_max_nodes(loaded, nodes - 1), SourceFiles(tmp_path))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ({"a": range(10**12)}, "100,000 values"),
        ({"a": ["x" * 200_000] * 100}, "1,000,000 characters"),
        ({"a": 1 << 5000}, "1,200 digits"),
    ],
    ids=["values", "characters", "digits"],
)
def test_a_study_built_in_python_has_the_same_bounds(data, word):
    with pytest.raises(StudyError, match=word):
        plain_document(data, "Study")


def test_python_data_nests_no_deeper_than_a_file():
    data = {"a": 1}
    for _ in range(2000):
        data = {"a": data}
    with pytest.raises(StudyError, match="50 levels"):
        plain_document(data, "Study")
