"""Requests that `curvflow deploy` and `curvflow serve` refuse before any request."""

import pytest


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    """Name no server: whoever asks one gets another complaint.

    Prefect reads its settings once in a process, so none may be made up here.
    """
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.mark.parametrize("cron", ["0 25 * * *", "@daily", "0 2 * *", "0 0 2 * * *", ""])
@pytest.mark.parametrize("command", ["deploy", "serve"])
def test_a_wrong_cron_expression_is_answered_with_what_was_expected(
    curvflow, study, command, cron
):
    said = curvflow(command, study, "--cron", cron)
    assert said.code == 2
    assert said.err == (
        "curvflow: --cron: expected minute hour day month weekday, each in its range, "
        "got "
        f"'{cron}'. '0 2 * * *' is every night at two.\n"
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--every", "6x"], "--every: expected a span of time, got '6x'."),
        (["--every", "6h", "--cron", "0 2 * * *"], "--cron cannot be combined"),
        (["--timezone", "Berlin"], "got 'Berlin'. Did you mean 'Europe/Berlin'?"),
        (["--timezone", "Nirgends/Wo"], "expected a time zone such as Europe/Berlin"),
        (
            ["--name", "a/b"],
            "--name: expected a name without / and %, got 'a/b'. Rename",
        ),
        (["--store", "memory:"], "--store: expected a store that outlasts a run"),
        (["--scheduler", "host"], "--scheduler: expected an address such as tcp://"),
        (["--profile", "mroe"], "Did you mean 'more'?"),
        (["--set", "stages.fit.epohs=3"], "Did you mean 'epochs'?"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value[0],
)
def test_a_wrong_option_is_refused_on_one_line(curvflow, study, options, complaint):
    said = curvflow("deploy", study, *options)
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert complaint in line


def test_a_study_that_cannot_be_planned_is_not_deployed(curvflow, study):
    study.write_text(study.read_text().replace("weights: fit", "weights: fitt"))
    said = curvflow("deploy", study)
    assert said.code == 2
    assert "tiny.yaml:" in said.err
    assert "Did you mean 'fit'?" in said.err
    assert said.err == curvflow("plan", study).err


def test_deploying_wants_a_study_and_serving_a_schedule(curvflow, study):
    assert curvflow("deploy").err == (
        "curvflow: expected STUDY or --list, got neither. Name a study file.\n"
    )
    assert curvflow("serve", study).err == (
        "curvflow: expected --every or --cron, got neither. Try --every 6h.\n"
    )
