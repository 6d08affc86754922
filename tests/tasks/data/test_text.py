"""Windows of a text's tokens."""

import gzip
import json
import random
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.data.text import TextParams
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.text"


def node(text, tokenizer=None, **params):
    """Return a member with the bytes of a text, as if read from a file."""
    content = text if isinstance(text, bytes) else text.encode()
    files = {"path": {"bytes": np.frombuffer(content, np.uint8)}}
    if tokenizer is not None:
        params |= {"tokenizer": "tokenizer.json", "unit": "tokenizer"}
        read = np.frombuffer(tokenizer.encode(), np.uint8)
        files["tokenizer"] = {"bytes": read}
    return replace(member(KIND, {"path": "story.txt", **params}), files=files)


def made(text, tokenizer=None, **params):
    planned = node(text, tokenizer, **params)
    find_kind(KIND).check(planned.params, planned.files)
    (outcome,) = compute(KIND, [planned])
    assert_declared(KIND, outcome)
    samples = find_kind(KIND).samples_in_files(planned.params, planned.files)
    arrays = outcome.arrays
    assert samples.shape == arrays["inputs"].shape[1:]
    assert samples.tokens == arrays["targets"].shape[1]
    assert samples.outputs == arrays["num_classes"]
    assert samples.vocabulary == len(arrays["vocabulary"])
    assert arrays["num_classes"] == params.get("num_classes", samples.vocabulary)
    return arrays


def spelt(arrays, name="inputs"):
    """Return the pieces of each sample."""
    return arrays["vocabulary"][arrays[name]].tolist()


def expected(text, p):
    """Return inputs and targets of both parts as lists of pieces, by plain loops."""
    text = text.lower() if p.get("lowercase") else text
    packed = p.get("windows") == "packed"
    parts = [d for d in text.split("\n\n") if d.strip()] if packed else [text]
    pieces, starts = [], []
    for part in parts:
        starts.append(len(pieces))
        found = re.findall(r"\w+|[^\w\s]", part) if p["unit"] == "words" else [*part]
        pieces += found + ["<end>"] * packed
    cut = len(pieces) - round(p["test_fraction"] * len(pieces))
    if packed and cut < len(pieces):
        cut = min(starts[1:], key=lambda s: abs(s - cut))
    seen = pieces[:cut] if p.get("vocabulary") == "training" else pieces
    counts = sorted(Counter(w for w in seen if w != "<end>").items())
    counts.sort(key=lambda entry: -entry[1])
    known = {w for w, _ in counts[: p.get("max_tokens")]} | {"<end>"}
    pieces = [w if w in known else "<unk>" for w in pieces]

    def windows(part):
        step, length = p.get("stride") or p["length"], p["length"]
        at = range(0, len(part) - length, step)
        inputs = [part[s : s + length] for s in at]
        return inputs, [part[s + 1 : s + length + 1] for s in at]

    return *windows(pieces[:cut]), *windows(pieces[cut:]), sorted(known - {"<end>"})


def random_text(draw):
    """Return documents of words and marks, some of them rare."""
    words = ["the", "The", "cat", "mat", "sat_2", "é", "ß", "数", "don't", "x"]
    documents = [
        " ".join(draw.choices(words, k=draw.randint(1, 9))) + draw.choice(".!?\n")
        for _ in range(draw.randint(6, 14))
    ]
    return draw.choice(["\n\n", "\n\n\n\n"]).join(documents)


def random_params(draw):
    params = {
        "unit": draw.choice(["characters", "words"]),
        "length": draw.randint(2, 5),
        "test_fraction": draw.choice([0.0, 0.2, 0.45]),
        "lowercase": draw.random() < 0.5,
        "windows": draw.choice(["contiguous", "packed"]),
        "vocabulary": draw.choice(["whole", "training"]),
    }
    if draw.random() < 0.5:
        params["stride"] = draw.randint(1, 7)
    if draw.random() < 0.5:
        params["max_tokens"] = draw.randint(1, 8)
    return params


@pytest.mark.parametrize("seed", range(60))
def test_random_texts_are_cut_as_by_plain_loops(seed):
    draw = random.Random(seed)
    text, params = random_text(draw), random_params(draw)
    x, y, x_test, y_test, known = expected(text, params)
    arrays = made(text, **params)
    assert spelt(arrays) == x
    assert spelt(arrays, "targets") == y
    assert spelt(arrays, "test_inputs") == x_test
    assert spelt(arrays, "test_targets") == y_test
    unknown = params.get("max_tokens") or params["vocabulary"] == "training"
    special = ["<unk>"] * bool(unknown) + ["<end>"] * (params["windows"] == "packed")
    assert arrays["vocabulary"].tolist() == known + special


@pytest.mark.parametrize("seed", range(3))
def test_more_classes_than_tokens_change_nothing_else(seed):
    draw = random.Random(seed)
    text = "".join(draw.choices("abcdefg \n", k=200))
    unit = draw.choice(["words", "characters"])
    plain = made(text, unit=unit, length=3)
    size = len(plain["vocabulary"])
    more = made(text, unit=unit, length=3, num_classes=size + draw.randrange(9))
    for name in plain.keys() - {"num_classes"}:
        np.testing.assert_array_equal(more[name], plain[name])
    with pytest.raises(InputError, match=f"expected at least {size}, one for each tok"):
        made(text, unit=unit, length=3, num_classes=size - 1)


def test_the_next_token_is_the_target_and_windows_do_not_overlap():
    arrays = made("abcdefghij", length=3, test_fraction=0.0)
    assert ["".join(w) for w in spelt(arrays)] == ["abc", "def", "ghi"]
    assert ["".join(w) for w in spelt(arrays, "targets")] == ["bcd", "efg", "hij"]
    assert arrays["test_inputs"].shape == (0, 3)


def test_no_token_of_the_test_part_is_in_a_training_window():
    text = "".join(chr(0x4E00 + n) for n in range(200))
    arrays = made(text, length=7, stride=2, test_fraction=0.3)
    train = set(arrays["inputs"].flat) | set(arrays["targets"].flat)
    test = set(arrays["test_inputs"].flat) | set(arrays["test_targets"].flat)
    assert max(train) < 140 <= min(test)


def test_line_ends_and_the_mark_of_the_byte_order_do_not_count():
    plain = made("a b\n\nc d\n\ne f\n\n" * 2, length=2)
    lines = b"a b\r\n\r\nc d\r\n\r\ne f\r\n\r\n" * 2
    windows = made(b"\xef\xbb\xbf" + lines, length=2)
    for name in plain:
        np.testing.assert_array_equal(plain[name], windows[name])


def test_documents_are_separated_as_asked():
    text = "abc\ndef\n\nghi\njkl"
    params = {"windows": "packed", "length": 3, "test_fraction": 0.0}
    lines = made(text, separator="\n", **params)
    joined = ["abc<end>", "def<end>", "ghi<end>", "jkl<end>"]
    pieces = [*spelt(lines), [spelt(lines, "targets")[-1][-1]]]
    assert "".join("".join(window) for window in pieces) == "".join(joined)
    assert "\n" in made(text, **params)["vocabulary"]


def test_letters_that_are_in_the_test_part_alone_are_unknown():
    arrays = made(
        "abab" * 5 + "axbx", length=2, test_fraction=4 / 24, vocabulary="training"
    )
    assert arrays["vocabulary"].tolist() == ["a", "b", "<unk>"]
    assert spelt(arrays, "test_inputs") == [["a", "<unk>"]]
    assert spelt(arrays, "test_targets") == [["<unk>", "b"]]


# A tokenizer whose tokens are words; 7 is nobody's number.
LEVELS = {"<unk>": 0, "cat": 1, "the": 2, "sat": 3, ".": 4, "on": 5, "mat": 6}
WORDS = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 8,
                "content": "</s>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "model": {"type": "WordLevel", "vocab": LEVELS, "unk_token": "<unk>"},
    }
)
STORY = "The cat sat.\n\nThe dog sat on the mat.\n\nThe cat sat on the cat."


def test_a_tokenizer_finds_the_tokens_whole_and_of_all_documents():
    pytest.importorskip("tokenizers")
    contiguous = made(STORY, WORDS, length=4, stride=1, test_fraction=0.0)
    plain = [LEVELS.get(w, 0) for w in re.findall(r"\w+|\.", STORY.lower())]
    assert contiguous["inputs"][:, 0].tolist() == plain[: len(contiguous["inputs"])]
    assert contiguous["num_classes"] == 9
    assert contiguous["vocabulary"].tolist() == [*LEVELS, "", "</s>"]
    packed = made(
        STORY, WORDS, length=3, windows="packed", end_token="</s>", test_fraction=0.3
    )
    assert [" ".join(w) for w in spelt(packed)] == [
        "the cat sat",
        ". </s> the",
        "<unk> sat on",
        "the mat .",
    ]
    assert [" ".join(w) for w in spelt(packed, "test_inputs")] == [
        "the cat sat",
        "on the cat",
    ]


def test_a_tokenizer_without_the_package_is_refused_while_planning(monkeypatch):
    text = "curvflow.schemas.kinds.data.text.find_spec"
    monkeypatch.setattr(text, lambda name: None)
    with pytest.raises(InputError, match="Run pip install tokenizers"):
        made(STORY, WORDS)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ("{", "expected a tokenizer.json"),
        ("[]", "expected a tokenizer.json"),
        ('{"model": {"vocab": {}}}', "expected a tokenizer.json"),
        ('{"model": {"vocab": {"a": -1}}}', "expected a tokenizer.json"),
        ('{"model": {"vocab": {"a": 99999999999}}}', "expected a tokenizer.json"),
        ('{"model": {"vocab": {"a": "b"}}}', "expected a tokenizer.json"),
        (WORDS, "end_token: expected a token of the tokenizer, got '<s>'"),
    ],
)
def test_what_is_no_tokenizer_is_refused_while_planning(tokenizer, message):
    with pytest.raises(InputError, match=message):
        made(STORY, tokenizer, windows="packed", end_token="<s>")


@pytest.mark.parametrize("dropout", [0.001, 0.1, 0.5, 0.999])
def test_a_tokenizer_that_draws_is_refused_while_planning(dropout):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "dropout": dropout}
    with pytest.raises(InputError, match=f"same tokens in each run, .* {dropout}"):
        made(STORY, json.dumps({"model": model}))


@pytest.mark.parametrize("dropout", [None, 0, 0.0, 1.0])
def test_a_tokenizer_that_leaves_out_no_merges_or_all_is_taken(dropout):
    pytest.importorskip("tokenizers")
    vocabulary = {"a": 0, "b": 1, "ab": 2}
    model = {"type": "BPE", "vocab": vocabulary, "merges": ["a b"], "dropout": dropout}
    arrays = made("ab" * 100, json.dumps({"model": model}), length=4)
    assert set(np.unique(arrays["inputs"])) == ({0, 1} if dropout == 1.0 else {2})


def test_the_scores_of_a_unigram_model_are_no_numbers():
    model = {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.5], ["b", -2.0]]}
    planned = node("a b", json.dumps({"model": model}))
    samples = find_kind(KIND).samples_in_files(planned.params, planned.files)
    assert samples.outputs == 3


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        (b"caf\xe9", {}, "expected text in UTF-8, got the byte 0xe9 at 3"),
        (b"a\0b", {}, "expected text, got a null character at 1"),
        ("a b".encode("utf-16"), {}, "in UTF-8, got UTF-16. Write"),
        (gzip.compress(b"a b"), {}, "in UTF-8, got a gzip file. Unpack"),
        (b"PK\x03\x04ab", {}, "in UTF-8, got a zip archive, as .xlsx is. Unpack"),
        ("", {}, "got 0 in its 0 tokens"),
        (
            "abcdefg",
            {"length": 4, "test_fraction": 0.0},
            "training part, got 1 in its 7",
        ),
        ("a" * 100, {"length": 8, "test_fraction": 0.05}, "test part, got 0 in its 5"),
        (
            "a b\n\nunk c",
            {"unit": "words", "max_tokens": 2, "unknown_token": "unk"},
            "expected a text without 'unk'",
        ),
    ],
)
def test_texts_that_will_not_do_are_refused_while_planning(text, params, message):
    planned = node(text, **params)
    with pytest.raises(InputError, match=message):
        find_kind(KIND).check(planned.params, planned.files)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"unit": "tokenizer"}, "tokenizer null cannot be combined"),
        ({"tokenizer": "t.json"}, "cannot be combined with unit: characters"),
        (
            {"unit": "tokenizer", "tokenizer": "t.json", "lowercase": True},
            "lowercase cannot be combined with unit: tokenizer",
        ),
        ({"unknown_token": "<end>"}, "end_token other than unknown_token"),
        ({"length": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        TextParams(path="story.txt", **params)
