"""Files that are no heartbeats, but lie among them, are ignored."""

import json

import pytest

from curvflow.stores.log_store import parse_heartbeats

SIGN = {"count": 3, "pid": 17, "host": "here", "boot": None, "started": None}


def test_a_sign_goes_by_the_number_in_its_name():
    text = json.dumps(SIGN).encode()
    assert parse_heartbeats([("runs/0000000012.beat", text)]) == {12: SIGN}


@pytest.mark.parametrize(
    "name",
    [
        "x.beat",
        ".beat",
        "1 2.beat",
        "-000000001.beat",
        10 * "\u0661" + ".beat",
        "1.beat",
    ],
    ids=["word", "none", "space", "sign", "script", "short"],
)
def test_a_stray_name_is_left_out(name):
    assert parse_heartbeats([(name, json.dumps(SIGN).encode())]) == {}


@pytest.mark.parametrize("text", [None, b"", b"{", b"[]", b"\xff", b"7"])
def test_a_sign_that_cannot_be_read_is_left_out(text):
    assert parse_heartbeats([("0000000012.beat", text)]) == {}


@pytest.mark.parametrize("field", ["count", "pid", "host"])
@pytest.mark.parametrize("value", [None, [], 1.5, True], ids=str)
def test_a_foreign_object_is_left_out(field, value):
    text = json.dumps(SIGN | {field: value}).encode()
    assert parse_heartbeats([("0000000012.beat", text)]) == {}
