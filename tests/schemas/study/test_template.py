from hypothesis import given
from hypothesis import strategies as st

from curvflow.schemas.study.axes import Axis
from curvflow.schemas.study.template import Reference, Template
from tests.schemas.fakes import fake_kinds, load

labels = st.integers(0, 3)


@given(labels, labels)
def test_filling_a_template_equals_substituting_by_hand(i, j):
    a = Axis("a", (0, 1, 2, 3), ("p", "q", "r", "s"))
    b = Axis("b", (0, 1, 2, 3), (None, [1], {"k": 2}, 4.0))
    plain = {"x": "${a}", "y": [0, {"z": "${b}"}, "${a}"], "w": {"same": [1]}}
    values = [dict(zip(axis.labels, axis.values, strict=True)) for axis in (a, b)]
    template = Template(
        plain,
        (
            Reference(("x",), a, (), values[0]),
            Reference(("y", 1, "z"), b, (), values[1]),
            Reference(("y", 2), a, (), values[0]),
        ),
    )
    filled = template.fill({"a": i, "b": j})
    by_hand = {"x": values[0][i], "y": [0, {"z": values[1][j]}, values[0][i]]}
    assert filled == {**by_hand, "w": {"same": [1]}}
    assert plain["y"] == [0, {"z": "${b}"}, "${a}"]


def test_every_label_is_looked_at_while_loading_but_not_every_combination():
    with fake_kinds():
        study = load(("  seed: 3", "  seed: 100000"))
    template = study.stages["fit"].template
    samples = list(template.samples())
    assert len(samples) == 3
    assert {point["rule"] for point in samples} == {"small", "large"}
    assert {point["seed"] for point in samples} == {0, 99999}
