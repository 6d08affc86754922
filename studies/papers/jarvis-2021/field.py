"""Steps of Metric regularisation for two weights; `figure-1.1.yaml` uses it."""

import numpy as np
import torch
from pydantic import Field

import curvflow


class Weights(curvflow.Params):
    """Where the steps begin, and the network that made the data."""

    first: float = Field(description="weight of the input")
    second: float = Field(description="weight of the output")
    teacher: float = Field(1.0, description="product of the teacher's weights")


@curvflow.stage(
    "probe.field",
    version=1,
    outputs=[
        curvflow.Variable("metric_first", "step of Metric, raw, in the first weight"),
        curvflow.Variable("metric_second", "the same in the second"),
        curvflow.Variable("metric_to_origin", "cosine of it and the way to the origin"),
        curvflow.Variable("metric_share", "part of it along the larger weight"),
    ],
)
def field(params: Weights) -> dict[str, float]:
    """Steps -H w of Metric for f(x) = w₂ w₁ x and a teacher, at x = 1."""
    w = np.array([params.first, params.second])
    network = torch.nn.Sequential(
        torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    ).double()
    with torch.no_grad():
        network[0].weight.fill_(params.first)
        network[1].weight.fill_(params.second)
    x = torch.ones(1, 1, dtype=torch.float64)
    hessian = curvflow.hessian(network, "mse", (x, params.teacher * x))
    metric = -np.asarray(hessian @ torch.from_numpy(w)) / 2  # of half the square
    larger = int(np.abs(w).argmax())
    step, size = np.linalg.norm(metric), np.linalg.norm(w)
    return {
        "metric_first": float(metric[0]),
        "metric_second": float(metric[1]),
        "metric_to_origin": float(-metric @ w / (step * size)) if step else np.nan,
        "metric_share": float(abs(metric[larger]) / step) if step else np.nan,
    }
