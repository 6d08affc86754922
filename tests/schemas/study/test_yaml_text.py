"""Studies written as YAML read back as the same data."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from curvflow.schemas.keys import normalised
from curvflow.schemas.study.document import read_document
from curvflow.schemas.study.yaml_source import to_yaml

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
# What YAML would take for something else if it stood without quotes.
TRAPS = st.sampled_from(
    [
        *("true", "null", "~", "1", "1e3", "0x1f", "12:30", "2024-01-01", "<<", "="),
        *("", "- a", " a ", "a: b", "a #b", "${a}", "'", '"', "\\", "#", "|", "a\n"),
    ]
)
# Keys are read composed, as they enter action keys.
COMPOSED = st.text().map(normalised)
SIGNS = st.text(alphabet=":?-,[]{}#&*!|>'\"%@` ~=<.\\", max_size=4)
TEXTS = TRAPS | SIGNS | COMPOSED
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)
# Labels of an axis may be numbers.
KEYED = st.dictionaries(COMPOSED | st.integers(), VALUES, max_size=4)
DOCUMENTS = st.dictionaries(TEXTS, KEYED, min_size=1, max_size=4).filter(
    lambda data: all(len({*map(str, v)}) == len(v) for v in data.values())
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(DOCUMENTS)
@example({"a": {"b": "x" * 200 + " " + "y" * 200}})
@example({"a": {"b": [":0", "?0", {"?0": ":0"}]}})
@example({"a": {"b": ["\x85 \u2028", "\ufeff", "\x00\x7f"]}})
def test_written_data_reads_as_the_same_data_in_the_same_order(data):
    read = read_document(to_yaml(data), "study.yaml").root.plain()
    assert repr(read) == repr(data)


def test_stages_stand_on_a_line_where_they_fit_and_open_up_where_they_do_not():
    long = {"use": "train", "data": "data", "rule": "${rule}", "hidden": [8] * 20}
    stages = {"data": {"use": "data.xor"}, "fit": long}
    expect = [{"stage": "fit", "source": "s" * 80}]
    text = to_yaml({"study": "s", "stages": stages, "expect": expect})
    assert text == (
        "study: s\n"
        "stages:\n"
        "  data: {use: data.xor}\n"
        "  fit:\n"
        "    use: train\n"
        "    data: data\n"
        '    rule: "${rule}"\n'
        f"    hidden: [{', '.join('8' * 20)}]\n"
        "expect:\n"
        "  - stage: fit\n"
        f"    source: {'s' * 80}\n"
    )


@pytest.mark.parametrize("width", range(55, 75))
def test_no_line_is_longer_than_a_line_of_code(width):
    stages = {"stage": {"use": "x" * width, "rule": "${rule}"}}
    lines = to_yaml({"stages": stages}).splitlines()
    assert max(map(len, lines)) <= 88
