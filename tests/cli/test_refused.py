"""What is refused leaves nothing behind."""

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
