"""Two builds of Sluice: "new" is this tree's, "old" the one it is set against.

The old one may be of any commit: it is asked for nothing that step_bench and
kernel_bench have not always had.
"""

import json
import pathlib
import subprocess

from comparing import kernels, models
from comparing.failure import Failure, fail_if_worse
from comparing.files import name_of
from comparing.turns import beyond_noise

# ResNet-50's is the arena that matters.
MODELS = ("mnist_mlp", "mnist_cnn", "resnet50_training")


def programs_of(flags, name):
    programs = {}
    for side, build in (("new", flags.build), ("old", flags.against)):
        if not pathlib.Path(build).is_dir():
            raise Failure(f"there is no build folder {build}")
        programs[side] = models.program_of(build, name)
    return programs


def arena_bytes(program, model_flags):
    """What the step's plan takes; None from a build that does not say."""
    command = [program, *model_flags, "--steps=1", "--blocks=1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["arena_bytes"]
    except (ValueError, KeyError):
        return None


def measure_model(flags, model, programs):
    told = models.model_flags(flags, model)
    if models.on_gpu(flags):
        told += ["--device", flags.device]
    commands = {s: [p, "--serve", *told] for s, p in programs.items()}
    new, old = models.measure(flags, model, commands)
    for result in (new, old):
        arena = arena_bytes(programs[result["peer"]], told)
        if arena is not None:
            result["arena_bytes"] = arena
    if new.get("arena_bytes") and old.get("arena_bytes"):
        ratio = new["arena_bytes"] / old["arena_bytes"]
        old["arena_ratio"] = round(ratio, 3)
    return [new, old]


def print_model(results):
    models.print_results(results, "new / old")
    new, old = (
        f"{r['arena_bytes'] / 1e6:.2f}" if "arena_bytes" in r else "unknown"
        for r in results
    )
    line = f"arena MB: new {new}, old {old}"
    if "arena_ratio" in results[1]:
        line += f"; new / old {results[1]['arena_ratio']:.3f}"
    print(line)
    if "worse" in results[1]:
        print(f"WORSE: {', '.join(results[1]['worse'])}")


def judge(result, limit):
    """Notes in the result which of its figures are worse by more than `limit`.

    Of speed, by more than noise explains; bytes count as they are.
    """
    worse = []
    if beyond_noise(result.get("ratios", ()), 1 - limit):
        worse.append("speed")
    for figure in ("memory", "arena"):
        if result.get(f"{figure}_ratio", 1) > 1 + limit:
            worse.append(figure)
    if worse:
        result["worse"] = worse


def report(flags, results, print_results):
    """Returns what is worse."""
    if flags.fail_over is not None:
        for result in results:
            judge(result, flags.fail_over)
    if flags.json:
        for result in results:
            print(json.dumps(result), flush=True)
    else:
        print_results(results)
    return [
        f"{name_of({**result, 'peer': 'new'})} {figure}"
        for result in results
        for figure in result.get("worse", ())
    ]


def compare(flags):
    chosen = flags.model or (MODELS if flags.kernels is None else ())
    # All programs are looked for before any is timed.
    steps = programs_of(flags, "step_bench") if chosen else {}
    rows = {}
    if flags.kernels is not None:
        rows = programs_of(flags, "kernel_bench")
    if not flags.json:
        print(f"new: {flags.build}\nold: {flags.against}")
    worse = []
    for model in chosen:
        results = measure_model(flags, model, steps)
        worse += report(flags, results, print_model)
    if rows:
        results = kernels.measure(flags, rows)
        worse += report(flags, results, kernels.print_results)
    fail_if_worse(worse, flags.fail_over)
