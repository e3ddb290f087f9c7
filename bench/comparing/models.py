"""The training steps of models, run by several sides in turns."""

import pathlib

from comparing.failure import Failure
from comparing.turns import in_turns, speed_ratio, spread, started

MODELS = (
    "mnist_softmax",
    "mnist_mlp",
    "mnist_cnn",
    "resnet50_training",
    "resnet50_inference",
)
BATCH = {"mnist": 100, "resnet50": 16}
ROUNDS = {"mnist": 15, "resnet50": 7}
# In a block: fewer are over before a GPU's clock is what it will be.
STEPS_ON_GPU = 20
PLACE = ("device", "precision")


def family_of(model):
    return model.split("_")[0]


def on_gpu(flags):
    return flags.device.startswith("/gpu")


def program_of(build, name):
    program = pathlib.Path(build) / "bin" / name
    if not program.exists():
        raise Failure(
            f"{program} is missing; build it: cmake --build --preset release"
        )
    return program


def batch_of(flags, model):
    return flags.batch or BATCH[family_of(model)]


def model_flags(flags, model):
    """What a server, ours or a peer's, is told of the model."""
    told = [
        *("--model", model),
        *("--batch", str(batch_of(flags, model))),
        *("--threads", str(flags.threads)),
    ]
    if flags.precision != "fp32":  # which builds of any age know
        told += ["--precision", flags.precision]
    return told


def place_of(flags):
    """Where a result is from, unless it is the CPU, in float32."""
    if not on_gpu(flags) and flags.precision == "fp32":
        return {}
    return {"device": flags.device, "precision": flags.precision}


def measure(flags, model, commands, optional=()):
    """One result for each side; all but the first have ratios first / theirs.

    `commands` are servers by the names of their sides.
    """
    fewest = STEPS_ON_GPU if on_gpu(flags) else 1
    with started(commands, flags.threads, optional, fewest) as sides:
        rounds = flags.rounds or ROUNDS[family_of(model)]
        for side in in_turns(sides, rounds):
            side.take_turn()
        peaks = [side.peak_bytes() for side in sides]
    results = []
    for side, peak in zip(sides, peaks):
        rate, low, high = spread(side.rates)
        result = {
            "bench": model,
            "peer": side.name,
            "batch": batch_of(flags, model),
            "threads": flags.threads,
            **place_of(flags),
            "steps_per_second": round(rate, 3),
            "low": round(low, 3),
            "high": round(high, 3),
            "peak_bytes": peak,
        }
        if side is not sides[0]:
            result.update(speed_ratio(sides[0].rates, side.rates))
            result["memory_ratio"] = round(peaks[0] / max(peak, 1), 3)
        results.append(result)
    return results


def print_results(results, sides):
    first = results[0]
    place = "".join(f", {first[f]}" for f in PLACE if f in first)
    print(
        f"\n{first['bench']}, batch {first['batch']},"
        f" {first['threads']} thread(s){place}; medians with quartiles"
    )
    print(
        f"{'side':<21}{'steps/s':>9}{'':>20}{'examples/s':>12}{'peak MB':>9}"
        f"  {sides}: speed, memory"
    )
    for r in results:
        rate = r["steps_per_second"]
        digits = 1 if rate >= 10 else 3
        quartiles = f"{r['low']:.{digits}f} to {r['high']:.{digits}f}"
        line = f"{r['peer']:<21}{rate:>9.{digits}f}{quartiles:>20}"
        line += f"{rate * r['batch']:>12.1f}{r['peak_bytes'] / 1e6:>9.0f}"
        if "ratio" in r:
            line += (
                f"  {r['ratio']:.2f}"
                f"  ({r['ratio_low']:.2f} to {r['ratio_high']:.2f})"
                f"  {r['memory_ratio']:.2f}"
            )
        print(line)
