"""A study in which everything happens: failures, divergence, labels that are markup."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
from pydantic import Field

from curvflow.schemas import kinds
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import PICTURES
from curvflow.schemas.nodes import Figure, Numbers, Outcome, Weights
from curvflow.schemas.params import Names, Params
from curvflow.tasks import registry
from curvflow.tasks.registry import computes
from tests.flows.toys import toy_kinds

# What a page may never take for markup or script.
MARKUP = "</script><img src=x onerror=alert(1)>"
# What a terminal acts on and a reader does not see, and how a page shows it.
ACTING, SHOWN = "\x1b]0;t\x07\x9b2J\u202e", r"\x1b]0;t\x07\x9b2J\u202e"
# Two drawings with the same identifier, and a script that may not run.
DRAWING = """\
<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="144pt" height="72pt" viewBox="0 0 2 1">
<script>window.parent.hacked = 1; document.title = "hacked"</script>
<defs><path id="m1" d="M0 0h2v1h-2z"/></defs><use href="#m1" fill="{colour}"/>
<image href="http://198.51.100.1/beacon.png"/></svg>
"""


DRAWN = ("png", "svg", "caption")


class SampleParams(Params):
    """Parameters of the toy sampler."""

    seed: int = 0


class DrawParams(Params):
    """Parameters of the toy figure."""

    over: str | Names = "seed"
    colour: str = "teal"
    quantities: Names | None = Field(None)


SAMPLE = Kind(
    name="toy.sample",
    version=3,
    summary="Sample </script> nothing.",
    params=SampleParams,
    returns=Numbers,
    outputs=(
        Variable("llc_mean", f"the estimate {MARKUP}", units="1"),
        Variable("llc_sem", "its standard error"),
        Variable("verdict", "converged, or not", dtype="str"),
        Variable("reason", "why", dtype="str"),
        Variable("num_matvecs", "products", dtype="int64"),
        Variable("num_backward", "passes back", dtype="int64"),
        Variable("per_chain", "by chain", ("chain",), units="loss / parameter^2"),
    ),
    inputs={"weights": Input(Weights)},
    varying=("seed",),
)
DRAW = Kind(
    name="toy.draw",
    version=1,
    summary="Draw a rectangle.",
    params=DrawParams,
    returns=Figure,
    outputs=tuple(one for one in PICTURES if one.name in DRAWN),
    inputs={"of": Input(Numbers, many=True)},
    reduces=("over",),
    selects=("quantities",),
    vectorised=False,
)


def _sample(members, _):
    found = []
    for member in members:
        seed = member.params.seed
        good = seed != 1
        found.append(
            Outcome(
                {
                    "llc_mean": np.array(1.23456789 + seed),
                    "llc_sem": np.array(0.0123),
                    "verdict": np.array("converged" if good else "drifting"),
                    "reason": np.array("all is well" if good else f"R-hat {MARKUP}"),
                    "num_matvecs": np.array(10),
                    "num_backward": np.array(0),
                    "per_chain": np.array([1e-7, 2.5, -3.0]) + seed,
                }
            )
        )
    return found


def _draw(members, _):
    found = []
    for member in members:
        svg = DRAWING.format(colour=member.params.colour).encode()
        arrays = {
            "png": np.frombuffer(b"\x89PNG none", np.uint8),
            "svg": np.frombuffer(svg, np.uint8),
            "caption": np.array(f"Mean over seed; {MARKUP}{ACTING}"),
        }
        found.append(Outcome(arrays))
    return found


@contextmanager
def report_kinds() -> Iterator[None]:
    """Make the toy kinds known, with a sampler and a figure; and forget them again."""
    added = {kind.name: kind for kind in (SAMPLE, DRAW)}
    functions = {"toy.sample": _sample, "toy.draw": _draw}
    with toy_kinds(), mock.patch.dict(kinds._added, added):
        for name, function in functions.items():
            computes(name)(function)
        yield
    for name in functions:
        del registry._implementations[name]


STUDY = f"""\
# Is a page safe from the names that a study gives? One rate is too large on purpose,
# and one seed fails.
#   curvflow run everything.yaml
study: everything
axes:
  seed: [0, 1, 2, 13]
  rule:
    slow: {{lr: 0.25}}
    "{MARKUP}": {{lr: 0.75}}
    huge: {{lr: 3.0}}
stages:
  data: {{use: toy.points}}
  fit: {{use: toy.fit, data: data, lr: "${{rule.lr}}", seed: "${{seed}}"}}
  last: {{use: toy.probe, weights: fit}}
  path: {{use: toy.probe, weights: fit, at: all, scale: 3.0}}
  sound: {{use: toy.fit, data: data, lr: "${{rule.lr}}", seed: 1}}
  again: {{use: toy.probe, weights: sound}}
  other: {{use: toy.probe, weights: sound, scale: 2.0}}
  same: {{use: probe.crosscheck, of: [again], quantity: square, stated:
         {{formula: {{value: 0.1, sem: 0.2}}}}}}
  apart: {{use: probe.crosscheck, of: [again, other], quantity: square}}
  llc: {{use: toy.sample, weights: sound, seed: "${{seed}}"}}
  table: {{use: aggregate.summary, of: llc, over: seed}}
  mean: {{use: toy.mean, of: llc, over: [seed, rule]}}
  one: {{use: toy.draw, of: llc, over: [seed, rule], colour: teal}}
  two: {{use: toy.draw, of: llc, over: [seed, rule], colour: crimson}}
expect:
  - {{stage: llc, where: {{seed: 0, rule: slow}}, quantity: llc_mean,
     value: 1.2, sd: 0.05, source: "a book & its <b>table</b>"}}
  - {{stage: llc, where: {{seed: 2, rule: slow}}, quantity: llc_mean,
     value: 1.2, sd: 0.05, source: "another"}}
  - {{stage: last, where: {{seed: 13, rule: slow}}, quantity: square,
     value: 1.0, within: 0.5, source: "another"}}
"""
