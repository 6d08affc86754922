"""Nodes of autograd's graph, each once."""

import torch

from curvflow.tasks.numerics.autograd_nodes import nodes_of


def test_each_node_comes_once_whatever_leads_to_it():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    shared = a * b
    left, right = shared.exp(), shared.sin()
    total = left + right + a
    nodes = list(nodes_of([total, left, torch.ones(1)]))
    assert len(nodes) == len(set(nodes))
    leaves = [id(n.variable) for n in nodes if hasattr(n, "variable")]
    assert sorted(leaves) == sorted([id(a), id(b)])
    assert {shared.grad_fn, left.grad_fn, right.grad_fn} <= set(nodes)


def test_closed_nodes_hide_what_lies_behind_them_alone():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    inner = (a * b).exp()
    total = inner + b
    nodes = list(nodes_of([total], closed={inner.grad_fn}))
    leaves = [n.variable for n in nodes if hasattr(n, "variable")]
    assert [leaf is b for leaf in leaves] == [True]
    assert inner.grad_fn not in nodes
