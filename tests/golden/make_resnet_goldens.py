#!/usr/bin/env python3
"""Writes resnet.safetensors: what torchvision's networks compute, in float64.

Weights and images follow a rule of index and name (`uniform` below) that
tests/models/zoo/resnet_test.cc repeats, so that no big file is needed. One training step's
forward and backward pass gives logits, loss, gradients and running statistics;
a forward pass before it, in inference, gives the logits of the given
statistics. Of each large tensor the file keeps a digest.

torchvision has no networks for CIFAR: that of the paper, with its option A
shortcuts, is written here with torchvision's names of modules.

Needs torch, torchvision, numpy and safetensors (bench/requirements.txt).
"""

import zlib

import numpy
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from make_goldens import Family

SAMPLES = 4


def bits(name, count):
    """32 random bits for each i < count: MurmurHash3's finalizer of
    crc32(name) + i * 0x9e3779b9."""
    h = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B9)
    h = (h + numpy.uint64(zlib.crc32(name.encode()))).astype(numpy.uint32)
    h = (h ^ (h >> numpy.uint32(16))) * numpy.uint32(0x85EBCA6B)
    h = (h ^ (h >> numpy.uint32(13))) * numpy.uint32(0xC2B2AE35)
    return h ^ (h >> numpy.uint32(16))


def uniform(name, shape):
    """Values in [-1, 1), exact in float32: multiples of 2^-20."""
    h = bits(name, int(numpy.prod(shape, dtype=numpy.int64)))
    values = (h >> numpy.uint32(11)).astype(numpy.float64) * 2.0**-20 - 1.0
    return values.reshape(tuple(shape))


def value_of(name, shape):
    """The first value of the tensor `name` of a state dictionary."""
    u = uniform(name, shape)
    if len(shape) == 4:
        # Of deviation about sqrt(2 / fan_out), a power of two so that the
        # product is exact.
        fan_out = shape[0] * shape[2] * shape[3]
        return u * 2.0 ** numpy.round(numpy.log2(numpy.sqrt(6.0 / fan_out)))
    if len(shape) == 2:
        return u * 2.0**-5
    if name.endswith("running_var"):
        return 1.0 + u * 0.5
    if name.endswith("running_mean") or name.endswith("bias"):
        return u * 0.125
    # Bottlenecks whose branches add less amplify rounding less.
    return (1.0 + u * 0.25) * (0.25 if name.endswith("bn3.weight") else 1.0)


def digest(name, tensor):
    """Euclidean norm, product with a random vector, and a few elements."""
    x = tensor.detach().numpy().reshape(-1)
    where = bits(name + "/sample", SAMPLES) % numpy.uint32(x.size)
    return numpy.concatenate(
        [
            [numpy.linalg.norm(x), x @ uniform(name + "/projection", x.shape)],
            x[where],
        ]
    )


class CifarBlock(nn.Module):
    def __init__(self, inputs, channels):
        super().__init__()
        stride = 1 if inputs == channels else 2
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        missing = y.shape[1] - x.shape[1]
        if missing:
            channels = (0, 0, 0, 0, missing // 2, missing // 2)
            x = F.pad(x[:, :, ::2, ::2], channels)
        return F.relu(x + y)


class CifarResNet(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        inputs = 16
        for stage, channels in enumerate((16, 32, 64), 1):
            stack = []
            for _ in range(blocks):
                stack.append(CifarBlock(inputs, channels))
                inputs = channels
            setattr(self, f"layer{stage}", nn.Sequential(*stack))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class V1(torchvision.models.resnet.Bottleneck):
    """A bottleneck as the paper has it: the first convolution strides."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        stride = self.conv2.stride
        self.conv1.stride, self.conv2.stride = stride, (1, 1)


MODELS = {
    # name: (network, images, their side, classes)
    "resnet18": (torchvision.models.resnet18, 4, 32, 1000),
    "resnet50": (torchvision.models.resnet50, 4, 32, 1000),
    "resnet50_v1": (
        lambda: torchvision.models.ResNet(V1, [3, 4, 6, 3]),
        4,
        32,
        1000,
    ),
    "resnet20": (lambda: CifarResNet(3), 4, 32, 10),
}


def add(family, name):
    make, count, side, classes = MODELS[name]
    model = make().double()
    state = {
        key: torch.from_numpy(value_of(key, tuple(tensor.shape)))
        for key, tensor in model.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    model.load_state_dict(state, strict=False)
    # NHWC, as the engine has it.
    images = torch.from_numpy(uniform("image", (count, side, side, 3)))
    images = images.permute(0, 3, 1, 2)
    labels = torch.arange(count) * 37 % classes

    model.eval()
    family.add_tensor(f"{name}/eval_logits", model(images).float())
    model.train()
    logits = model(images)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    family.add_tensor(f"{name}/logits", logits.float())
    family.add_tensor(f"{name}/loss", loss.reshape(1))
    gradients = {key: p.grad for key, p in model.named_parameters()}
    statistics = {key: b for key, b in model.named_buffers() if key in state}
    for what, tensors in (("gradients", gradients), ("statistics", statistics)):
        rows = [digest(key, tensor) for key, tensor in tensors.items()]
        family.add_tensor(f"{name}/{what}", numpy.stack(rows))
    family.describe(
        name,
        {
            "images": count,
            "side": side,
            "classes": classes,
            "parameters": {key: list(state[key].shape) for key in gradients},
            "statistics": {key: list(state[key].shape) for key in statistics},
        },
    )


def main():
    family = Family()
    for name in MODELS:
        add(family, name)
    family.write("resnet")


if __name__ == "__main__":
    main()
