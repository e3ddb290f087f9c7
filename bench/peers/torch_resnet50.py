#!/usr/bin/env python3
"""ResNet-50 (torchvision's, v1.5) in PyTorch. See protocol.py.

Modes: eager and compile, each as written and in the channels_last layout, which
PyTorch recommends for convolutions; and on a GPU a CUDA graph of the eager step,
and compile with its kernels tried out (max-autotune), which takes minutes.
The optimizer is the fused one.
"""

import shutil
import sys

import protocol

MODES = (
    *("eager", "eager-nhwc", "compile", "compile-nhwc"),
    *("graph-nhwc", "tuned-nhwc"),
)
flags = protocol.parse("pytorch", MODES, protocol.RESNET)

import torch  # noqa: E402: the flags set the environment it reads
import torch_step  # noqa: E402
from torch_models import image_shape, make_model  # noqa: E402


def main():
    compiled = flags.mode.startswith(("compile", "tuned"))
    if compiled and not (shutil.which("g++") or shutil.which("clang++")):
        sys.exit("torch.compile needs a C++ compiler: there is none here")
    torch_step.prepare(flags)
    images = torch.rand(flags.batch, *image_shape(flags.model)).to(flags.device)
    labels = torch.randint(1000, (flags.batch,)).to(flags.device)
    model = make_model(flags.model).to(flags.device)
    if flags.mode.endswith("nhwc"):
        images = images.contiguous(memory_format=torch.channels_last)
        model = model.to(memory_format=torch.channels_last)

    if flags.model == "resnet50_inference":
        model.eval()
        forward = torch_step.compiled(flags, model) if compiled else model

        @torch.inference_mode()
        def run(steps):
            with torch_step.autocast(flags):
                for _ in range(steps):
                    forward(images)
            if flags.device == "cuda":
                torch.cuda.synchronize()

        protocol.measure(flags, run)
        return

    model.train()

    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    if compiled:
        loss_of = torch_step.compiled(flags, loss_of)
    run = torch_step.trainer(flags, model, loss_of, images, labels, fused=True)
    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
