"""What the peers' benchmarks share: flags, timing, output, server mode.

A training step is forward, backward and a momentum-SGD update (0.9) on one
batch of random data that lies in memory; an inference step gives the logits. Every step uses the same batch, so that no
input pipeline is measured.

By itself a script times blocks of steps and prints the median rate. With
--serve it first prints {"ready": true}; then each line "run N" on stdin makes
it run N steps and answer {"seconds": S, "steps": N}, so that bench/compare can
let several sides take turns. step_bench speaks the same.
"""

import argparse
import json
import os
import statistics
import sys
import time

MNIST = ("mnist_softmax", "mnist_mlp", "mnist_cnn")
RESNET = ("resnet50_training", "resnet50_inference")
LEARNING_RATE = 0.01
MOMENTUM = 0.9
WARM_UP_STEPS = {MNIST: 20, RESNET: 2}


def parse(peer, modes, models=MNIST):
    parser = argparse.ArgumentParser(description=f"Steps in {peer}")
    parser.add_argument("--model", choices=models, default=models[0])
    parser.add_argument("--mode", choices=modes, default=modes[0])
    parser.add_argument("--batch", type=int, default=100, help="examples a step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100, help="a block")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--precision", choices=("fp32", "tf32", "fp16", "bf16"), default="fp32"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true")
    flags = parser.parse_args()
    flags.peer = peer
    flags.warm_up = WARM_UP_STEPS[models]
    # Read by the math libraries when they are loaded, so before any import.
    os.environ["OMP_NUM_THREADS"] = str(flags.threads)
    os.environ["MKL_NUM_THREADS"] = str(flags.threads)
    return flags


def measure(flags, run):
    """`run(n)` runs n steps and returns when their results are there."""
    run(flags.warm_up)
    if flags.serve:
        serve(run)
        return
    rates = [flags.steps / timed(run, flags.steps) for _ in range(flags.blocks)]
    result = {
        "bench": flags.model,
        "peer": flags.peer,
        "mode": flags.mode,
        "batch": flags.batch,
        "threads": flags.threads,
        "device": flags.device,
        "precision": flags.precision,
        "steps_per_second": round(statistics.median(rates), 3),
    }
    if flags.device == "cuda":
        import torch

        result["peak_bytes"] = torch.cuda.max_memory_allocated()
    if flags.json:
        print(json.dumps(result))
    else:
        print(
            f"{flags.model} in {flags.peer} ({flags.mode}), batch"
            f" {flags.batch}, {flags.threads} threads:"
            f" {result['steps_per_second']} steps/s"
            f" ({min(rates):.1f} to {max(rates):.1f})"
        )


def timed(run, steps):
    begin = time.perf_counter()
    run(steps)
    return time.perf_counter() - begin


def serve(run):
    def answer(value):
        print(json.dumps(value), flush=True)

    answer({"ready": True})
    for line in sys.stdin:
        words = line.split()
        if len(words) != 2 or words[0] != "run" or not words[1].isdigit():
            sys.exit(f"expected 'run N', got {line!r}")
        steps = int(words[1])
        answer({"seconds": timed(run, steps), "steps": steps})
