"""`curvflow why`: root causes, or all that is known of some nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    labels,
    opened,
    print_json,
)
from curvflow.errors import RequestError


def command(
    study: StudyPath,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[STAGE[axis=value,...]]", help="by default, all causes"
        ),
    ] = None,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Tell why nodes must run: old value -> new value.

    All causes, or with STAGE[axis=value] the chain that leads to that node.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.cli.text.plan_text import cause_lines, code_lines
    from curvflow.flows.plan.plan import make_plan
    from curvflow.flows.plan.why.explain import explain
    from curvflow.flows.plan.why.root_causes import forecast

    asked = opened(study, store, profile, overrides)
    stage, where = split(node or "")
    plan = make_plan(asked.study, asked.store, asked.files)
    if node is None:
        causes = forecast(plan.graph, plan.index, plan.causes)["causes"]
        code = [drift.as_json() for drift in plan.drifts]
        if as_json:
            told = [{"cause": f"code of {one['kind']}", **one} for one in code]
            print_json(told + causes)
        else:
            lines = [*code_lines(code), *cause_lines(causes)]
            typer.echo("\n".join(lines) or "nothing to do")
        return
    answers = explain(plan, stage, where)
    if as_json:
        print_json([answer.as_json() for answer in answers])
    else:
        typer.echo("\n".join(str(answer) for answer in answers))


def split(node: str) -> tuple[str, dict[str, str]]:
    """Split `stage[axis=value,...]` into its stage and labels.

    Args:
        node: as written on the command line.

    Returns:
        The stage's name, and axis to label.

    Raises:
        RequestError: a bracket is not closed, or what is in it are no labels.
    """
    stage, bracket, rest = node.partition("[")
    if bracket and not rest.endswith("]"):
        raise RequestError(
            f"{stage}: expected STAGE[axis=value,...], got '{node}'. Close the bracket."
        )
    pairs = [pair for pair in rest.removesuffix("]").split(",") if pair]
    return stage, labels(pairs, of=stage)
