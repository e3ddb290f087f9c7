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
from torch_models import image_shape, make_model  # noqa: E402


def main():
    if flags.mode == "compile" and not (
        shutil.which("g++") or shutil.which("clang++")
    ):
        sys.exit("torch.compile needs a C++ compiler: there is none here")
    torch_step.prepare(flags)
    images = torch.rand(flags.batch, *image_shape(flags.model)).to(flags.device)
    labels = torch.randint(10, (flags.batch,)).to(flags.device)

    model = make_model(flags.model).to(flags.device).train()

    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    if flags.mode == "compile":
        loss_of = torch_step.compiled(flags, loss_of)
    fused = flags.mode in ("fused", "graph")
    run = torch_step.trainer(flags, model, loss_of, images, labels, fused)
    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
