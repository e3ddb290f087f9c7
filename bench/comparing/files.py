"""Two files of results, line by line."""

import json
import pathlib

from comparing.failure import Failure, fail_if_worse

IDENTITY = (
    *("bench", "peer", "mode", "model", "batch", "threads", "workers"),
    *("device", "precision"),
)
# Of a row of kernel_bench. Who computed it and which peer it had may change.
KERNEL_IDENTITY = ("bench", "suite", "op", "shape", "pass", "threads")


def name_of(record):
    kernel = record.get("bench") == "kernel"
    fields = KERNEL_IDENTITY if kernel else IDENTITY
    return " ".join(str(record[f]) for f in fields if f in record)


def higher_is_better(metric):
    """None for what is no metric."""
    if metric.endswith("_per_second") or metric == "ratio":
        return True
    if metric.startswith("ns_"):
        return False
    if metric in ("seconds", "peak_bytes", "arena_bytes"):
        return False
    return None


def read(path):
    results = {}
    try:
        lines = pathlib.Path(path).read_text().splitlines()
        for line in filter(None, map(str.strip, lines)):
            record = json.loads(line)
            for metric, value in record.items():
                if higher_is_better(metric) is not None:
                    name = f"{name_of(record)} {metric}"
                    results[name] = (metric, float(value))
    except (OSError, ValueError, AttributeError) as error:
        raise Failure(f"{path}: {error}") from None
    return results


def compare(old_path, new_path, limit):
    old, new = read(old_path), read(new_path)
    common = [name for name in old if name in new]
    if not common:
        raise Failure(f"{old_path} and {new_path} have no figure in common")
    worse = []
    for name in common:
        metric, before = old[name]
        after = new[name][1]
        change = after / before - 1.0 if before else 0.0
        loss = -change if higher_is_better(metric) else change
        mark = ""
        if limit is not None and loss > limit:
            mark = "  WORSE"
            worse.append(name)
        print(f"{name:<56}{before:>12.4g}{after:>12.4g}{change:>+9.1%}{mark}")
    for name in old.keys() ^ new.keys():
        print(f"{name:<56} only in {old_path if name in old else new_path}")
    fail_if_worse(worse, limit)
