"""`curvflow why`: root causes, or the explanation of single nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    MaxNodes,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    echo,
    open_study_store,
    parse_labels,
    print_json,
)
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.plan.code.fingerprints import Code
    from curvflow.flows.plan.plan import Plan


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
    code: Annotated[
        bool,
        typer.Option("--code", help="show which code of yours counts, and how"),
    ] = False,
    max_nodes: MaxNodes = None,
    as_json: AsJson = False,
) -> None:
    """Explain why nodes must run: old value -> new value.

    All causes, or with STAGE[axis=value] the chain that leads to that node. With --code
    the definitions of yours that results stand on, and modules that count as a whole.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.plan.plan import make_plan
    from curvflow.flows.plan.why.explain import explain

    if code:
        _refuse_node(node)
    opened = open_study_store(study, store, profile, overrides, max_nodes)
    stage, where = split(node or "")
    plan = make_plan(opened.study, opened.store, opened.files)
    if code:
        _echo_code(plan, as_json=as_json)
    elif node is None:
        _echo_causes(plan, as_json=as_json)
    else:
        answers = explain(plan, stage, where)
        if as_json:
            print_json([answer.as_json() for answer in answers])
        else:
            echo("\n".join(str(answer) for answer in answers))


def _refuse_node(node: str | None) -> None:
    if node is not None:
        raise RequestError("why: --code cannot be combined with a node. Leave one out.")


def _echo_causes(plan: Plan, *, as_json: bool) -> None:
    from curvflow.cli.text.plan_text import cause_lines, code_lines
    from curvflow.flows.plan.why.root_causes import forecast

    causes = forecast(plan.graph, plan.index, plan.causes)["causes"]
    changes = [drift.as_json() for drift in plan.drifts]
    if as_json:
        code_causes = [
            {"cause": f"code of {change['kind']}", **change} for change in changes
        ]
        print_json(code_causes + causes)
    else:
        lines = [*code_lines(changes), *cause_lines(causes)]
        echo("\n".join(lines) or "nothing to do")


def _echo_code(plan: Plan, *, as_json: bool) -> None:
    from curvflow.cli.text.plan_text import followed_lines

    kinds = plan.codes.by_kind(plan.graph)
    if as_json:
        print_json([_followed(kind, code) for kind, code in kinds.items()])
    else:
        lines = list(followed_lines(kinds))
        echo("\n".join(lines) or "no kind of this study runs code of yours")


def _followed(kind: str, code: Code) -> dict[str, Any]:
    return {"kind": kind, "definitions": code.of_users(), "whole": dict(code.doubts)}


def split(node: str) -> tuple[str, dict[str, str]]:
    """Split `stage[axis=value,...]` into the stage and a mapping of axis to label."""
    stage, bracket, rest = node.partition("[")
    if bracket and not rest.endswith("]"):
        raise RequestError(
            f"{stage}: expected STAGE[axis=value,...], got '{node}'. Close the bracket."
        )
    pairs = [pair for pair in rest.removesuffix("]").split(",") if pair]
    return stage, parse_labels(pairs, of=stage)
