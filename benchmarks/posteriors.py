"""Random posteriors whose learning coefficient is known at every localization."""

from __future__ import annotations

from typing import Any

import numpy as np


def model(draw: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a model about its truth, and what else its data take.

    Products of powers, one or several of parameters of their own; wells of up to eight
    decades; products of two to five matrices of any rank.

    Returns:
        The model, and the rank, inputs and outputs of its data.
    """
    law = draw.integers(3)
    if law == 0:
        outputs = int(draw.integers(1, 5))
        powers = [
            draw.integers(1, 5, int(draw.integers(1, 4))).tolist()
            for _ in range(outputs)
        ]
        return {"kind": "normal_crossing", "powers": powers}, {}
    if law == 1:
        decades, size = draw.uniform(0, 8), int(draw.integers(2, 60))
        values = 10 ** (draw.uniform(0, 2) - draw.uniform(0, decades, size))
        return {"kind": "quadratic_well", "eigenvalues": values.tolist()}, {}
    widths = draw.integers(1, 7, int(draw.integers(3, 7))).tolist()
    sizes = {"inputs": widths[0], "outputs": widths[-1]}
    rank = int(draw.integers(0, min(widths) + 1))
    return {"kind": "deep_linear", "hidden": widths[1:-1]}, {"rank": rank, **sizes}


def posterior(draw: np.random.Generator) -> dict[str, Any]:
    """Draw the stages of a posterior, of chains about it and of what is known of it."""
    spec, sizes = model(draw)
    rank = {"rank": sizes["rank"]} if "rank" in sizes else {}
    samples = int(10 ** draw.uniform(2, 3.5)) if draw.random() < 0.4 else None
    sampled = {} if samples is None else {"num_samples": samples, "noise": 0.0}
    nbeta = "auto" if samples else float(10 ** draw.uniform(2, 6))
    truth = {"model": spec, **rank}
    return {
        "population": {"use": "data.known_answer", "model": spec, **sizes, **sampled},
        "weights": {"use": "weights.known_answer", "data": "population", **truth},
        "llc": {
            "use": "probe.llc",
            "weights": "weights",
            "nbeta": nbeta,
            "seed": int(draw.integers(1000)),
        },
        "known": {
            "use": "probe.llc_known",
            "draws": "llc",
            "data": "population",
            **truth,
        },
    }
