#!/usr/bin/env python3
"""Predicts how long a step takes on an H200, from what is counted: no GPU.

  resnet50 bench --device /null:0 --precision fp16 --batch-size 256 \\
      --steps 1 --warm-up 0 --json > plan.jsonl
  scripts/predict_step.py plan.jsonl [--before OTHER.jsonl] [--before-ahead N]

A kernel takes the larger of its bytes over 3.9 TB/s and its operations over
600 TFLOP/s, and 1 us; one follows the other. A thread that has fewer than four
16-byte loads in flight keeps memory half busy: 2 TB/s. How many it has says
kernels/cuda/sass_limits.txt, which `.ci/run sass` holds against the machine
code; kernels that are not in it are taken to have fewer, but for copies and
those of cuDNN and cuBLASLt.

Prints a table: by kind the launches, GB moved, the bound (bytes or operations
alone), and the time predicted, in ms; with --before that of another plan, or
(--before-ahead) of the same kernels with so many loads in flight.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BYTES_PER_S, STARVED_BYTES_PER_S = 3.9e12, 2.0e12
FLOP_PER_S = 600e12
LAUNCH_S = 1e-6
ENOUGH_AHEAD = 4
NOT_OURS = ("library", "memcpy")


def read_limits(path):
    """Loads in flight by kernel."""
    ahead = {}
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if len(words) >= 5 and not line.startswith("["):
            ahead[" ".join(words[:-4])] = int(words[-3])
    return ahead


def read_plan(path):
    """The launches, and the object about the whole step."""
    launches, step = [], None
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "launch":
            launches.append(event)
        elif event["event"] == "bench":
            step = event
    if step is None or not launches:
        sys.exit(f"{path}: no plan; it is what bench --device /null:0 --json "
                 "prints")
    if sum(launch["times"] for launch in launches) != step["launches"]:
        sys.exit(f"{path}: launches are missing")
    return launches, step


def bound(launch):
    """Seconds of all of them, if nothing but the chip's rates counted."""
    return launch["times"] * max(launch["bytes"] / BYTES_PER_S,
                                 2 * launch["multiply_adds"] / FLOP_PER_S)


def predicted(launch, ahead, fixed_ahead=None):
    kernel = launch["kernel"]
    in_flight = ahead.get(kernel, 0) if fixed_ahead is None else fixed_ahead
    fast = kernel in NOT_OURS or in_flight >= ENOUGH_AHEAD
    rate = BYTES_PER_S if fast else STARVED_BYTES_PER_S
    return launch["times"] * (LAUNCH_S + max(
        launch["bytes"] / rate, 2 * launch["multiply_adds"] / FLOP_PER_S))


def by_kind(launches, value):
    sums = {}
    for launch in launches:
        kind = launch["kind"]
        sums[kind] = sums.get(kind, 0) + value(launch)
    return sums


def table(launches, before, ahead, before_ahead):
    now = by_kind(launches, lambda launch: predicted(launch, ahead))
    columns = [
        ("launches", by_kind(launches, lambda launch: launch["times"]), "{:d}"),
        ("GB", by_kind(launches, lambda launch: launch["times"] *
                       launch["bytes"] / 1e9), "{:.2f}"),
        ("bound, ms", by_kind(launches,
                              lambda launch: 1e3 * bound(launch)), "{:.2f}"),
        ("predicted, ms", {k: 1e3 * v for k, v in now.items()}, "{:.2f}")]
    if before is not None:
        columns.append(("launches before",
                        by_kind(before, lambda launch: launch["times"]),
                        "{:d}"))
        columns.append(
            ("before, ms",
             by_kind(before, lambda launch: 1e3 * predicted(
                 launch, ahead, before_ahead)), "{:.2f}"))
    print("| kind | " + " | ".join(name for name, _, _ in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for kind in sorted(now, key=now.get, reverse=True):
        cells = [form.format(sums.get(kind, 0)) for _, sums, form in columns]
        print(f"| {kind} | " + " | ".join(cells) + " |")
    cells = [form.format(sum(sums.values())) for _, sums, form in columns]
    print("| all | " + " | ".join(cells) + " |")
    return sum(now.values())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--before-ahead", type=int)
    parser.add_argument("--limits", type=pathlib.Path,
                        default=ROOT / "kernels/cuda/sass_limits.txt")
    arguments = parser.parse_args()
    launches, step = read_plan(arguments.plan)
    before = None
    if arguments.before is not None:
        before = read_plan(arguments.before)[0]
    elif arguments.before_ahead is not None:
        before = launches
    seconds = table(launches, before, read_limits(arguments.limits),
                    arguments.before_ahead)
    print(f"\npredicted, not measured: {1e3 * seconds:.1f} ms a step, "
          f"{step['batch'] / seconds:.0f} examples/s")


if __name__ == "__main__":
    main()
