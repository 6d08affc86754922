"""Fuzz the reader guided by coverage, with Atheris, which is no part of the extras.

    pip install atheris
    python -m tests.fuzz.guided -max_total_time=600 -seed=1

Arguments are libFuzzer's. A text that fails is kept as `crash-*`; that name as the only
argument repeats it.
"""

import sys

import atheris

with atheris.instrument_imports(include=["curvflow.schemas", "ruamel.yaml"]):
    from tests.fuzz.grammar import BITS, STUDY
    from tests.fuzz.reader import check


def one_text(data: bytes) -> None:
    """Check the study with edits, or the text itself, as the bytes decide."""
    source = atheris.FuzzedDataProvider(data)
    text = STUDY
    if source.ConsumeIntInRange(0, 9) == 0:
        text = source.ConsumeUnicode(4000)
    for _ in range(source.ConsumeIntInRange(1, 4)):
        at = source.ConsumeIntInRange(0, len(text))
        length = source.ConsumeIntInRange(0, 20)
        is_bit = source.ConsumeBool()
        bit = BITS[source.ConsumeIntInRange(0, len(BITS) - 1)] if is_bit else ""
        text = text[:at] + (bit or source.ConsumeUnicode(8)) + text[at + length :]
    check((text, ()))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_text)
    atheris.Fuzz()
