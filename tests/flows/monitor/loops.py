"""Small training loops, with a monitor and without."""

import os
import signal

import torch
from torch import nn

import curvflow

LOSS = nn.CrossEntropyLoss()
# A learning coefficient in little time, whatever it is worth.
FEW = {
    "calibrate": "none",
    "sampling_method": "sgld",
    "lr": 1e-4,
    "localization": 10.0,
    "batch_size": 16,
    "num_burnin_steps": 0,
    "num_chains": 2,
    "num_draws": 10,
    "num_steps_bw_draws": 1,
}


def problem():
    """Return inputs and labels of three noisy classes."""
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(48) % 3
    x = torch.randn(48, 4, generator=draw, dtype=torch.float64)
    return x + y[:, None], y


def small(seed=0):
    """Return a net of 45 weights in double precision."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2 + 1)).double()


def monitored(net, loss="cross_entropy", **settings):
    return curvflow.Monitor(
        net, loss, problem(), **{"every": 5, "budget": None} | settings
    )


class Loop:
    """Training by mini-batches with momentum, which can be kept and gone on with."""

    def __init__(self, net, *, seed=2):
        self.net, self.draw = net, torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.5)

    def run(self, steps, monitor=None):
        x, y = problem()
        for _ in range(steps):
            rows = torch.randint(len(x), (8,), generator=self.draw)
            self.optimizer.zero_grad()
            loss = LOSS(self.net(x[rows].to(next(self.net.parameters()))), y[rows])
            loss.backward()
            self.optimizer.step()
            if monitor is not None:
                monitor.step(loss)
        return self

    def state(self):
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "draw": self.draw.get_state(),
        }

    def load(self, state):
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.draw.set_state(state["draw"])
        return self


def run_and_die(store):
    """Run 12 steps with a monitor, two of them measured, and be killed."""
    torch.set_num_threads(1)
    net = small()
    Loop(net).run(12, monitored(net, store=store))
    os.kill(os.getpid(), signal.SIGKILL)
