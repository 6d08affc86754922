"""A refused request leaves nothing behind."""

import pytest


@pytest.mark.parametrize("store", [(), ("--store", "new/store")])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rerun", "WRONG"], "--rerun: expected a kind of tiny, got 'WRONG'. "),
        (["--rerun", "fit"], "--rerun: expected a kind of tiny, got 'fit'. "),
        (
            ["--accept-code", "WRONG", "--reason", "none"],
            "--accept-code: expected a kind of tiny, got 'WRONG'. ",
        ),
        (["--revive", "WRONG"], "expected a stage of tiny, got 'WRONG'. "),
        (["--reanalyse"], "expected"),
    ],
    ids=["rerun", "a stage", "accept", "revive", "reanalyse"],
)
def test_a_refused_run_makes_no_store(curvflow, study, arguments, message, store):
    said = curvflow("run", study, *arguments, *store)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert said.err.count("\n") == 1
    assert [*study.parent.iterdir()] == [study]


@pytest.mark.parametrize("folder", ["tiny.yaml", "tiny.yaml/below", "/proc/none"])
def test_a_study_is_not_started_where_nothing_can_be_written(curvflow, study, folder):
    said = curvflow("init", folder)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(
        f"curvflow: {folder}/study.yaml: expected a file that can be written, got "
    )
    assert said.err.endswith(". Name another folder.\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "show", "runs"])
def test_what_is_no_store_is_a_wrong_request(curvflow, study, command):
    said = curvflow(command, study, "--store", study.name)
    line = f"{study.name}: expected a folder, got a file. Name another store."
    assert (said.code, said.out, said.err) == (2, "", f"curvflow: {line}\n")


def test_a_tile_has_a_finite_memory(curvflow, study):
    said = curvflow("run", study, "--tile-memory", "inf")
    line = "--tile-memory: expected a finite number of GiB, got inf. Lower it."
    assert (said.code, said.out, said.err) == (2, "", f"curvflow: {line}\n")
    assert [*study.parent.iterdir()] == [study]


def test_no_memory_is_told_on_one_line(curvflow, study, monkeypatch):
    def exhausted(*_, **__):
        raise MemoryError

    monkeypatch.setattr("curvflow.flows.plan.plan.expand", exhausted)
    said = curvflow("plan", study)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("curvflow: out of memory. ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", [["plan"], ["plan", "--json"], ["run"]])
def test_a_module_of_a_model_that_fails_is_told_before_a_run(curvflow, study, command):
    study.write_text(
        study.read_text().replace(
            "{kind: mlp, hidden: [3]}", '{factory: "loud_1:make"}'
        )
    )
    nets = study.parent / "loud_1.py"
    nets.write_text(
        "print('loud')\nfrom math import nothing\n\ndef make():\n    pass\n"
    )
    said = curvflow(*command, study)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("loud\ncurvflow: ")
    assert (
        "/tiny.yaml:9:50: stages.fit.model.factory: loud_1.py:2: expected a module "
        "that can be imported, got 'loud_1' with ImportError: cannot import name"
    ) in said.err
    assert said.err.count("\n") == 2
