"""Every way to get a study wrong, with the one line that says so."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study
from curvflow.schemas.study.validation_messages import COMBINED
from tests.loops import for_each
from tests.schemas.fakes import FILE, STUDY, edited, fake_kinds

TABLE = Path(__file__).with_name("broken_studies.yaml").read_text(encoding="utf-8")
CASES = YAML(typ="safe", pure=True).load(TABLE)
# Words of pydantic and of Python that no user should have to read.
JARGON = re.compile(r"Input|pydantic|https?:|dict|tuple|Traceback|NoneType|ValueError")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_study_is_refused_with_the_full_message_for(case):
    text = case["text"] if "text" in case else edited(*case.get("edits", ()))
    kinds = nullcontext() if case.get("shipped") else fake_kinds()
    with kinds, pytest.raises(StudyError) as caught:
        load_study(
            text,
            file=FILE,
            profile=case.get("profile"),
            overrides=case.get("set", ()),
        )
    assert str(caught.value) == case["message"]


@for_each("case", CASES)
def test_a_message_is_one_line_that_says_place_and_what_was_expected(case):
    message = case["message"]
    assert re.match(r"(study\.yaml:\d+:\d+|--set|--profile)", message)
    if COMBINED not in message:
        assert re.search(r": expected .+, got .+?[.?] \S.*[.?]$", message)
    assert "\n" not in message
    assert not JARGON.search(message)


def test_the_study_that_is_broken_is_itself_in_order():
    with fake_kinds():
        assert load_study(STUDY, file=FILE).name == "toys"
