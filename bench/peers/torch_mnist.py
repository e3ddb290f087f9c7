#!/usr/bin/env python3
"""Training steps of the three MNIST models in PyTorch. See protocol.py.

Modes: eager, as most programs are written; fused, eager with the optimizer in
one kernel; compile, the model through torch.compile.
"""

import shutil
import sys

import protocol

flags = protocol.parse("pytorch", ("eager", "fused", "compile"))

import torch  # noqa: E402: the flags set the environment it reads
from torch import nn  # noqa: E402


def dense(inputs, units):
    layer = nn.Linear(inputs, units)
    nn.init.trunc_normal_(layer.weight, std=inputs**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def make_model(name):
    if name == "mnist_softmax":
        return dense(784, 10)
    if name == "mnist_mlp":
        return nn.Sequential(
            dense(784, 128),
            nn.ReLU(),
            dense(128, 32),
            nn.ReLU(),
            dense(32, 10),
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        dense(7 * 7 * 64, 1024),
        nn.ReLU(),
        nn.Dropout(0.5),
        dense(1024, 10),
    )


def main():
    if flags.mode == "compile" and not (
        shutil.which("g++") or shutil.which("clang++")
    ):
        sys.exit("torch.compile needs a C++ compiler: there is none here")
    torch.set_num_threads(flags.threads)
    torch.manual_seed(1)
    image_shape = (1, 28, 28) if flags.model == "mnist_cnn" else (784,)
    images = torch.rand(flags.batch, *image_shape)
    labels = torch.randint(10, (flags.batch,))

    model = make_model(flags.model).train()
    optimizer = torch.optim.SGD(
        model.parameters(),
        protocol.LEARNING_RATE,
        protocol.MOMENTUM,
        fused=flags.mode == "fused",
    )

    def loss_of(images, labels):
        return nn.functional.cross_entropy(model(images), labels)

    if flags.mode == "compile":
        loss_of = torch.compile(loss_of)

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(images, labels).backward()
            optimizer.step()

    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
