"""Carry out a plan, stage by stage and tile by tile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from curvflow.errors import InputError, StoreError
from curvflow.flows.alive import Watch
from curvflow.flows.compute import LostInputError, compute_tile, failure, load
from curvflow.flows.continued import find_earlier
from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Node
from curvflow.flows.jobs import Computed, Failed, TileJob, tile_job
from curvflow.flows.lookup import compare, diverged_inputs
from curvflow.flows.observer import Observer
from curvflow.flows.partials import Partials
from curvflow.flows.plan import Plan, demand
from curvflow.flows.publish import Publisher, passed_on
from curvflow.flows.stopping import Stopping
from curvflow.flows.tally import Tally
from curvflow.flows.tiles import NODE_BY_NODE_WIDTH, cut, groups, width_for
from curvflow.flows.waiting import Waiting
from curvflow.schemas.options import RunOptions
from curvflow.schemas.receipts import RunRecord
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine, find

# Seconds between looks at what other runs are at work on: the first, and the longest.
LOOK_AFTER, LOOK_AT_LAST = 0.1, 2.0

Report = Computed | Failed


class Work:
    """One run of a plan."""

    def __init__(
        self,
        plan: Plan,
        run: RunRecord,
        store: Store,
        files: SourceFiles,
        options: RunOptions,
        observer: Observer,
        tally: Tally,
        stop: Stopping,
    ) -> None:
        """Prepare to carry out a plan.

        Args:
            plan: what to do.
            run: the run's record, already begun.
            store: where results go.
            files: files that parameters name.
            options: how to compute.
            observer: who watches.
            tally: counts what is done.
            stop: tells when the run is asked to end.
        """
        self._plan, self._run, self._store = plan, run, store
        self._files, self._options, self._observer = files, options, observer
        self._stop = stop
        self._partials = Partials(store, self._stop, tell=observer.tell)
        self._watch = Watch(store, silence=options.silence)
        self._struck: set[str] = set()
        self._busy: dict[str, str] = {}  # stage, by action key
        self._finished: list[str] = []  # claimed, done, and not given up yet
        self._waiting = Waiting(store, observer.tell)
        self._moved = False
        self._tally = tally
        self._publisher = Publisher(store, run, tally=tally, codes=plan.codes)

    def do(self, machine: Machine) -> None:
        """Compute everything that is not done and can be.

        Args:
            machine: where to compute.

        Raises:
            StoreError: results cannot be written, or not be read again and again.
            Stopped: the run was asked to end.
        """
        self._strike_lost()
        pause, before = LOOK_AFTER, 0
        while not self._swept(machine) or self._busy:
            if self._busy:  # nothing else is left, so follow the runs that have it
                self._give_up_claims()
                self._waiting.on(self._busy)
                is_moving = len(self._busy) != before
                pause = LOOK_AFTER if is_moving else min(2 * pause, LOOK_AT_LAST)
                before = len(self._busy)
                self._stop.sleep(pause)
        self._store.claims.sweep(
            lambda run: run == self._run.begun or self._watch.is_gone(run)
        )

    def _swept(self, machine: Machine) -> bool:
        """Go through the stages; False if something earlier must be done again."""
        self._busy.clear()
        self._moved = False
        try:
            for nodes in self._plan.graph.nodes.values():
                self._stage(nodes, machine)
        except LostInputError as error:
            self._lost(error)
            return False
        if self._moved:
            self._compare_all()
        return not self._moved

    def _strike_lost(self) -> None:
        lost: dict[str | None, list[str]] = defaultdict(list)
        for node in self._plan.graph:
            if node.state == "stale" and node.receipt is not None and not node.revive:
                lost[node.receipt.payload].append(node.receipt.key)
        if lost:
            self._strike(lost, "payload lost")

    def _lost(self, error: LostInputError) -> None:
        payload = error.receipt.payload
        if payload is None or payload not in self._store.index().evicted:
            keys = self._store.sharing(error.receipt)
            return self._strike({payload: keys}, str(error))
        is_new = payload not in self._plan.removed
        self._plan.removed.add(payload)
        demand(self._plan.graph, self._plan.removed)
        # It is computed again by this run, or by the one that has claimed it.
        if not is_new and not any(
            node.state == "stale" and node.receipt and node.receipt.payload == payload
            for node in self._plan.graph
        ):
            raise StoreError(f"{self._store.location}: {error}") from error
        return None

    def _strike(self, lost: Mapping[str | None, Sequence[str]], reason: str) -> None:
        """Strike results off the log, payload by payload, to compute them again."""
        keys = {key for some in lost.values() for key in some}
        if again := self._struck & keys:
            raise StoreError(f"{self._store.location}: {again.pop()[:12]}: {reason}")
        self._struck |= keys
        for payload, some in lost.items():
            self._store.retire(list(dict.fromkeys(some)), reason, payload=payload)
        self._observer.warn(
            f"{reason.rstrip('.')}; computing {len(keys)} results again"
        )
        self._compare_all()

    def _compare_all(self) -> None:
        index = self._store.index()
        for nodes in self._plan.graph.nodes.values():
            compare(nodes, index)
        demand(self._plan.graph, self._plan.removed)
        self._tally.recount()

    def _stage(self, nodes: Sequence[Node], machine: Machine) -> None:
        if not nodes or all(node.state == "cached" for node in nodes):
            return
        open_nodes = [node for node in nodes if node.state != "cached"]
        index = self._store.index()
        compare(open_nodes, index)
        found = [node for node in open_nodes if node.state == "cached"]
        self._tally.done[nodes[0].stage] += len(found)
        self._publisher.rely_on(found)
        self._pass_on_divergence(nodes)
        find_earlier(open_nodes, index, self._plan.codes, self._store)
        for group in groups(nodes):
            if any(node.state == "stale" for node in group):
                self._group(group, by_key(group), machine)
        self._tell(nodes[0].stage)

    def _group(
        self, group: Sequence[Node], twins: Mapping[str, list[Node]], machine: Machine
    ) -> None:
        """Compute nodes of equal signature; what did not fit is not tried again."""
        first = next(node for node in group if node.state == "stale")
        fits = width = self._width(first)
        for tile in cut(group, width, without=self._tally.failures):
            step = fits
            for start in range(0, len(tile), step):
                part = self._claimed(tile[start : start + step], twins)
                if part:
                    fits = min(fits, self._tile(part, twins, machine))

    def _width(self, node: Node) -> int:
        if not node.kind.vectorised:
            return NODE_BY_NODE_WIDTH
        try:
            (member,) = load(self._store, node.kind, self._job([node]).members)
            node_bytes = find(node.kind.name).member_bytes(member)
        except StoreError:
            raise
        # A model of the user's own may raise here; its tile will, and tell of it.
        except Exception:
            return NODE_BY_NODE_WIDTH
        return width_for(node_bytes, self._options.tile_bytes)

    def _job(self, nodes: Sequence[Node]) -> TileJob:
        # Nodes with equal parameters share one form, and so one reading of the files.
        first = {id(node.form): node for node in nodes}
        files = {
            form: self._files.read(node.params, node.form)
            for form, node in first.items()
        }
        code = [self._plan.codes.of(node).fingerprint for node in nodes]
        return tile_job(self._plan.graph, nodes, files, code)

    def _claimed(
        self, tile: Sequence[Node], twins: Mapping[str, list[Node]]
    ) -> list[Node]:
        """Return those nodes that no other run is at work on, nor has done by now."""
        self._stop.check()
        keys = [node.key for node in tile if node.key]
        claims = self._store.claims
        begun, gone = self._run.begun, self._watch.is_gone
        ours = set(claims.take(begun, keys, gone, done=self._finished))
        if ours:
            self._finished.clear()
        self._busy |= dict.fromkeys(set(keys) - ours, tile[0].stage)
        done = self._store.live(ours)
        self._publisher.adopt(tile[0].stage, list(done.values()), twins)
        return [node for node in tile if node.key in ours and node.key not in done]

    def _tile(
        self, tile: Sequence[Node], twins: Mapping[str, list[Node]], machine: Machine
    ) -> int:
        """Compute and publish a tile; return how many nodes fit in one call."""
        stage = tile[0].stage
        self._observer.tile_begins(stage)
        self._partials.turn_to(stage)
        self._publisher.note("begins", stage, [node.key for node in tile])
        tile, reports = self._revived(tile, self._computed(tile, machine), machine)
        done, failed = [], []
        for node, report in zip(tile, reports, strict=True):
            if isinstance(report, Computed):
                done.append(self._publisher.receipt(node, report))
            elif node.key is not None:
                self._tally.failures[node.key] = report
                failed.append(node.key)
        self._publisher.publish(stage, done, twins)
        for name in self._partials.taken():
            self._store.drop_partial(name)
        self._finished += [receipt.key for receipt in done]
        if failed:
            self._publisher.note("failed", stage, failed)
            self._finished += failed
            self._give_up_claims()
        self._tell(stage)
        if failed or not tile[0].kind.vectorised:
            return len(tile)
        return max(receipt.width for receipt in done)

    def _give_up_claims(self) -> None:
        """Say what is done or has failed, so that nobody waits for it."""
        if self._finished:
            self._store.claims.release(self._run.begun, self._finished)
            self._finished.clear()

    def _computed(self, tile: Sequence[Node], machine: Machine) -> Sequence[Report]:
        try:
            job = self._job(tile)
            return compute_tile(self._store, job, machine, self._partials)
        except InputError as error:  # a file is not what it was planned to be
            return [failure(error) for _ in tile]

    def _revived(
        self, tile: Sequence[Node], reports: Sequence[Report], machine: Machine
    ) -> tuple[Sequence[Node], Sequence[Report]]:
        """Hold what was computed again to the digests of what collection removed.

        The last bits may depend on who else was computed in the same call, so a result
        that differs is tried once more in its old company.

        Args:
            tile: what was computed.
            reports: what became of it.
            machine: where to compute.

        Returns:
            The nodes to be published, and their reports.
        """
        if not any(map(_differs, tile, reports)):
            return tile, reports
        wanted = {node.receipt.payload for node in tile if node.receipt}
        together = [
            node
            for node in self._plan.graph.nodes[tile[0].stage]
            if node.receipt is not None and node.receipt.payload in wanted
        ]
        whole = list({node.key: node for node in together}.values())
        if len(whole) > len(tile):
            tile, reports = whole, self._computed(whole, machine)
        changed = defaultdict(list)
        for node, report in zip(tile, reports, strict=True):
            if node.receipt is not None and node.key and _differs(node, report):
                changed[node.receipt.payload].append(node.key)
        reason = "computed again after collection, it came out different"
        for payload, keys in changed.items():
            self._store.retire(keys, reason, payload=payload)
            self._observer.warn(f"{reason}: {len(keys)} results of {tile[0].stage}")
            self._moved = True
        return tile, reports

    def _tell(self, stage: str) -> None:
        failed = self._tally.failed(stage) if self._tally.failures else 0
        self._observer.stage_at(stage, done=self._tally.done[stage], failed=failed)

    def _pass_on_divergence(self, nodes: Sequence[Node]) -> None:
        """Record what stands on diverged results as diverged; nothing is computed."""
        found = []
        for node in nodes:
            if node.state == "stale" and (diverged := diverged_inputs(node)):
                receipt = diverged[0].node.receipt
                assert receipt is not None
                found.append(self._publisher.receipt(node, passed_on(receipt)))
        if found:
            unique = list({receipt.key: receipt for receipt in found}.values())
            stale = [node for node in nodes if node.state == "stale"]
            self._publisher.publish(nodes[0].stage, unique, by_key(stale))


def by_key(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Group nodes by action key; equal parameters make several nodes one result."""
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        found[node.key or ""].append(node)
    return found


def _differs(node: Node, report: Report) -> bool:
    """Whether a result that was removed is not the same again."""
    earlier = node.receipt
    return (
        earlier is not None
        and isinstance(report, Computed)
        and earlier.digest != report.digest
    )
