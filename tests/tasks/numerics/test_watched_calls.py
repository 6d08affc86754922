"""Modules whose calls are no functions of their weights, in the library and a study."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from curvflow import Monitor, ggn, hessian, llc
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.testing import assert_operator_is, dense_ggn, dense_hessian
from tests.tasks.toys import blobs, train_all, train_member


class Made(nn.Module):
    """Two layers, and something else that a call does with the first."""

    def __init__(self, how):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.how, self.seen = how, []
        # A list, a dictionary and a function of its own, of which torch knows nothing.
        weight = self.first.weight
        self.held = {"list": [weight], "dict": {"w": weight}, "made": lambda: weight}
        if how in ("layer", "recording layer"):
            self.first.register_full_backward_hook(self._hooked_layer)
        if how == "before":
            self.last.register_full_backward_pre_hook(lambda _, given: (2 * given[0],))

    def _hooked_layer(self, _, inputs, outputs):
        self.seen.append(outputs)
        if self.how == "layer":
            return tuple(2 * slope for slope in inputs)
        return None

    def _weight(self, how):
        if how == "list":
            return self.held["list"][0]
        return self.held["dict"]["w"] if how == "dict" else self.held["made"]()

    def _write(self):
        weight = self.first.weight
        if self.how == "no_grad":
            with torch.no_grad():
                weight.clamp_(-0.2, 0.2)
        elif self.how == "data":
            weight.data.clamp_(-0.2, 0.2)
        elif self.how == "set":
            weight.data = weight.data.clamp(-0.2, 0.2)
        elif self.how == "copied":
            weight.detach().copy_(weight.sign())

    def forward(self, x):
        self._write()
        x = self.first((x + self.last.bias).tanh())
        if self.how in self.held:
            x = x @ self._weight(self.how).to(x)
        if self.how == "tensor" and x.requires_grad:
            x.register_hook(lambda slope: slope / 2)
        if self.how == "recorded" and x.requires_grad:
            x.register_hook(self.seen.append)
        return self.last(x.tanh())


STRAY, WRITTEN = ["list", "dict", "made"], ["no_grad", "data", "set", "copied"]
HOOKED = ["tensor", "layer", "before"]
SAID = {
    **dict.fromkeys(STRAY, "takes from elsewhere"),
    **dict.fromkeys(WRITTEN, "'first.weight', which forward writes into"),
    **dict.fromkeys(HOOKED, "got a hook on those of"),
}


def made(how):
    torch.manual_seed(len(how))
    module = Made(how).double()
    module.held = Made(how).held if how not in STRAY else held(module)
    return module, torch.randn(6, 3).double(), torch.arange(6) % 3


def held(module):
    weight = module.first.weight
    return {"list": [weight], "dict": {"w": weight}, "made": lambda: weight}


@pytest.mark.parametrize("how", SAID)
def test_a_call_that_is_no_function_of_the_weights_is_refused(how):
    module, x, y = made(how)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    for operator in (hessian, ggn):
        with pytest.raises(InputError, match=SAID[how]):
            operator(module, nn.CrossEntropyLoss(), (x, y))
    allow = ["nondeterminism"]
    with pytest.raises(InputError, match=SAID[how]):
        hessian(module, nn.CrossEntropyLoss(), (x, y), allow=allow)
    if how not in WRITTEN:
        torch.testing.assert_close(list(module.parameters()), before)
    hooks = [*module.first._backward_hooks.values()]
    assert hooks == ([module._hooked_layer] if how == "layer" else [])


@pytest.mark.parametrize("how", SAID)
def test_a_study_refuses_it_before_training(how):
    model = {"factory": f"{__name__}:Made", "kwargs": {"how": how}}
    with pytest.raises(InputError, match=SAID[how]):
        pose(parse_model(model), "auto", blobs())


@pytest.mark.parametrize("how", ["plain", "recorded"])
def test_what_looks_on_is_none_of_it(how):
    module, x, y = made(how)
    H = dense_hessian(module, F.cross_entropy, x, y)
    for order in ORDERS:
        of = module, nn.CrossEntropyLoss(), (x, y)
        assert_operator_is(hessian(*of, order=order), H)
    G = dense_ggn(module, F.cross_entropy, x, y)
    assert_operator_is(ggn(module, "cross_entropy", (x, y)), G)


@pytest.mark.parametrize("how", STRAY)
def test_parameters_that_are_not_derived_by_may_be_taken_from_anywhere(how):
    module, x, y = made(how)
    rest = dense_hessian(module, F.cross_entropy, x, y)[9:, 9:]
    names = [name for name, _ in module.named_parameters() if name != "first.weight"]
    part = hessian(module, "cross_entropy", (x, y), params=names)
    assert_operator_is(part, rest)
    module.first.weight.requires_grad_(False)
    assert_operator_is(hessian(module, "cross_entropy", (x, y)), rest)


def make_stray():
    """Return a module with a tensor that nobody trains."""
    module = Made("plain")
    module.extra = [torch.ones(3, requires_grad=True)]
    module.first.register_forward_hook(lambda _, __, x: x * module.extra[0].to(x))
    return module


def test_a_tensor_that_requires_a_gradient_and_is_no_parameter_is_refused():
    model = {"factory": f"{__name__}:make_stray", "kwargs": {}}
    with pytest.raises(InputError, match=r"a tensor of shape \(3,\) that is none"):
        pose(parse_model(model), "auto", blobs())


class Followed(nn.Module):
    """A frozen layer that follows one that is trained, in training."""

    def __init__(self, how):
        super().__init__()
        self.first, self.slow, self.how = nn.Linear(3, 3), nn.Linear(3, 3), how
        self.slow.requires_grad_(False)

    def forward(self, x):
        slow, fast = self.slow.weight, self.first.weight
        if self.training and self.how == "set":
            slow.data = 0.9 * slow.data + 0.1 * fast.data
        elif self.training:
            with torch.no_grad():
                slow.lerp_(fast, 0.1)
        return self.first(x) + self.slow(x)


@pytest.mark.parametrize("how", ["set", "in place"])
def test_a_frozen_parameter_that_forward_moves_is_refused(how):
    model = {"factory": f"{__name__}:Followed", "kwargs": {"how": how}}
    with pytest.raises(InputError, match=r"'slow\.weight', which forward writes"):
        pose(parse_model(model), "auto", blobs())


class Tied(nn.Module):
    """One tensor under three names, two of them in lists that torch knows of."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight
        self.known = nn.ParameterList([self.first.weight])

    def forward(self, x):
        return self.last(self.first(x).tanh() @ self.known[0]) + x.mean(1, keepdim=True)


def test_ties_that_torch_knows_of_are_taken():
    torch.manual_seed(0)
    module, x, y = Tied().double(), torch.randn(6, 3).double(), torch.arange(6) % 3
    H = dense_hessian(module, F.cross_entropy, x, y)
    for order in ORDERS:
        assert_operator_is(hessian(module, "cross_entropy", (x, y), order=order), H)
    model = {"factory": f"{__name__}:Tied", "kwargs": {}}
    assert pose(parse_model(model), "auto", blobs()).network.num_parameters == 15


class Elsewhere(nn.Module):
    """Layers of which a call takes values from elsewhere, or of an earlier call."""

    def __init__(self, how):
        super().__init__()
        self.first, self.frozen, self.last = (nn.Linear(3, 3) for _ in range(3))
        self.frozen.requires_grad_(False)
        self.register_buffer("shift", torch.randn(3))
        self.how, self.cache, self.seen = how, None, []
        self.hold()

    def hold(self):
        self.held = {"w": [self.first.weight], "frozen": [self.frozen.weight]}
        frozen, shift = self.frozen.weight, self.shift
        self.held |= {"alias": self.first.weight.detach(), "buffer": [shift]}
        first, apart = frozen.detach(), partial(torch.clone)
        apart.keywords["input"] = frozen
        self.made = {
            "frozen in a function": lambda: frozen,
            "frozen in a default": lambda weight=frozen: weight,
            "frozen in a keyword": lambda *, weight=frozen: weight,
            "frozen in a partial": apart,
            "frozen in an alias": lambda: first,
            "frozen in a view": lambda row=first[0]: row,
            "buffer in a function": lambda: [lambda: shift][0](),
            "buffer in a default": lambda values=[shift]: values[0],
            "buffer in a view": lambda part=shift[:2]: part,
        }
        if self.how == "last":
            self.cache = float(self.first.weight.norm())

    def _factor(self):
        weight, how, held = self.first.weight, self.how, self.held
        if how == "no_grad":
            with torch.no_grad():
                return held["w"][0].norm()
        if how == "detached":
            return held["w"][0].detach().norm()
        if how in self.made:
            return self.made[how]().norm()
        if how.endswith("in a list"):
            return held[how.split()[0]][0].norm()
        if how.endswith("in its place"):
            places = {"frozen": self.frozen.weight, "buffer": self.shift}
            return places[how.split()[0]].norm()
        if how == "alias":
            return held["alias"].norm()
        return self._kept(how, weight)

    def _kept(self, how, weight):
        if how == "evaluated" and self.training:
            return weight.detach().norm()
        if how in ("once", "evaluated"):
            if self.cache is None:
                self.cache = weight.detach().norm()
            return self.cache
        if how == "last":
            before, self.cache = self.cache, float(weight.norm())
            return before
        # None of these is read again, or depends on weights.
        self.seen.append(weight.norm())
        self.cache = self.cache or {"scale": 2.0 + 0 * len(self.seen)}
        return self.cache["scale"]

    def forward(self, x):
        x = self.frozen(self.first(x).tanh()) * self._factor() + self.shift
        return self.last(F.dropout(x, 0.5, self.training))


ELSEWHERE = {
    "no_grad": "first.weight",
    "detached": "first.weight",
    "alias": "first.weight",
    "frozen in a view": "frozen.weight",
    "buffer in a view": "shift",
}
KEPT = ["once", "evaluated", "last"]


@pytest.mark.parametrize("how", [*ELSEWHERE, *KEPT, "none"])
def test_a_study_refuses_values_of_other_weights_than_those_of_the_call(how):
    model = parse_model({"factory": f"{__name__}:Elsewhere", "kwargs": {"how": how}})
    if how == "none":
        assert pose(model, "auto", blobs()).network.num_parameters == 24
        return
    said = f"got '{ELSEWHERE[how]}'" if how in ELSEWHERE else "calls"
    with pytest.raises(InputError, match=said):
        pose(model, "auto", blobs())


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("frozen", "in a list"),
        ("frozen", "in a function"),
        ("frozen", "in a default"),
        ("frozen", "in a keyword"),
        ("frozen", "in a partial"),
        ("frozen", "in an alias"),
        ("buffer", "in a list"),
        ("buffer", "in a function"),
        ("buffer", "in a default"),
    ],
)
def test_constants_of_a_seed_are_those_of_their_places_elsewhere_too(kind, place):
    several = [
        train_all(
            [
                train_member(
                    blobs(),
                    model={
                        "factory": f"{__name__}:Elsewhere",
                        "kwargs": {"how": f"{kind} {where}"},
                    },
                    seed=seed,
                )
                for seed in (0, 1)
            ]
        )
        for where in (place, "in its place")
    ]
    for ours, theirs in zip(*several, strict=True):
        for name in ("weights", "train_loss"):
            np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name])


def elsewhere(how):
    torch.manual_seed(3)
    module = Elsewhere(how).double().eval().requires_grad_()
    module.hold()
    return (
        module,
        nn.CrossEntropyLoss(),
        (torch.randn(6, 3).double(), torch.arange(6) % 3),
    )


@pytest.mark.parametrize("how", KEPT)
def test_the_library_refuses_a_module_that_keeps_values_of_weights(how):
    for operator in (hessian, ggn):
        module, loss, data = elsewhere(how)
        with pytest.raises(InputError, match="earlier calls"):
            operator(module, loss, data)
    module, loss, data = elsewhere(how)
    with pytest.raises(InputError, match="earlier calls"):
        Monitor(module, loss, data)
    assert (
        module.cache is None
        or how == "last"
        or module.cache == module.first.weight.norm()
    )


@pytest.mark.parametrize("how", ["no_grad", "detached"])
def test_values_from_elsewhere_are_constants_until_weights_move(how):
    module, loss, data = elsewhere(how)
    before = [tensor.clone() for tensor in module.state_dict().values()]
    H = dense_hessian(module, F.cross_entropy, *data)
    assert_operator_is(hessian(module, loss, data), H)
    for moving in (
        lambda: llc(module, loss, data),
        lambda: Monitor(module, loss, data),
    ):
        with pytest.raises(InputError, match="takes from elsewhere"):
            moving()
    Monitor(module, loss, data, probes=["sharpness"])
    torch.testing.assert_close(
        list(module.state_dict().values()), before, rtol=0, atol=0
    )


def test_what_a_module_keeps_without_weights_is_taken():
    module, loss, data = elsewhere("none")
    H = dense_hessian(module, F.cross_entropy, *data)
    assert_operator_is(hessian(module, loss, data), H)
    Monitor(module, loss, data)


class Overwriting(nn.Module):
    """Layers of which one writes into what the gradient of another needs."""

    def __init__(self, how):
        super().__init__()
        self.first, self.last, self.how = nn.Linear(3, 3), nn.Linear(3, 3), how

    def forward(self, x):
        hidden = self.first(x).sigmoid()
        if self.how == "always":
            hidden.mul_(2)
        elif self.how == "training" and self.training:
            hidden = F.dropout(hidden, 0.5, inplace=True)
        elif self.how == "harmless":
            hidden = self.first(x).mul_(2)
        return self.last(hidden)


@pytest.mark.parametrize("how", ["always", "training"])
def test_a_study_refuses_gradients_whose_values_are_overwritten(how):
    model = {"factory": f"{__name__}:Overwriting", "kwargs": {"how": how}}
    with pytest.raises(InputError, match=r"whose gradient can be taken.*Sigmoid.*anew"):
        pose(parse_model(model), "auto", blobs())


def test_the_library_refuses_them_where_they_are():
    for how in ("always", "harmless", "training"):
        torch.manual_seed(0)
        module, x = Overwriting(how).double().eval(), torch.randn(6, 3).double()
        data = x, torch.arange(6) % 3
        if how == "always":
            with pytest.raises(InputError, match="whose gradient can be taken"):
                hessian(module, "cross_entropy", data)
            continue
        H = dense_hessian(module, F.cross_entropy, *data)
        assert_operator_is(hessian(module, "cross_entropy", data), H)


PRETRAINED = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))


def make_pretrained():
    """Return the same module at each call."""
    return PRETRAINED


def make_sharing():
    """Return another module at each call, of the same tensors."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    for own, given in zip(module.parameters(), PRETRAINED.parameters(), strict=True):
        own.data = given.data
    return module


@pytest.mark.parametrize("name", ["make_pretrained", "make_sharing"])
def test_weights_that_instances_share_stay_as_they_are(name):
    before = [parameter.detach().clone() for parameter in PRETRAINED.parameters()]
    model = parse_model({"factory": f"{__name__}:{name}", "init": None})
    problem = pose(model, "auto", blobs())
    assert problem.network.num_parameters == 31
    torch.testing.assert_close(list(PRETRAINED.parameters()), before, rtol=0, atol=0)


class Circular(nn.Module):
    """A layer that its module reaches through lists which hold it, or themselves."""

    def __init__(self):
        super().__init__()
        self.last, self.ring, self.back = nn.Linear(3, 3), [], [self]
        self.ring.append(self.ring)

    def forward(self, x):
        return self.back[0].last(x.tanh())


def test_lists_that_hold_themselves_are_taken():
    torch.manual_seed(0)
    module, x = Circular().double(), torch.randn(6, 3).double()
    data = x, torch.arange(6) % 3
    H = dense_hessian(module, F.cross_entropy, *data)
    assert_operator_is(hessian(module, "cross_entropy", data), H)
    Monitor(module, nn.CrossEntropyLoss(), data)
    model = {"factory": f"{__name__}:Circular", "kwargs": {}}
    assert pose(parse_model(model), "auto", blobs()).network.num_parameters == 12


class Drawing(nn.Module):
    """A layer that draws in every call, by numbers that no seed sets back."""

    def __init__(self):
        super().__init__()
        self.last, self.draw = nn.Linear(3, 3), np.random.default_rng(0)

    def forward(self, x):
        return self.last(x) + self.draw.normal()


def test_draws_that_are_allowed_are_taken_for_no_memory():
    module, x = Drawing().double(), torch.randn(6, 3).double()
    data, allow = (x, torch.arange(6) % 3), ["nondeterminism"]
    before = torch.random.get_rng_state()
    # A shift of all outputs does not change the cross-entropy.
    H = hessian(module, "cross_entropy", data, allow=allow)
    llc(module, "cross_entropy", data, allow=allow, num_draws=8, num_chains=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    plain = dense_hessian(module.last, F.cross_entropy, *data)
    torch.testing.assert_close(H @ torch.eye(12).double(), plain)
