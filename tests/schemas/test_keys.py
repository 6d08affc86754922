"""Keys are stable, typed and free of accidents."""

import math
import subprocess
import sys
from typing import Annotated

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from curvflow.errors import NotEncodableError
from curvflow.schemas import keys
from curvflow.schemas.keys import (
    Encoded,
    Forms,
    action_key,
    array_digest,
    canonical,
    form,
    mapping_form,
    sequence_form,
    sha256,
    texts_digest,
)
from curvflow.schemas.params import Neutral, Params, SourceFile

# Frozen: a change here invalidates every result ever stored.
VECTORS = [
    (None, "1b16b1df538ba12dc3f97edbb85caa7050d46c148134290feba80f8236c83db9"),
    (1, "cc7130013527ac2a34de7f05846a80a6abc29cbd03fad13003867866f8c066d4"),
    (1.0, "d19e5c22c4d971db8ce9ecb0274f99257b724f56ee3d8bdd358f262eff64f1c6"),
    ("1", "ea4cb38773dbeb62118b1a71f70929c725ecd5aa909651d9c7e8fc3963fbc5f3"),
    (True, "e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8"),
    (-7, "70b7f8ee6275740d7d091580f3b8bc4800f2b16b412fa3b49c953bcac96a939e"),
    (0.1, "2156238d6ee2783ea571b272b5e7b35cdc14de32a2fb6c1d7b4f2e54f453fc65"),
    ("naïve", "7d0a5a39cbe79cbd03d23693481d9ec5b2b5d6c2aec56938ae14dcc50bc33ea5"),
    ([1, 23], "3c3732a0b7c5d84c269d79e8ac42f7ba4aecec9425bb0211607f8df76fdd05ec"),
    ([12, 3], "22cb47133f1669322dc0d9031e702146a5c5b631d521462a02cfdce7df380b5e"),
    (
        {"a": [1, 2.5], "b": {"c": None}},
        "597145122c490c71749b41e2e4cb1b3bc9f7cb36c6105fc8984dbaa759704cd6",
    ),
    ([], "0db2e8105005bd716261bab87ab0dafb638c42e4ff9c41bec5c39a735053dfc8"),
    ({}, "b031601b41e2aea50c7aeabade325ef35f9d51ed280bc6ce0490e0895315ac44"),
]

LOOK_ALIKES = [
    1,
    1.0,
    "1",
    True,
    None,
    [1],
    {"1": 1},
    [1, 23],
    [12, 3],
    "123",
    [[1], 23],
    "None",
    False,
    0,
    0.0,
    "",
    [],
    {},
    [None],
    ["1", "23"],
]


@pytest.mark.parametrize(("value", "digest"), VECTORS)
def test_hash_vectors_are_frozen(value, digest):
    assert sha256(value) == digest


def test_look_alikes_all_differ():
    assert len({canonical(value) for value in LOOK_ALIKES}) == len(LOOK_ALIKES)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def typed(value):
    """Tell types apart, which Python's own equality does not."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value).__name__, value


# Slow only where the machine is.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(values, values)
def test_equal_bytes_mean_equal_type_and_value(left, right):
    import unicodedata

    def normal(value):
        if isinstance(value, str):
            return unicodedata.normalize("NFC", value)
        if isinstance(value, dict):
            return {normal(key): normal(item) for key, item in value.items()}
        return [normal(i) for i in value] if isinstance(value, list) else value

    same = typed(normal(left)) == typed(normal(right))
    assert (canonical(left) == canonical(right)) == same


@given(st.dictionaries(st.text(), scalars))
def test_order_of_a_mapping_does_not_count(mapping):
    backwards = dict(reversed(mapping.items()))
    assert canonical(mapping) == canonical(backwards)


@given(st.lists(values))
def test_a_list_has_the_form_of_its_items_forms(items):
    assert sequence_form([canonical(item) for item in items]) == canonical(items)


@given(st.dictionaries(st.text() | st.sampled_from(["%", "%b", "100 %s"]), scalars))
def test_a_mapping_has_the_form_of_its_values_forms(mapping):
    forms = [canonical(value) for value in mapping.values()]
    assert mapping_form(tuple(mapping), forms) == canonical(mapping)


digests = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(
    st.dictionaries(
        st.text() | st.sampled_from(["%", "%b", "100 %s", "weights@20"]),
        digests | st.sampled_from(["", "diverged", "e\u0301" * 32, "a" * 63]),
    )
)
def test_digests_by_name_have_the_digest_of_a_mapping(mapping):
    more = {**mapping, "one more": "0" * 64}
    names = tuple(reversed(mapping))
    assert texts_digest(more, names) == sha256(mapping)
    assert texts_digest(more, (*names, *names)) == sha256(mapping)


def test_a_digest_that_is_not_there_is_no_empty_one():
    with pytest.raises(KeyError):
        texts_digest({"loss": "0" * 64}, ("loss", "trace"))


@given(values, values)
def test_an_action_key_is_that_of_a_list_of_five(params, inputs):
    key = sha256(["curvflow/1", "probe.trace", 4, params, inputs])
    assert action_key("probe.trace", 4, params, inputs) == key
    forms = (Encoded(canonical(value)) for value in (params, inputs))
    assert action_key("probe.trace", 4, *forms) == key


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, {1}, {1: 2}, b"bytes", object(), [math.nan]],
    ids=["nan", "inf", "set", "number as key", "bytes", "object", "nan within"],
)
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(NotEncodableError, match="expected"):
        canonical(value)


def test_minus_zero_is_zero_and_text_is_normalised():
    assert canonical(-0.0) == canonical(0.0)
    assert canonical("e\u0301") == canonical("\u00e9")


@pytest.mark.processes
def test_keys_do_not_depend_on_the_hash_seed_of_the_process():
    program = (
        "from curvflow.schemas.keys import sha256;"
        "print(sha256({'b': [1, 2.5], 'a': {'x': None}, 'c': 'text'}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (0, 1, 2)
    }
    assert len(seen) == 1


class First(Params):
    """A kind's parameters at its first release."""

    lr: float = Field(0.1, gt=0)


class Later(Params):
    """The same kind with a field added later."""

    lr: float = Field(0.1, gt=0)
    nesterov: Annotated[bool, Neutral(False)] = False
    clip: Annotated[float | None, Neutral(None)] = None


class Changed(Params):
    """The default has moved away from the neutral value."""

    lr: float = Field(0.1, gt=0)
    nesterov: Annotated[bool, Neutral(False)] = True


def test_a_field_added_with_a_neutral_value_moves_no_key():
    assert form(First()) == form(Later())
    assert form(Later(nesterov=True)) == {"lr": 0.1, "nesterov": True}


def test_a_changed_default_moves_keys():
    assert form(Changed()) == {"lr": 0.1, "nesterov": True}


def test_neutral_compares_types_as_keys_do():
    class Count(Params):
        """A neutral integer beside a float."""

        n: Annotated[float, Neutral(1)] = 1.0

    class Other(Params):
        """A neutral float, which typing must not take for the integer."""

        n: Annotated[float, Neutral(1.0)] = 1.0

    assert form(Count()) == {"n": 1.0}
    assert form(Other()) == {}


class Nested(Params):
    """Parameters within parameters, and a file."""

    inner: Later = Later()
    path: Annotated[str | None, SourceFile()] = None


def test_nested_parameters_leave_out_neutral_values_too():
    assert form(Nested())["inner"] == {"lr": 0.1}


def test_a_file_counts_by_its_content():
    by_name = [form(Nested(path=p), {"path": "ab12"}) for p in ("a.npz", "b.npz")]
    assert by_name[0] == by_name[1]
    assert by_name[0]["path"] == {"sha256": "ab12"}
    assert form(Nested())["path"] is None


class Sibling(Params):
    """Parameters of one of many nodes."""

    seed: int | bool = 0
    inner: Later = Later()
    hidden: tuple[int, ...] = Field((2,), strict=False)
    names: dict[str, float] = Field(default_factory=dict)
    clip: Annotated[float | None, Neutral(None)] = None
    path: Annotated[str | None, SourceFile()] = None


@given(
    st.lists(
        st.builds(
            Sibling,
            seed=st.integers() | st.booleans(),
            inner=st.sampled_from([Later(), Later(nesterov=True)]),
            hidden=st.lists(st.integers(), max_size=2),
            names=st.dictionaries(st.text(), st.sampled_from([0.0, -0.0, 0.5])),
            clip=st.sampled_from([None, 0.5]),
            path=st.sampled_from([None, "a.npz"]),
        ),
        max_size=6,
    )
)
def test_siblings_have_the_forms_that_each_has_by_itself(several):
    forms = Forms()
    for number, params in enumerate(several):
        files = {"path": f"ab{number}"} if params.path else {}
        plain, encoded = forms.write(params, files)
        assert typed(plain) == typed(form(params, files))
        assert encoded == canonical(form(params, files))


def test_what_siblings_share_is_written_once(monkeypatch):
    written = []
    before = keys._write
    monkeypatch.setattr(
        keys,
        "_write",
        lambda field, *rest: written.append(field.name) or before(field, *rest),
    )
    forms, inner = Forms(), Later(nesterov=True)
    plain = [forms.write(Sibling(seed=n, inner=inner))[0] for n in range(50)]
    assert all(p["inner"] is plain[0]["inner"] for p in plain)
    assert written.count("seed") == 50
    assert written.count("inner") == written.count("hidden") == 1


def test_every_part_of_an_action_key_counts():
    base = ("train", 1, {"lr": 0.1}, {"data": "ab"})
    others = [
        ("trace", 1, {"lr": 0.1}, {"data": "ab"}),
        ("train", 2, {"lr": 0.1}, {"data": "ab"}),
        ("train", 1, {"lr": 0.2}, {"data": "ab"}),
        ("train", 1, {"lr": 0.1}, {"data": "cd"}),
        ("train", 1, {"lr": 0.1}, {"weights": "ab"}),
    ]
    assert action_key(*base) not in {action_key(*other) for other in others}


@pytest.mark.parametrize(
    "other",
    [
        np.array([1.0, 2.0], dtype=np.float32),
        np.array([[1.0, 2.0]]),
        np.array([1, 2]),
        np.array([2.0, 1.0]),
        np.array(["1.0", "2.0"]),
    ],
    ids=repr,
)
def test_array_digests_see_dtype_shape_and_order(other):
    assert array_digest(other) != array_digest(np.array([1.0, 2.0]))


def test_array_digests_ignore_byte_order_memory_order_and_kinds_of_nan():
    array = np.arange(6.0).reshape(2, 3)
    assert array_digest(array) == array_digest(array.astype(">f8"))
    assert array_digest(array) == array_digest(np.asfortranarray(array))
    nan = np.array([1.0, np.nan])
    other_nan = nan.copy()
    other_nan.view(np.uint64)[1] |= np.uint64(1)
    assert array_digest(nan) == array_digest(other_nan)


def test_texts_of_different_width_have_equal_digests():
    narrow = np.array(["a", "bc"])
    wide = np.array(["a", "bc"], dtype="<U20")
    assert array_digest(narrow) == array_digest(wide)


def test_array_digest_is_frozen():
    digest = array_digest(np.arange(3, dtype=np.float64))
    assert digest == (
        "08cfb2534c1fee125bd5beb6304bd5cb4b799c53ef0106b51ec34c8c37d04b47"
    )
