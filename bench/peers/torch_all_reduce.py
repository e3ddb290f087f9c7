#!/usr/bin/env python3
"""All-reduces over sizes in torch.distributed, with Gloo on 127.0.0.1.

The same measurement as collective_bench's, which says what is timed; prints the
same rows as its --json, but for the bytes that were sent.
"""

import argparse
import json
import statistics
import sys
import time

sys.dont_write_bytecode = True  # nothing may land in the source tree

import torch_gloo  # noqa: E402

ELEMENT_BYTES = 4
FEWEST_REPETITIONS = 5


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--min", type=int, default=4096, help="bytes")
    parser.add_argument("--max", type=int, default=100 << 20, help="bytes")
    parser.add_argument("--factor", type=float, default=8)
    parser.add_argument("--seconds", type=float, default=1, help="of a row")
    flags = parser.parse_args()
    if not (flags.processes >= 1 and flags.min >= 1 and flags.factor > 1):
        parser.error("processes and sizes are 1 or more, the factor is above 1")
    return flags


def sizes(flags):
    unit = ELEMENT_BYTES * flags.processes
    size = flags.min
    while size < flags.max:
        yield max(int(size) // unit, 1) * unit
        size *= flags.factor
    yield max(flags.max // unit, 1) * unit


def given(torch, rank, count):
    """So small that float32 sums are exact."""
    return ((7 * torch.arange(count) + 5 * rank) % 11).float()


def count_wrong(torch, data):
    """Of one all-reduce's elements; leaves zeros, as collective_bench does."""
    dist = torch.distributed
    data.copy_(given(torch, dist.get_rank(), len(data)))
    dist.all_reduce(data)
    wanted = torch.zeros(len(data))
    for rank in range(dist.get_world_size()):
        wanted += given(torch, rank, len(data))
    wrong = int((data != wanted).sum())
    data.zero_()
    return wrong


def timed_run(dist, data):
    """In microseconds; the barrier before it is not timed."""
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(data)
    return (time.perf_counter() - begin) * 1e6


def choose_repetitions(torch, data, seconds):
    """Rank 0's choice, after warming up."""
    dist = torch.distributed
    timed_run(dist, data)
    begin = time.perf_counter()
    for _ in range(FEWEST_REPETITIONS):
        timed_run(dist, data)
    each = (time.perf_counter() - begin) / FEWEST_REPETITIONS
    chosen = torch.tensor([max(round(seconds / each), FEWEST_REPETITIONS)])
    dist.broadcast(chosen, 0)
    return int(chosen)


def measure(torch, size, seconds):
    dist = torch.distributed
    data = torch.zeros(size // ELEMENT_BYTES)
    wrong = count_wrong(torch, data)
    repetitions = choose_repetitions(torch, data, seconds)
    mine = statistics.median(timed_run(dist, data) for _ in range(repetitions))
    most = torch.tensor([mine, wrong], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    slowest, wrong = most.tolist()
    processes = dist.get_world_size()
    gb_s = size / slowest / 1e3
    return {
        "size": size,
        "count": len(data),
        "dtype": "float32",
        "repetitions": repetitions,
        "microseconds": mine,
        "slowest_microseconds": slowest,
        "alg_gb_s": gb_s,
        "bus_gb_s": gb_s * 2 * (processes - 1) / processes,
        "verdict": "ok" if wrong == 0 else "WRONG",
    }


def work(rank, flags, meeting_place):
    torch = torch_gloo.meet(rank, flags, meeting_place)
    right = True
    for size in sizes(flags):
        row = measure(torch, size, flags.seconds)
        right = right and row["verdict"] == "ok"
        if rank == 0:
            print(json.dumps(row), flush=True)
    torch.distributed.destroy_process_group()
    if rank == 0 and not right:
        sys.exit(1)


def main():
    torch_gloo.spawn(work, parse())


if __name__ == "__main__":
    main()
