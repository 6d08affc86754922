"""Some rounds of `make fuzz`: any text is planned, or refused on one line."""

import random

import pytest

from curvflow.schemas.study.study import load_study
from tests.fuzz.__main__ import fuzz_round
from tests.fuzz.grammar import STUDY, random_case
from tests.fuzz.reader import HangError, check, limited, outcome

# Texts that once ended in a traceback, or did not end.
FOUND = {
    "a code point that there is not": STUDY.replace("tiny", '"\\U00110000"'),
    "a number that is a mapping": STUDY.replace(
        "{rule: sgd}, q", "!!int {rule: sgd}, q"
    ),
    "a text that is a list": STUDY.replace("over: [seed]", "over: !!str [seed]"),
    "a number that is nothing": STUDY.replace("study: tiny", "study: !!int"),
    "a name with a line break": STUDY.replace("y: train_loss", 'y: "train\\n_loss"'),
    "a loss of no name": STUDY.replace("epochs: 4", "epochs: 4, loss: {kind: [1]}"),
    "a rule of no name": STUDY.replace("{rule: sgd, lr", "{rule: {a: 1}, lr"),
    "a model of no name": STUDY.replace("kind: mlp", "kind: {a: 1}"),
    "300 brackets": "study: " + "[" * 300,
    "1500 nested keys": "".join(f"{' ' * n}a:\n" for n in range(1500)),
    "a number of 9000 hexadecimal digits": f"study: 0x{'f' * 9000}",
    "a lone surrogate": STUDY.replace("tiny", '"\\ud800"'),
    "a long label of many letters": STUDY.replace(
        "a b", "".join(map(chr, range(0x4E00, 0x4E00 + 20000)))
    ).replace("where: {rule: sgd}", f"where: {{rule: {'漢' * 20000}}}"),
}


@pytest.mark.parametrize("name", FOUND)
def test_texts_that_once_failed_are_refused_on_one_line(name):
    assert check((FOUND[name], ())) != "planned"


def test_the_study_that_is_edited_is_planned():
    assert load_study(STUDY, file="fuzz.yaml").name == "tiny"
    assert outcome((STUDY, ())) == "planned"


@pytest.mark.slow
def test_no_text_ends_in_a_traceback_or_does_not_end():
    for seed in range(1_000_000, 1_000_003):
        fuzz_round(seed, check, by_grammar=40, at_random=200, of_examples=60)


def test_random_texts_are_those_of_their_seed():
    first, again = (
        [random_case(source) for _ in range(50)]
        for source in (random.Random(3), random.Random(3))
    )
    assert first == again
    assert len(set(first)) > 40


def forever():
    while True:
        pass


def test_what_hangs_is_ended():
    with pytest.raises(HangError, match=r"0\.05 s"), limited(0.05):
        forever()
