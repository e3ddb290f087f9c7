"""Sluice beside PyTorch, TensorFlow and ONNX Runtime."""

import hashlib
import json
import pathlib
import subprocess
import sys

from comparing.failure import Failure
from comparing.models import (
    family_of,
    measure,
    model_flags,
    on_gpu,
    print_results,
    program_of,
)

BENCH = pathlib.Path(__file__).resolve().parent.parent
BUILD = BENCH.parent / "build"

# Modes that want a GPU, where the others are not all known.
GPU_ONLY = ("graph", "graph-nhwc", "tuned-nhwc")
# For each family of models: name, script and mode of every peer.
PEERS = {
    "mnist": {
        "pytorch": ("torch_mnist.py", "eager"),
        "pytorch-fused": ("torch_mnist.py", "fused"),
        "pytorch-compile": ("torch_mnist.py", "compile"),
        "pytorch-graph": ("torch_mnist.py", "graph"),
        "tensorflow": ("tf_mnist.py", "function"),
    },
    "resnet50": {
        "pytorch": ("torch_resnet50.py", "eager"),
        "pytorch-nhwc": ("torch_resnet50.py", "eager-nhwc"),
        "pytorch-compile": ("torch_resnet50.py", "compile"),
        "pytorch-compile-nhwc": ("torch_resnet50.py", "compile-nhwc"),
        "pytorch-graph-nhwc": ("torch_resnet50.py", "graph-nhwc"),
        "pytorch-tuned-nhwc": ("torch_resnet50.py", "tuned-nhwc"),
        "tensorflow": ("tf_resnet50.py", "function"),
        "onnxruntime": ("ort_resnet50.py", "session"),
    },
}

# Sluice itself, told more; set beside it only where that is asked for.
OURS = {"fused-statistics": ("--fuse-statistics",)}


def peers_python():
    """The interpreter of the peers' environment, made when absent or old."""
    requirements = BENCH / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    environment = BUILD / "peers"
    python = environment / "bin" / "python"
    stamp = environment / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"Installing the peers into {environment}", file=sys.stderr)
    made = subprocess.run([sys.executable, "-m", "venv", environment])
    if made.returncode != 0:
        raise Failure("python3 -m venv failed; on Debian install python3-venv")
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", "-r", requirements],
        stdout=sys.stderr,
    )
    if installed.returncode != 0:
        raise Failure(f"pip could not install {requirements}")
    stamp.write_text(digest)
    return python


def groups_of(flags, model):
    """The peers that take turns with us in one go."""
    known = PEERS[family_of(model)]
    peers = [name for name in flags.peer or known if name in known]
    if on_gpu(flags):
        peers = [name for name in peers if name.startswith("pytorch")]
    else:
        peers = [name for name in peers if known[name][1] not in GPU_ONLY]
    peers += [name for name in flags.peer or () if name in OURS]
    if flags.pairs or family_of(model) == "resnet50":
        return [[peer] for peer in peers]
    return [peers]


def commands_of(flags, model, peers):
    serve = ["--serve", *model_flags(flags, model)]
    ours = [program_of(flags.build, "step_bench"), *serve, "--device",
            flags.device]
    commands = {"sluice": ours}
    if on_gpu(flags):
        serve += ["--device", "cuda"]
    for name in peers:
        if name in OURS:
            commands[name] = [*ours, *OURS[name]]
            continue
        script, mode = PEERS[family_of(model)][name]
        path = BENCH / "peers" / script
        python = flags.python or peers_python()
        commands[name] = [python, path, "--mode", mode, *serve]
    return commands


def compare(flags):
    for model in flags.model or ("mnist_mlp", "mnist_cnn"):
        for peers in groups_of(flags, model):
            commands = commands_of(flags, model, peers)
            results = measure(flags, model, commands, optional=peers)
            if flags.json:
                for result in results:
                    print(json.dumps(result), flush=True)
            else:
                print_results(results, "ours / theirs")
