"""The program that docs/operators.md shows runs, and computes what the page says."""

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def test_the_program_shown_runs():
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    # The fastest order is another matter, and takes its time.
    names: dict = {}
    exec(code.replace("(x, y))\nprobes", '(x, y), order="retained")\nprobes'), names)
    H = names["H"]
    assert names["products"].shape == (H.shape[0], 16)
    dense = H @ torch.eye(H.shape[0], dtype=torch.float64)
    torch.testing.assert_close(
        torch.as_tensor(names["top"])[0], torch.linalg.eigvalsh(dense)[-1]
    )
    block = names["second_layer"] @ torch.eye(27, dtype=torch.float64)
    torch.testing.assert_close(block, dense[40:, 40:])
    assert names["output_weights"].shape == (24, 24)
    for operator in (names["damped"], names["rest"], names["sampled"]):
        assert operator.shape == H.shape
