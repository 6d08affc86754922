"""Episodes in a bucket, on a cluster and under a Prefect server."""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.children import PATIENCE, Fault, await_that
from tests.chaos.episodes import ChaosError, Episode, Services
from tests.chaos.judge import traces

SHARES = (0.05, 0.2, 0.5)  # of requests that fail


class BucketEpisode(Episode):
    """A store in a bucket whose server fails now and then."""

    name = "bucket"

    def __init__(self, seed: int, folder: Path, services: Services) -> None:
        super().__init__(seed, folder, services)
        self._server = services.bucket()
        self._bucket = f"chaos-{os.urandom(8).hex()}"
        self._server.fail(0.0)
        self._server.make_bucket(self._bucket)

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/studies"

    @property
    def environment(self) -> dict[str, str]:
        return self._server.environment()

    def actions(self) -> dict[Callable[[], None], int]:
        return {
            self.run_in_storm: 5,
            self.outage: 1,
            self.run_two: 1,
            self.strike: 4,
            self.collect: 1,
            self.verify: 1,
            self.edit: 3,
            self.spoil_object: 2,
        }

    def _objects(self):
        return self.store()._bucket

    def run_in_storm(self) -> None:
        """Run once or twice while requests fail."""
        share, number = self.draw.choice(SHARES), self.draw.choice([1, 1, 2])
        self.note("storm", f"{share} of requests, {number} runs")
        with self._failing(share):
            runs = [self.start_run() for _ in range(number)]
            for run in runs:
                self.end(run, 0, 1)

    def outage(self) -> None:
        """Let every request fail for some seconds in the midst of a run."""
        seconds = self.draw.choice([0.5, 2.0, 8.0])
        self.note("outage", f"{seconds} s")
        run = self.start_run()
        time.sleep(self.draw.uniform(0.2, 1.0))
        with self._failing(1.0):
            time.sleep(seconds)
        self.end(run, 0, 1)

    @contextmanager
    def _failing(self, share: float):
        self._server.fail(share, self.draw.randrange(1000))
        try:
            yield
        finally:
            self._server.fail(0.0)

    def spoil_object(self) -> None:
        """Flip a bit of a payload, or cut an entry of the log."""
        bucket = self._objects()
        folder = self.draw.choice(["payloads", "payloads", "commits"])
        paths = sorted(info.path for info in bucket.list(folder))
        paths = [path for path in paths if not path.endswith(".mark")]
        if paths:
            path = paths[self.draw.randrange(len(paths))]
            content = bytearray(bucket.get(path))
            content[self.draw.randrange(len(content))] ^= 1 << self.draw.randrange(8)
            bucket.put(path, bytes(content))
            self.note("flip", folder)

    def look_around(self) -> list[str]:
        bucket, copy = self._objects(), self.folder / "copy"
        for info in bucket.list():
            path = copy / info.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bucket.get(info.path) or b"")
        names = [str(self.folder), str(Path.cwd()), self._server.url]
        return list(traces(copy, names))


class ClusterEpisode(Episode):
    """Runs on the workers of a Dask scheduler, which dies."""

    name = "cluster"

    def perform(self, number: int) -> None:
        from tests.cluster.runs import site

        with site(self.folder, 1) as self._site:
            super().perform(min(number, 5))

    def actions(self) -> dict[Callable[[], None], int]:
        return {
            self.run_on_cluster: 1,
            self.run_beside_cluster: 1,
            self.kill_scheduler: 4,
            self.kill_worker: 2,
            self.kill_run: 2,
            self.collect: 1,
            self.edit: 4,
        }

    def _start_on_cluster(self, fault: Fault | None = None):
        where = ("--device", "cpu", "--scheduler", self._site.address)
        return self.start("run", "study.yaml", *where, *self.study.words(), fault=fault)

    def run_on_cluster(self) -> None:
        """Run on the cluster to the end."""
        self.note("run", "on the cluster")
        self.end(self._start_on_cluster(), *self.good)

    def run_beside_cluster(self) -> None:
        """Run on the cluster, and without it at the same time."""
        self.note("two runs", "one of them on the cluster")
        runs = [self._start_on_cluster(), self.start_run()]
        for run in runs:
            self.end(run, *self.good)

    def kill_scheduler(self) -> None:
        """Kill the scheduler after some commits; perhaps it comes back at once."""
        run, comes_back = self._commits_later("scheduler dies")
        self._site.scheduler.kill()
        if comes_back:
            self._site.come_back(1)
        self.end(run, 0, 1)
        if not comes_back:
            self._site.come_back(1)
        self._site.await_workers(1)

    def kill_worker(self) -> None:
        """Kill the worker after some commits; perhaps another comes at once."""
        run, comes_back = self._commits_later("worker dies")
        self._site.workers[-1].kill()
        if comes_back:
            self._site.worker()
        self.end(run, 0, 1)
        if not comes_back:
            self._site.worker()
        self._site.await_workers(1)

    def _commits_later(self, what: str):
        """Start a run on the cluster, and wait until it has committed so often."""
        count, comes_back = self.draw.randint(1, 8), self.draw.random() < 0.5
        self.note(what, f"after {count} entries{', and comes back' * comes_back}")
        store = self.store()
        last = store.index().number + count
        run = self._start_on_cluster()
        await_that(lambda: store.index().number >= last or run.code is not None)
        return run, comes_back

    def kill_run(self) -> None:
        """Kill the run, which leaves its tiles to the workers."""
        fault = self._fault("kill")
        self.note("kill", f"at {fault.at}, on the cluster")
        self.end(self._start_on_cluster(fault), -9, *self.good)


class PrefectEpisode(Episode):
    """Runs with a page under a Prefect server that hangs or is lost."""

    name = "prefect"
    width = 0  # commands that load Prefect are forked elsewhere, with all as it is

    def actions(self) -> dict[Callable[[], None], int]:
        return {
            self.hang: 3,
            self.lose: 2,
            self.observe: 1,
            self.strike: 1,
            self.edit: 4,
        }

    def perform(self, number: int) -> None:
        super().perform(min(number, 3))

    def hang(self) -> None:
        """Let the server fall silent after some requests."""
        last = self.draw.randint(0, 25)
        self.note("server hangs", f"after {last} requests")
        self._observed(lambda proxy: proxy.hang(last))

    def lose(self) -> None:
        """Cut the wire to the server in the midst of a run."""
        last = self.draw.randint(1, 25)
        self.note("server is lost", f"after {last} requests")
        self._observed(lambda proxy: None, cut_after=last)

    def observe(self) -> None:
        """Run with a page to the end."""
        self.note("run", "under Prefect")
        self._observed(lambda proxy: None)

    def _observed(self, arrange, cut_after: float = float("inf")) -> None:
        from tests.deployed.proxy import proxied
        from tests.deployed.warm import command

        server, words = self.services.prefect(), self.study.words()
        where = ("--store", self.url, "--device", "cpu", "--workers", "1")
        said = self.folder / f"said-{os.urandom(4).hex()}"
        hurried = {"PREFECT_API_REQUEST_TIMEOUT": "10"}
        with proxied(server.api) as proxy, ExitStack() as stack:
            arrange(proxy)
            output = stack.enter_context(said.open("w"))
            process = subprocess.Popen(
                [
                    *command(server.warm, "curvflow"),
                    "run",
                    "study.yaml",
                    *where,
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.study.folder,
                env=server.environment | hurried | {"PREFECT_API_URL": proxy.api},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            until = time.monotonic() + PATIENCE
            while process.poll() is None and time.monotonic() < until:
                if len(proxy.requests) >= cut_after:
                    proxy.cut()
                time.sleep(0.02)
        self._check(process.returncode, said.read_text())

    def _check(self, code: int, said: str) -> None:
        self.tally["commands"] += 1
        if code != 0 or "Traceback" in said:
            raise ChaosError(f"a run under Prefect: exit code {code}\n{said[-3000:]}")


KINDS = {
    kind.name: kind for kind in (Episode, BucketEpisode, ClusterEpisode, PrefectEpisode)
}
# Of eight, one each of those that take longer.
ROTA = (
    "folder",
    "folder",
    "bucket",
    "folder",
    "cluster",
    "folder",
    "folder",
    "prefect",
)


def kind_of(seed: int):
    """Return the kind of episode that a seed stands for."""
    return KINDS[ROTA[seed % len(ROTA)]]
