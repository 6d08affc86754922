"""Files of tensors, read without running any code."""

import io
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_safetensors
from torch import nn

from curvflow.errors import InputError
from curvflow.tasks.weights.state_dicts import read_tensors


class Planted:
    """What would leave a trace if it were made."""

    made = False

    def __reduce__(self):
        return _trace, ()


def _trace():
    Planted.made = True


def written(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def net():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_state_dict_is_read_to_the_last_bit(suffix, dtype):
    state = net().to(dtype).state_dict()
    save = save_safetensors if suffix == ".safetensors" else written
    found = read_tensors(save(state), f"net{suffix}", "path")
    assert list(found) == list(state) or suffix == ".safetensors"
    assert found.keys() == state.keys()
    for name, array in found.items():
        exact = state[name].double().numpy()
        np.testing.assert_array_equal(array.astype(np.float64), exact)


def test_what_a_training_loop_keeps_is_read_by_dotted_names():
    module = net()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    kept = {"epoch": 7, "lr": 0.1, "model": module.state_dict()}
    kept["optimizer"] = optimizer.state_dict()
    found = read_tensors(written(kept), "last.ckpt", "path")
    assert {f"model.{name}" for name in module.state_dict()} <= set(found)
    assert "optimizer.state.0.exp_avg" in found
    assert "epoch" not in found


def test_sparse_tensors_and_parameters_are_arrays_too():
    held = {
        "sparse": torch.eye(3).to_sparse(),
        "half": torch.eye(3, dtype=torch.float16).to_sparse(),
        "own": nn.Parameter(torch.ones(2)),
    }
    found = read_tensors(written(held), "x.pt", "path")
    for name in ("sparse", "half"):
        np.testing.assert_array_equal(found[name], np.eye(3))
    np.testing.assert_array_equal(found["own"], np.ones(2))


def test_views_of_conjugates_and_negatives_are_arrays_too():
    values = torch.randn(2, 3, dtype=torch.complex64)
    numbers = torch.randn(2, 3)
    held = {"turned": values.conj(), "negative": torch._neg_view(numbers)}
    found = read_tensors(written(held), "x.pt", "path")
    np.testing.assert_array_equal(found["turned"], values.numpy().conj())
    np.testing.assert_array_equal(found["negative"], -numbers.numpy())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ],
    ids=["meta", "quantised", "nested"],
)
def test_a_tensor_without_plain_numbers_is_named(make):
    tensor = make()
    content = written({"plain": torch.ones(1), "layer.weight": tensor})
    with pytest.raises(InputError, match=r"numbers in x.pt, got 'layer.weight' of"):
        read_tensors(content, "x.pt", "path")


def test_no_object_is_made_and_its_class_is_named():
    with pytest.raises(
        InputError, match=r"tensors alone in x.pt, got an object of \S+"
    ):
        read_tensors(
            written({"w": torch.ones(1), "planted": Planted()}), "x.pt", "path"
        )
    assert not Planted.made
    with pytest.raises(
        InputError, match=r"object of torch.nn.modules.*Sequential, which"
    ):
        read_tensors(written(net()), "x.pt", "path")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("is_archive", [True, False])
def test_a_protocol_that_cannot_be_read_safely_is_named(protocol, is_archive):
    buffer = io.BytesIO()
    torch.save(
        {"w": torch.ones(1)},
        buffer,
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=is_archive,
    )
    with pytest.raises(InputError, match=r"tensors alone in x.pt, .* protocol 4 or 5"):
        read_tensors(buffer.getvalue(), "x.pt", "path")


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", b"no tensors")
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", bytes(range(256)) * 9, zipped(), written(net())[:900]],
    ids=["empty", "text", "bytes", "zip", "cut"],
)
def test_what_is_no_such_file_is_refused_on_one_line(suffix, content):
    with pytest.raises(InputError, match="expected a file that") as it:
        read_tensors(content, f"x{suffix}", "path")
    assert "\n" not in str(it.value)


def test_a_file_without_tensors_is_refused():
    with pytest.raises(InputError, match=r"expected tensors in x\.pt, got none"):
        read_tensors(written({"epoch": 3, "names": ["a"]}), "x.pt", "path")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([1.0, 2.0, 3], "a list of 3 float, int"),
        ([], "a list of 0"),
        (([1], "a"), "a tuple of 2 list, str"),
        ({1, 2}, "a set of 2 int"),
        (3.5, "one float"),
        ("net", "one str"),
        (None, "None"),
    ],
)
def test_what_holds_no_tensors_is_described(value, got):
    expected = f"path: expected a dictionary of tensors in x.pt, got {got}. Write "
    with pytest.raises(InputError) as refused:
        read_tensors(written(value), "x.pt", "path")
    assert str(refused.value).startswith(expected)


def test_a_tensor_alone_is_an_array_and_messages_name_the_parameter():
    assert list(read_tensors(written(torch.ones(3)), "x.pt", "path")) == ["array"]
    with pytest.raises(
        InputError, match=r"^targets_path: expected a file that torch\.save"
    ):
        read_tensors(b"", "x.pt", "targets_path")
