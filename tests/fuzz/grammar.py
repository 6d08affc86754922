"""Texts that are nearly studies: by grammar, by mutation, and at random."""

import random
from collections.abc import Callable

from hypothesis import strategies as st

from curvflow.schemas.study.yaml_source import to_yaml

STUDY = """\
study: tiny
axes:
  seed: 2
  rule:
    sgd: {rule: sgd, lr: 0.1}
    "a b": {rule: adam, lr: 1.0e-2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, rule: "${rule}",
        seed: "${seed}", epochs: 4, checkpoints: {every: 2}}
  trace: {use: probe.hessian_trace, weights: fit, num_probes: 4, at: all}
  table: {use: aggregate.summary, of: [fit, trace], over: [seed]}
  loss: {use: figure.lines, of: fit, y: train_loss, label: rule, over: seed}
expect:
  - {stage: table, where: {rule: sgd}, quantity: trace, value: 8, within: [1, 9]}
profiles:
  more: {axes.seed: 3, stages.fit.epochs: 2}
"""
# What parsers and people stumble over.
BITS = [
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        ",",
        "- ",
        "? ",
        "&a ",
        "*a",
        "!!int ",
        "!!float ",
    ),
    *("<<: ", "|", ">", "%YAML 1.1\n", "---\n", "...\n", "\n", "\n  ", "\t", "#", '"'),
    *("'", "\\", '"\\U00110000"', '"\\ud800"', '"\\x00"', "\0", "\x1b[2J", "\u202e"),
    *(
        "\u2028",
        "\x85",
        "\ufeff",
        "e\u0301",
        "${seed}",
        '"${rule.lr}"',
        "${",
        "~",
        "null",
    ),
    *("true", "yes", "1e400", "-0.0", ".nan", ".inf", "0x" + "f" * 5000, "0o9", "0b2"),
    *("9" * 5000, "1_000", "12:30:45", "2024-01-01", "1.0e-2", "[" * 60, "{a: " * 60),
    *("a" * 2000, "use: train", "at: all", "at: {every: 0}", "over: seed", "seed: -1"),
    *("epochs: 1000000000000", "seed: 1000000", "hidden: []", "profiles:", "expect:"),
    *("axes: {a: 3000, b: 3000, c: 3000}", "checkpoints: {every: 1}", "!!binary x"),
    *(
        "!!python/name:os.system ",
        "!!set {a}",
        "!!omap [a: 1]",
        "!<tag:x> ",
        "=",
        "@",
        "`",
    ),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            *(
                "${seed}",
                "${rule}",
                "${rule.lr}",
                "data",
                "fit",
                "trace",
                "table",
                "all",
            ),
            *("seed", "rule", "epoch", "train_loss", "trace", "final", "sgd", "adam"),
            *("data.xor", "train", "probe.hessian_trace", "aggregate.summary", "mlp"),
            *("figure.lines", "figure.heatmap", "data.digits", "data.teacher", "cnn"),
        ]
    ),
)
KEYS = st.sampled_from(
    [
        *("use", "data", "weights", "of", "over", "at", "seed", "epochs", "model"),
        *("rule", "lr", "kind", "hidden", "every", "checkpoints", "label", "x", "y"),
        *("k", "num_probes", "quantities", "where", "stage", "quantity", "value"),
        *("within", "sd", "n", "se", "source", "axes.seed", "stages.fit.epochs"),
    ]
) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=10,
)
STAGES = st.dictionaries(
    st.sampled_from(["data", "fit", "trace", "table", "loss", "other"]) | KEYS,
    st.dictionaries(KEYS, VALUES, max_size=6) | VALUES,
    max_size=5,
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "study": st.just("tiny") | SCALARS,
        "axes": st.dictionaries(KEYS, VALUES, max_size=3) | VALUES,
        "stages": STAGES | VALUES,
        "expect": st.lists(st.dictionaries(KEYS, VALUES, max_size=5)) | VALUES,
        "profiles": st.dictionaries(KEYS, STAGES, max_size=2) | VALUES,
    },
)


def _written(document: dict) -> str:
    try:
        return to_yaml(document)
    except Exception:  # ruamel's writer is not what is tested here
        return repr(document)


def _edited(edits: list[tuple[int, int, str]]) -> str:
    text = STUDY
    for place, length, bit in edits:
        at = place % (len(text) + 1)
        text = text[:at] + bit + text[at + length :]
    return text


EDITS = st.tuples(
    st.integers(0, 2000),
    st.integers(0, 12),
    st.sampled_from(BITS) | st.text(max_size=3),
)
# A value of a real study in place of another, so that checks beyond the reader are met.
OVERRIDES = st.tuples(
    st.sampled_from(
        [
            *("study", "axes.seed", "axes.rule", "axes.rule.sgd", "stages.data.use"),
            *("stages.fit.data", "stages.fit.model", "stages.fit.model.hidden"),
            *(
                "stages.fit.rule",
                "stages.fit.seed",
                "stages.fit.epochs",
                "stages.trace",
            ),
            *("stages.fit.checkpoints", "stages.trace.at", "stages.trace.num_probes"),
            *(
                "stages.table.of",
                "stages.table.over",
                "stages.loss.y",
                "expect.0.value",
            ),
            *("stages.loss.label", "expect.0.where", "expect.0.quantity", "expect"),
        ]
    ),
    VALUES,
)
# A text, and overrides of the command line.
Case = tuple[str, tuple[str, ...]]
CASES: st.SearchStrategy[Case] = st.one_of(
    st.tuples(DOCUMENTS.map(_written), st.just(())),
    st.tuples(st.lists(EDITS, min_size=1, max_size=6).map(_edited), st.just(())),
    st.tuples(
        st.just(STUDY),
        st.lists(OVERRIDES, min_size=1, max_size=3).map(
            lambda pairs: tuple(f"{path}={value!r}" for path, value in pairs)
        ),
    ),
    st.tuples(st.just(STUDY), st.tuples(st.text(max_size=40))),
)


def random_case(source: random.Random) -> Case:
    """Return a text with random edits; a thousand times cheaper than by grammar."""
    edit: dict[int, Callable[[str, int], str]] = {
        0: lambda text, at: text[:at] + source.choice(BITS) + text[at:],
        1: lambda text, at: text[:at] + text[at + source.randint(1, 30) :],
        2: lambda text, at: text[:at] + chr(source.randint(0, 0x2FFF)) + text[at + 1 :],
        3: lambda text, at: text[:at] + text[at - source.randint(0, 90) :],
        4: lambda text, at: text[:at] + source.choice(BITS) * 40 + text[at:],
        5: _swap(source),
    }
    text = STUDY
    for _ in range(source.choice([1, 1, 1, 2, 3, 8])):
        text = edit[source.randrange(6)](text, source.randint(0, len(text)))
    return text[:20_000], ()


def _swap(source: random.Random) -> Callable[[str, int], str]:
    def swap(text: str, _: int) -> str:
        words = text.split(" ")
        first, second = (source.randrange(len(words)) for _ in range(2))
        words[first], words[second] = words[second], words[first]
        return " ".join(words)

    return swap
