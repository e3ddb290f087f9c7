#!/usr/bin/env python3
"""Inference of ResNet-50 in ONNX Runtime. See protocol.py.

The model is torchvision's, exported when the script starts.
"""

import contextlib
import io
import sys
import tempfile

import protocol

flags = protocol.parse("onnxruntime", ("session",), protocol.RESNET)
if flags.model != "resnet50_inference":
    sys.exit("ONNX Runtime only runs inference")

import onnxruntime  # noqa: E402: the flags set the environment it reads
import torch  # noqa: E402
import torchvision  # noqa: E402


def exported(path):
    torch.manual_seed(1)
    model = torchvision.models.resnet50().eval()
    image = torch.rand(flags.batch, 3, 224, 224)
    # The exporter prints its progress, which is no part of the protocol.
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(model, (image,), path, input_names=["image"])
    return image.numpy()


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/resnet50.onnx"
        image = exported(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = flags.threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )

    def run(steps):
        for _ in range(steps):
            session.run(None, {"image": image})

    protocol.measure(flags, run)


if __name__ == "__main__":
    main()
