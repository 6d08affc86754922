"""`curvflow gc`, `verify`, `pin` and `unpin` as a person or a script meets them."""

import json

import pytest

from curvflow.stores.local import LocalStore

MORE = ("--set", "stages.fit.epochs=6")


@pytest.fixture
def twice_run(after, study):
    return after(study, ("run",), ("run", *MORE))


def files(study):
    return sorted(str(p) for p in (study.parent / ".curvflow").rglob("*"))


def test_gc_says_what_would_go_and_touches_nothing_without_yes(curvflow, twice_run):
    before = files(twice_run)
    said = curvflow("gc", twice_run, "--keep-runs", 1)
    assert (said.code, said.err) == (0, "")
    assert "no kept run uses it" in said.out
    assert "tiny/trace" in said.out
    assert "nothing is touched without --yes" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert files(twice_run) == before
    assert "nothing to collect" in curvflow("gc", twice_run).out


def test_gc_collects_in_two_passes_and_the_study_stays_done(curvflow, twice_run):
    first = json.loads(
        curvflow("gc", twice_run, "--keep-runs", 1, "--yes", "--json").out
    )
    assert first["acted"]
    assert first["payloads"] > 0
    assert first["seconds"] > 0
    said = curvflow("gc", "--store", ".curvflow", "--keep-runs", 1, "--yes")
    counted = f"{first['payloads']} payloads in the trash since the last gc, "
    assert counted in said.out
    assert "removed for good" in said.out
    assert not list((twice_run.parent / ".curvflow/trash").iterdir())
    again = json.loads(curvflow("run", twice_run, *MORE, "--json").out)
    assert set(again["executed"].values()) == {0}


def test_gc_drops_the_weights_and_the_plan_says_done(curvflow, study):
    curvflow("run", study)
    for _ in range(2):
        assert curvflow("gc", study, "--drop", "train", "--yes").code == 0
    plan = json.loads(curvflow("plan", study, "--json").out)
    assert plan["cached"] == plan["total"]
    wrong = curvflow("gc", study, "--drop", "trains")
    assert (wrong.code, wrong.out) == (2, "")
    assert "Did you mean 'train'?" in wrong.err
    stage = curvflow("gc", study, "--drop", "fit")
    assert (stage.code, stage.out) == (2, "")
    assert "got 'fit'. fit is a stage of kind train.\n" in stage.err


def test_gc_says_which_pins_keep_what_was_to_be_dropped(curvflow, study):
    curvflow("run", study)
    held = json.loads(curvflow("gc", study, "--drop", "train", "--json").out)
    assert held["held"] == []
    for name in ("paper", "talk"):
        curvflow("pin", study, "--name", name)
    answer = json.loads(curvflow("gc", study, "--drop", "train", "--json").out)
    (held,) = answer["held"]
    assert (held["kind"], held["by"]) == ("train", "pinned by paper, talk")
    plural = "payload of train stays" if held["payloads"] == 1 else "payloads of train"
    out = curvflow("gc", study, "--drop", "train").out
    assert f"{held['payloads']} {plural}" in out
    assert ": pinned by paper, talk\n" in out
    assert "nothing to collect" in out


def test_gc_stands_back_from_a_run_that_has_said_nothing_yet(curvflow, study):
    curvflow("run", study)
    store = LocalStore(study.parent / ".curvflow")
    store.begin_run("tiny", document={}, environment={}, options={})
    asked = curvflow("gc", study)
    assert asked.code == 0
    assert asked.out.startswith("nothing is collected: run 2 of tiny")
    done = curvflow("gc", study, "--yes", "--json")
    assert done.code == 1
    answer = json.loads(done.out)
    assert not answer["acted"]
    assert answer["blocked"]


@pytest.mark.parametrize("command", ["gc", "verify"])
def test_a_store_must_be_named_one_way_or_the_other(curvflow, study, command):
    said = curvflow(command)
    assert said.code == 2
    assert "expected STUDY or --store" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "--store", "nowhere"],
        ["gc", "--store", "nowhere"],
        ["gc", "tiny.yaml", "--store", "nowhere", "--yes"],
        ["pin", "tiny.yaml", "--store", "nowhere"],
        ["unpin", "tiny.yaml", "paper", "--store", "nowhere"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_mistyped_store_is_refused_by_who_needs_one(curvflow, study, arguments):
    said = curvflow(*arguments)
    where = study.parent.resolve() / "nowhere"
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"curvflow: {where}: expected a store")
    assert "--store" in said.err
    assert not where.exists()


@pytest.mark.parametrize("command", ["log", "runs"])
def test_a_store_that_is_not_there_yet_is_no_error_to_who_looks(
    curvflow, study, command
):
    said = curvflow(command, study)
    where = study.parent.resolve() / ".curvflow"
    assert (said.code, said.err, said.out) == (0, "", f"no store at {where} yet\n")
    assert json.loads(curvflow(command, study, "--json").out) == []
    for other in ("show", "plan", "why"):
        assert curvflow(other, study).code == 0


def test_verify_shows_what_it_has_read(curvflow, study):
    curvflow("run", study)
    said = curvflow("verify", study)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("16 results in ")
    assert said.out.endswith("all is well\n")
    answer = json.loads(curvflow("verify", study, "--json").out)
    assert answer["well"]
    assert answer["bytes"] > 0


def test_verify_lists_what_will_be_computed_again(curvflow, study):
    curvflow("run", study)
    names = {}
    folder = study.parent / ".curvflow"
    for receipt in LocalStore(folder).index().receipts.values():
        names[receipt.stage] = receipt.payload
    (path,) = folder.glob(f"payloads/*/{names['trace']}*")
    path.write_bytes(path.read_bytes()[:100])
    dry = curvflow("verify", study, "--dry-run")
    assert dry.code == 1
    assert "nothing is changed" in dry.out
    assert path.exists()
    said = curvflow("verify", study)
    assert said.code == 1
    assert "trace: " in said.out
    assert "    trace[seed=0,rule=" in said.out
    assert "moved to quarantine" in said.out
    assert "in quarantine, left to you" in curvflow("gc", study).out
    again = json.loads(curvflow("run", study, "--json").out)
    assert {name for name, n in again["executed"].items() if n} == {"trace"}
    assert curvflow("verify", study).code == 0


def test_verify_of_a_torn_commit_claims_no_more_than_it_knows(curvflow, study):
    curvflow("run", study)
    path = study.parent / ".curvflow/commits/0000000003.json"
    path.write_bytes(b"")
    curvflow("run", study)
    said = curvflow("verify", study)
    assert said.code == 1
    assert said.out.endswith(
        "commit 3: torn or missing, marked as void\n"
        "what these commits held runs again with its study, if still missing\n"
    )


def test_a_pin_keeps_a_run_until_it_is_unpinned(curvflow, study):
    LocalStore(study.parent / ".curvflow").make()
    assert curvflow("pin", study).out.startswith("no pins; `curvflow pin STUDY NAME`")
    none = curvflow("pin", study, "--name", "paper")
    assert (none.code, "expected a finished run, got none" in none.err) == (2, True)
    curvflow("run", study)
    said = curvflow("pin", study, "--name", "paper", "--reason", "its figures")
    assert said.out.split() == ["paper", "run", "1", "of", "tiny", "its", "figures"]
    curvflow("run", study, *MORE)
    assert "nothing to collect" in curvflow("gc", study, "--keep-runs", 1).out
    taken = curvflow("pin", study, "--name", "paper")
    assert (taken.code, "another run" in taken.err) == (2, True)
    curvflow("pin", study, "later", "--run", 2)
    pins = json.loads(curvflow("pin", study, "--json").out)
    assert [(pin["name"], pin["run"]) for pin in pins] == [("paper", 1), ("later", 2)]
    assert pins[0]["reason"] == "its figures"
    assert curvflow("unpin", study, "paper").out == "paper is unpinned\n"
    assert "no kept run" in curvflow("gc", study, "--keep-runs", 1).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pin", "tiny.yaml", "a", "--name", "b"], "expected one name, got a and b"),
        (["pin", "tiny.yaml", "--name", "a/b"], "expected letters, digits, _, -"),
        (["pin", "tiny.yaml", "--name", ""], "expected letters, digits, _, -"),
        (["pin", "tiny.yaml", "--name", "../x"], "expected letters, digits, _, -"),
        (
            ["pin", "tiny.yaml", "--name", "x", "--run", "7"],
            "expected a finished run, got none",
        ),
        (
            ["pin", "tiny.yaml", "--name", "x", "--run", "0"],
            "expected a finished run, got none",
        ),
        (["pin", "tiny.yaml", "1"], "expected a name, got the number 1. Write a name,"),
        (["pin", "tiny.yaml", "--run", "1"], "expected a name"),
        (["pin", "tiny.yaml", "--name", "x", "--reason", "a\nb"], "one line of text"),
        (["unpin", "tiny.yaml", "x"], "There are none."),
    ],
    ids=lambda value: "-".join(value[2:]) if isinstance(value, list) else "",
)
def test_a_wrong_pin_is_refused_in_one_line(curvflow, study, arguments, said):
    LocalStore(study.parent / ".curvflow").make()
    answer = curvflow(*arguments)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1
