"""Trained networks to probe."""

from functools import cache

from tests.tasks.toys import (
    RELU_NET,
    TANH_NET,
    blobs,
    member,
    train_all,
    train_member,
    waves,
    weights_of,
    xor,
)

DATA = {
    "tanh-ce": (TANH_NET, blobs(), "auto"),
    "relu-ce": (RELU_NET, blobs(), "auto"),
    "tanh-mse": (TANH_NET, waves(), "mse"),
    "relu-sse": (RELU_NET, waves(), "sse"),
    "tanh-xor": (TANH_NET, xor(), "auto"),
}


@cache
def fits(case: str, count: int = 5):
    model, data, loss = DATA[case]
    rule = {"rule": "sgd", "lr": 0.02, "momentum": 0.9}
    return train_all(
        [
            train_member(data, model=model, loss=loss, rule=rule, seed=seed)
            for seed in range(count)
        ]
    )


def probes(kind: str, case: str, count: int = 5, **params):
    data = DATA[case][1]
    takes = {} if kind == "probe.norms" else {"data": data}
    return [
        member(kind, params, weights=weights_of(fit), **takes)
        for fit in fits(case)[:count]
    ]
