#!/usr/bin/env python3
"""Training steps of the three MNIST models in PyTorch. See protocol.py.

Modes: eager, as most programs are written; fused, eager with the optimizer in
one kernel; compile, the model through torch.compile; graph, on a GPU, the fused
step as a CUDA graph.
"""

import shutil
import sys

import protocol

flags = protocol.parse("pytorch", ("eager", "fused", "compile", "graph"))

import torch  # noqa: E402: the flags set the environment it reads
import torch_step  # noqa: E402
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
    torch_step.prepare(flags)
    image_shape = (1, 28, 28) if flags.model == "mnist_cnn" else (784,)
    images = torch.rand(flags.batch, *image_shape).to(flags.device)
    labels = torch.randint(10, (flags.batch,)).to(flags.device)

    model = make_model(flags.model).to(flags.device).train()

    def loss_of(images, labels):
        return nn.functional.cross_entropy(model(images), labels)

    if flags.mode == "compile":
        loss_of = torch_step.compiled(flags, loss_of)
    fused = flags.mode in ("fused", "graph")
    run = torch_step.trainer(flags, model, loss_of, images, labels, fused)
    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
