#!/usr/bin/env python3
"""Writes weights.pth, a checkpoint as training scripts save them, and
pth.safetensors: what the tensors of its state dict are, `weights/<key>`; other
files of torch.save as bytes, `<name>/file`, and their tensors, `<name>/<key>`.
A file without tensors here is one to be refused.

Needs torch, numpy and safetensors (bench/requirements.txt); rewrites both files
with the same bytes for the same library versions.
"""

import argparse
import collections
import io
import pathlib
import warnings

import torch
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent


def counting(*shape, dtype=torch.float32):
    """-3, -2, -1, ..., and -3 again after 97."""
    count = torch.Size(shape).numel()
    values = torch.arange(count) % 101 - 3
    if dtype == torch.uint8:
        values += 3
    return values.reshape(shape).to(dtype)


def network():
    torch.manual_seed(1)
    return nn.Sequential(
        collections.OrderedDict(
            conv=nn.Conv2d(2, 3, 3, bias=False), bn=nn.BatchNorm2d(3)
        )
    )


def tensors():
    """Every dtype, and every way to lie in a storage."""
    named = {
        str(dtype).removeprefix("torch."): counting(2, 3, dtype=dtype)
        for dtype in (
            torch.float32,
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int8,
            torch.uint8,
            torch.int32,
            torch.int64,
        )
    }
    named["bool"] = counting(7) > 0
    named["scalar"] = torch.tensor(2.5)
    named["empty"] = torch.zeros(0, 3)
    shared = counting(4, 5, 6)
    named["shared"] = shared
    named["shared_again"] = shared
    named["slice"] = shared[1:3, ::2, 4]
    named["permuted"] = shared.permute(2, 0, 1)
    named["transposed"] = counting(3, 5, dtype=torch.float16).t()
    named["transposed_bytes"] = counting(3, 5, dtype=torch.uint8).t()
    named["transposed_double"] = counting(3, 5, dtype=torch.float64).t()
    named["expanded"] = counting(3, 1).expand(2, 3, 4)
    named["channels_last"] = counting(2, 3, 4, 5).to(
        memory_format=torch.channels_last
    )
    named["parameter"] = nn.Parameter(counting(3))
    noted = counting(2)
    noted.note = "an attribute"
    named["noted"] = noted
    noted = nn.Parameter(counting(2))
    noted.note = "an attribute"
    named["noted_parameter"] = noted
    return named


def checkpoint():
    """A state dict and the whole that holds it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(5, 2, 4, 4)).sum().backward()
    optimizer.step()
    state = model.state_dict()
    state.update(tensors())
    return state, {
        "epoch": 3,
        "best": 0.75,
        "big": 1 << 80,
        "args": argparse.Namespace(lr=0.1, names=["a", "b"], size=(1, 2)),
        "history": [{"loss": 1.5}, None, True, {1, 2}, b"bytes"],
        "state_dict": state,
        "optimizer": optimizer.state_dict(),
        "rng_state": torch.arange(4, dtype=torch.uint8),
    }


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def main():
    golden = {}

    def expect(name, state):
        for key, tensor in state.items():
            tensor = tensor.detach().contiguous().clone()
            golden[f"{name}/{key}"] = tensor

    def keep(name, data):
        golden[f"{name}/file"] = torch.frombuffer(
            bytearray(data), dtype=torch.uint8
        )

    def add(name, value, state=None, **options):
        keep(name, saved(value, **options))
        expect(name, state or {})

    state, everything = checkpoint()
    torch.save(everything, HERE / "weights.pth")
    expect("weights", state)

    model = network()
    plain = model.state_dict()
    add("state_dict", plain, plain)
    parameters = dict(model.named_parameters())
    add("model", {"model": parameters, "step": 1}, parameters)
    for protocol in (3, 4, 5):
        add(f"protocol{protocol}", plain, plain, pickle_protocol=protocol)
    # Without tensors under "state_dict" the whole is the state dict.
    add("whole", {"a": counting(1), "state_dict": {}}, {"a": counting(1)})
    add("none", {})

    refused = {
        "module": model,
        "tensor": counting(3),
        "list": [counting(3)],
        "no_tensors": {"net": {"a": counting(1)}},
        "int16": {"a": counting(3, dtype=torch.int16)},
        "uint16": {"a": counting(3).abs().to(torch.uint16)},
        "complex": {"a": counting(3, dtype=torch.complex64)},
        "sparse": {"a": torch.eye(2).to_sparse()},
        "negative": {"a": counting(2, dtype=torch.complex64).conj().imag},
        "nine_dimensions": {"a": counting(*[1] * 9)},
    }
    for name, value in refused.items():
        add(name, value)
    # The rest has addresses in it.
    legacy = saved(plain, _use_new_zipfile_serialization=False)[:64]
    keep("legacy", legacy)
    torch.serialization.set_crc32_options(False)
    add("without_checksums", plain)

    save_file(golden, HERE / "pth.safetensors")
    for name in ("weights.pth", "pth.safetensors"):
        print(f"{name}: {(HERE / name).stat().st_size} bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
