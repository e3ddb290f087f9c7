#!/usr/bin/env python3
"""ResNet-50 (torchvision's, v1.5) in PyTorch. See protocol.py.

Modes: eager and compile, each as written and in the channels_last layout, which
PyTorch recommends for convolutions on CPUs. The optimizer is the fused one.
"""

import shutil
import sys

import protocol

MODES = ("eager", "eager-nhwc", "compile", "compile-nhwc")
flags = protocol.parse("pytorch", MODES, protocol.RESNET)

import torch  # noqa: E402: the flags set the environment it reads
import torchvision  # noqa: E402


def main():
    compiled = flags.mode.startswith("compile")
    if compiled and not (shutil.which("g++") or shutil.which("clang++")):
        sys.exit("torch.compile needs a C++ compiler: there is none here")
    torch.set_num_threads(flags.threads)
    torch.manual_seed(1)
    images = torch.rand(flags.batch, 3, 224, 224)
    labels = torch.randint(1000, (flags.batch,))
    model = torchvision.models.resnet50()
    if flags.mode.endswith("nhwc"):
        images = images.contiguous(memory_format=torch.channels_last)
        model = model.to(memory_format=torch.channels_last)

    if flags.model == "resnet50_inference":
        model.eval()
        forward = torch.compile(model) if compiled else model

        @torch.inference_mode()
        def run(steps):
            for _ in range(steps):
                forward(images)

        protocol.measure(flags, run)
        return

    model.train()
    optimizer = torch.optim.SGD(
        model.parameters(),
        protocol.LEARNING_RATE,
        protocol.MOMENTUM,
        fused=True,
    )

    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    if compiled:
        loss_of = torch.compile(loss_of)

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(images, labels).backward()
            optimizer.step()

    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
