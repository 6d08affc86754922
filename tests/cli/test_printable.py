"""Text from results, exceptions, labels and files cannot act on a terminal or a page.

A study whose every field holds what a terminal or a browser would act on is run and put
through every command; what reaches stdout, stderr and files is looked at byte by byte.
"""

import ast
import csv
import logging
import shutil
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import curvflow
from curvflow.cli import app
from curvflow.flows.deployed import deploy, run_page, serve, server, spec
from curvflow.flows.deployed.schedules import read_due_times
from curvflow.flows.doctor import examine
from curvflow.flows.doctor.machine import Finding
from curvflow.flows.graph.heartbeats import _identity
from curvflow.flows.results.results import Results
from curvflow.schemas import kinds
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Data, Numbers, Outcome, Table
from curvflow.schemas.params import Names, Params
from curvflow.schemas.records.receipts import Pin, Settlement
from curvflow.schemas.words import printable
from curvflow.stores.open import open_store
from curvflow.tasks import registry
from curvflow.tasks.registry import computes
from tests.flows.toys import toy_kinds

CLI = Path(app.__file__).parent
# Clears the screen, sets the title and the clipboard, and hides or reverses text.
ACTING = (
    "".join(map(chr, [*range(1, 10), *range(11, 32), *range(127, 160)]))
    + "\x1b]52;c;aGk=\a\x1b[2J\x1b]0;title\x1b\\"
    + "\u2028\u2029\u202a\u202e\u2066\u2069\u200b\u200f\ufeff\u00ad"
)
MARKUP = "</script><img src=x onerror='window.hacked = 1'><script>hacked = 1</script>"
HOSTILE = f"=1+1{ACTING}{MARKUP}"

STUDY = """\
study: hostile
axes:
  seed: [0, 2, 3]
  tag: {plain: 1}
stages:
  data: {use: toy.points}
  say: {use: hostile.say, data: data, seed: "${seed}", tag: "${tag}"}
  fall: {use: hostile.say, data: data, seed: 1, tag: "${tag}"}
  table: {use: toy.mean, of: say, over: seed, quantities: [square]}
  text: {use: hostile.table, of: say, over: [seed, tag]}
expect:
  - {stage: say, where: {seed: 0}, quantity: square, value: 1.0, within: 0.5,
     source: "HOSTILE"}
"""


class SayParams(Params):
    """Parameters of the kind that says what it should not."""

    seed: int
    tag: int


class TableParams(Params):
    """Parameters of the table of such text."""

    over: Names


SAY = Kind(
    name="hostile.say",
    version=1,
    summary=f"Say {HOSTILE}.",
    params=SayParams,
    returns=Numbers,
    outputs=(
        Variable("square", f"a number {HOSTILE}", units=f"m {HOSTILE}"),
        Variable("text", f"a text {HOSTILE}", dtype="str"),
        Variable("verdict", "converged, or not", dtype="str"),
    ),
    inputs={"data": Input(Data)},
    varying=("seed", "tag"),
    vectorised=False,
)
TABLE = Kind(
    name="hostile.table",
    version=1,
    summary="A table of hostile text.",
    params=TableParams,
    returns=Table,
    outputs=(
        Variable("quantity", "its name", ("quantity",), dtype="str"),
        Variable("mean", "mean", ("quantity",)),
        Variable("units", "its units", ("quantity",), dtype="str"),
    ),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over",),
    vectorised=False,
)


def _say(members, _):
    (member,) = members
    if member.params.seed == 1:
        raise RuntimeError(HOSTILE)
    arrays = {
        "square": np.array(float(member.params.seed)),
        "text": np.array(HOSTILE),
        "verdict": np.array(HOSTILE),
    }
    if member.params.seed == 2:
        return [Outcome(arrays, "diverged", HOSTILE)]
    warnings.warn(HOSTILE, stacklevel=1)
    return [Outcome(arrays)]


def _table(members, _):
    row = {"quantity": np.array([HOSTILE]), "mean": np.array([1.0])}
    return [Outcome({**row, "units": np.array([HOSTILE])}) for _ in members]


@pytest.fixture(scope="module", autouse=True)
def _hostile_kinds():
    added = {kind.name: kind for kind in (SAY, TABLE)}
    with toy_kinds(), mock.patch.dict(kinds._added, added):
        computes("hostile.say")(_say)
        computes("hostile.table")(_table)
        yield
    for name in added:
        del registry._implementations[name]


def quoted(text):
    return "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in text)


@pytest.fixture
def command(request):
    """Return the function that runs a command."""
    return request.getfixturevalue("curvflow")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of the study, in a store that somebody has written hostile entries to."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.yaml"
    path.write_text(STUDY.replace("HOSTILE", quoted(HOSTILE)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curvflow.run(path, workers=1)
    store = open_store(path.parent / ".curvflow", create=False)
    index = store.index()
    (run,) = index.runs
    receipt = next(r for r in index.receipts.values() if r.stage == "table")
    store.pin(Pin(HOSTILE, run.begun, HOSTILE))
    store.settle([Settlement(HOSTILE, [["a", "b"]], HOSTILE)])
    store.evict([receipt.payload], HOSTILE)
    live = store.begin_run(HOSTILE, document={}, environment={}, options={})
    store.write_heartbeat(live, _identity() | {"host": HOSTILE, "count": 1})
    return path


@pytest.fixture
def hostile(made, tmp_path, monkeypatch):
    """A copy of that folder, which is the current one."""
    shutil.copytree(made.parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / made.name


def acting(text):
    return sorted({c for c in text if not c.isprintable() and c != "\n"})


def assert_inert(said, code=None):
    assert acting(said.out) == []
    assert acting(said.err) == []
    assert code is None or said.code == code, said
    return said


# Prefect's server is not needed to see what these print.
LISTED = server.ListedDeployment(HOSTILE, HOSTILE, HOSTILE, [HOSTILE], HOSTILE)
OUTCOME = deploy.DeployOutcome(
    spec.DeploymentSpec(HOSTILE, HOSTILE, {}, read_due_times(None, "6h", "UTC")),
    False,
    [spec.Change(HOSTILE, HOSTILE, [HOSTILE]), spec.Change("x", None, HOSTILE)],
    [HOSTILE],
)


def served(_, on_start):
    on_start(OUTCOME, 1)
    return mock.Mock(name="SIGTERM")


COMMANDS = {
    "init": [["init", f"new{ACTING}"]],
    "kinds": [["kinds"], ["kinds", "hostile.say"], ["kinds", "hostile.say", "seed"]],
    "schema": [["schema"]],
    "plan": [["plan", "STUDY"], ["plan", "STUDY", "--json"]],
    "run": [["run", "STUDY"], ["run", "STUDY", "--json"]],
    "runs": [["runs", "STUDY"], ["runs", "STUDY", "--json"]],
    "why": [
        ["why", "STUDY"],
        ["why", "STUDY", "fall"],
        ["why", "STUDY", "--json"],
        ["why", "STUDY", "--code"],
    ],
    "diff": [["diff", "STUDY", 1, 1], ["diff", "STUDY", 1, 1, "--json"]],
    "show": [
        ["show", "STUDY"],
        ["show", "STUDY", "say"],
        ["show", "STUDY", "say", "--variable", "text"],
        ["show", "STUDY", "text", "--all"],
        ["show", "STUDY", "say", "--csv"],
        ["show", "STUDY", "say", "--json"],
    ],
    "check": [["check", "STUDY"], ["check", "STUDY", "--json"]],
    "report": [["report", "STUDY"]],
    "export": [
        ["export", "STUDY", "say", "-o", "say.csv", "--variable", "text"],
        ["export", "STUDY", "text", "-o", "text.csv", "--spreadsheet"],
    ],
    "log": [["log", "STUDY", "--all"], ["log", "STUDY", "--all", "--json"]],
    "pin": [["pin", "STUDY"], ["pin", "STUDY", "--json"]],
    "unpin": [["unpin", "STUDY", "missing"], ["unpin", "STUDY", HOSTILE]],
    "gc": [["gc", "STUDY"], ["gc", "STUDY", "--json"]],
    "verify": [["verify", "STUDY"], ["verify", "STUDY", "--json"]],
    "deploy": [
        ["deploy", "--list"],
        ["deploy", "STUDY"],
        ["deploy", "--list", "--json"],
    ],
    "serve": [["serve", "STUDY", "--every", "6h"]],
    "doctor": [["doctor"], ["doctor", "--json"]],
}


def test_every_command_is_walked():
    assert COMMANDS.keys() == app.COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_what_a_terminal_would_act_on(hostile, command, name):
    finding = Finding(HOSTILE, "FAIL", HOSTILE, HOSTILE)
    with (
        mock.patch.object(server, "list_deployments", return_value=[LISTED]),
        mock.patch.object(deploy, "deploy", return_value=OUTCOME),
        mock.patch.object(serve, "serve", served),
        mock.patch.object(examine, "examine", return_value=[finding]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        for arguments in COMMANDS[name]:
            words = [hostile if word == "STUDY" else word for word in arguments]
            said = assert_inert(command(*words))
            assert "Traceback (most recent call last):\n  File" not in said.err
            assert said.out + said.err
    for path in hostile.parent.rglob("*.[ch][st][vm]*"):
        assert acting(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize("name", COMMANDS)
def test_no_refusal_repeats_what_a_terminal_would_act_on(hostile, command, name):
    folder = hostile.parent / f"f{ACTING}"
    folder.mkdir()
    other = folder / "study.yaml"
    shutil.copy(hostile, other)
    where = ["--where", HOSTILE] if name in ("show",) else ["--store", HOSTILE]
    for words in ([name, HOSTILE], [name, f"--{HOSTILE}"], [name, other, *where]):
        if words[0] == name == "init":
            continue
        assert_inert(command(*words))
    assert_inert(command(HOSTILE), code=2)


def test_an_unforeseen_exception_is_shown_in_full_and_escaped(command, study):
    def fail(*_, **__):
        raise ZeroDivisionError(HOSTILE)

    with mock.patch("curvflow.flows.plan.plan.make_plan", fail):
        said = assert_inert(command("plan", study), code=1)
    assert "Traceback" in said.err
    assert r"\x1b[2J" in said.err


def test_lines_of_a_log_are_escaped(capsys):
    app._escape_what_others_print()
    record = logging.LogRecord("curvflow", 30, "f", 1, HOSTILE, (), None)
    assert acting(logging.lastResort.format(record)) == []


def test_a_spreadsheet_is_given_no_formula(hostile, command):
    table = hostile.with_name("say.csv")
    arguments = ["export", hostile, "say", "-o", table, "--variable", "text"]
    command(*arguments)
    with table.open(newline="") as file:
        assert any(row["text"].startswith("=1+1") for row in csv.DictReader(file))
    command(*arguments, "--spreadsheet")
    with table.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert any(cell.startswith("'=1+1") for cell in cells)
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


def test_numbers_stay_numbers_in_a_spreadsheet():
    from curvflow.flows.results.outputs import as_csv

    rows = [{"a": -1.5, "b": -2, "c": "-x", "d": None, "e": np.float64(-0.5)}]
    assert as_csv(rows, spreadsheet=True) == "a,b,c,d,e\n-1.5,-2,'-x,,-0.5\n"


def test_only_csv_is_written_for_a_spreadsheet(hostile, command):
    said = command("export", hostile, "say", "-o", "say.nc", "--spreadsheet")
    assert said.code == 2
    assert "--spreadsheet cannot be combined with .nc" in said.err


def test_texts_and_states_under_prefect_are_escaped():
    sent = []

    class Client:
        def request(self, _, __, json=None, **___):
            sent.append(str(json))
            return mock.Mock(json=lambda: {"id": "1"})

        def create_logs(self, logs):
            sent.extend(log.message for log in logs)

        def set_task_run_state(self, _, state, **__):
            sent.append(state.message)

    messages = mock.Mock(send=lambda message: message(Client()))
    page = run_page.Page(mock.Mock(), messages)
    with mock.patch("prefect.client.schemas.actions.LogCreate", mock.Mock):
        page.line(HOSTILE)
    page.text("key", HOSTILE, f"a\n\n{HOSTILE}")
    page._stages["fit"] = mock.Mock()
    page.stage_ends("fit", "FAILED", HOSTILE)
    assert len(sent) == 3
    assert [acting(text.replace("\\n", "\n")) for text in sent] == [[], [], []]


def test_a_notebook_is_given_no_markup_and_nothing_that_acts(hostile):
    results = curvflow.open(hostile)
    assert isinstance(results, Results)
    assert acting(results._repr_html_()) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢 → α", "plain ü 漢 → α"),
        ("two\nlines", "two\nlines"),
        ("tab\tand\r", r"tab\tand\r"),
        ("\x1b[2J\x9b\x7f", r"\x1b[2J\x9b\x7f"),
        ("\u202egnp\u2066\u200b\u2028", r"\u202egnp\u2066\u200b\u2028"),
        ("\ud800\U000e0001", r"\ud800\U000e0001"),
        ("", ""),
    ],
    ids=ascii,
)
def test_what_acts_is_written_in_its_escaped_form(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


WRITERS = {"typer.echo", "typer.secho", "print", "sys.stdout.write", "sys.stderr.write"}


def unescaped(tree):
    """Yield the lines that print without `printable`, by whatever way there is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        is_writer = name in WRITERS or name.endswith("console.print")
        if is_writer and "printable(" not in ast.unparse(node.args[0]):
            yield f"{node.lineno}: {name}"


def test_nothing_is_printed_around_the_function_that_escapes():
    found = {
        path.name: lines
        for path in CLI.rglob("*.py")
        if (lines := list(unescaped(ast.parse(path.read_text("utf-8")))))
    }
    assert found == {}
    source = (CLI.parent).rglob("*.py")
    printing = [
        path.name
        for path in source
        if not path.is_relative_to(CLI)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in WRITERS
    ]
    assert printing == []


@pytest.mark.parametrize("line", ["typer.echo(text)", "self._console.print(f'{a}')"])
def test_printing_around_it_would_be_found(line):
    assert list(unescaped(ast.parse(line)))
