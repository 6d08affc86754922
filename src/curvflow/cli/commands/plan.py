"""`curvflow plan`: the nodes that would run, and why."""

from __future__ import annotations

from curvflow.cli.arguments import (
    AsJson,
    MaxNodes,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    echo,
    open_study_store,
    print_json,
)


def command(
    study: StudyPath,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    max_nodes: MaxNodes = None,
    as_json: AsJson = False,
) -> None:
    """Show what would run, and why; nothing is computed or written."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.schemas.long_lived import paused_gc

    with paused_gc(stays=True):
        from curvflow.cli.text.plan_text import plan_summary
        from curvflow.flows.plan.plan import check_named, make_plan

        asked = open_study_store(study, store, profile, overrides, max_nodes)
        plan = make_plan(asked.study, asked.store, asked.files)
        check_named(plan)
        if as_json:
            print_json(plan.as_json())
        else:
            echo(plan_summary(plan.as_json()))
