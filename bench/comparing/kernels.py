"""The rows of kernel_bench, measured by two builds in turns."""

import json
import subprocess
import sys

from comparing.failure import Failure
from comparing.files import KERNEL_IDENTITY, name_of
from comparing.turns import in_turns, speed_ratio, spread

ROUNDS = 5
# What a side of a row takes in one process, about; each round adds to it.
SECONDS = 0.05


def rows_of(side, command):
    """What one process measured: each row by its name."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"{side} cannot be started: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"status {done.returncode}"
        raise Failure(f"kernel_bench of {side} failed: {reason}")
    try:
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {name_of(r): r for r in rows if r["bench"] == "kernel"}
    except (ValueError, TypeError, KeyError):
        raise Failure(f"kernel_bench of {side} printed no rows") from None


def measure(flags, programs):
    """A result for each row that both have, its ratio that of speed, new / old.

    `programs` are those of the sides "new" and "old". A process measures all
    rows once; the sides' processes alternate.
    """
    options = ["--json", "--threads", str(flags.threads)]
    options += ["--seconds", str(SECONDS)]
    if flags.kernels:
        options += ["--filter", flags.kernels]
    runs = {side: [] for side in programs}
    for side in in_turns(list(programs), flags.rounds or ROUNDS):
        runs[side].append(rows_of(side, [programs[side], *options]))
    rows = {side: list(of_side[0]) for side, of_side in runs.items()}
    for side, other in (("new", "old"), ("old", "new")):
        for name in rows[side]:
            if name not in rows[other]:
                print(f"compare: only {side} has {name}", file=sys.stderr)
    results = []
    for name in filter(rows["old"].__contains__, rows["new"]):
        new, old = (
            [run[name]["seconds"] for run in runs[side]]
            for side in ("new", "old")
        )
        row = runs["new"][0][name]
        result = {field: row[field] for field in KERNEL_IDENTITY}
        result["seconds"] = spread(new)[0]
        result["old_seconds"] = spread(old)[0]
        # Of seconds old / new, which is of speed new / old.
        result.update(speed_ratio(old, new))
        results.append(result)
    if not results:
        raise Failure("the builds have no row in common")
    return results


def print_results(results):
    print(
        f"\nkernels, {results[0]['threads']} thread(s);"
        " medians with quartiles\n"
        f"{'row':<72}{'new ms':>10}{'old ms':>10}  new / old: speed"
    )
    for r in results:
        name = name_of(r).removeprefix("kernel ")
        print(
            f"{name:<72}{r['seconds'] * 1e3:>10.4f}"
            f"{r['old_seconds'] * 1e3:>10.4f}  {r['ratio']:.2f}"
            f"  ({r['ratio_low']:.2f} to {r['ratio_high']:.2f})"
            + ("  WORSE" if "worse" in r else "")
        )
