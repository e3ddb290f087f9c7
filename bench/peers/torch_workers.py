#!/usr/bin/env python3
"""Several processes that train in PyTorch on one thread each: one model
together, by DistributedDataParallel over Gloo on 127.0.0.1, or (--alone) each
its own at the same time.

Prints {"examples_per_second": N}, of all processes together: the sum of their
medians over the steps behind the warm-up. Random data in memory, momentum SGD.
"""

import argparse
import json
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True  # nothing may land in the source tree

import torch_gloo  # noqa: E402

CLASSES = {"mnist_cnn": 10, "resnet50_training": 1000}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=CLASSES, default="mnist_cnn")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=50, help="of a process")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--alone", action="store_true")
    flags = parser.parse_args()
    if flags.processes < 1 or flags.batch < 1 or flags.steps < 1:
        parser.error("processes, examples and steps are 1 or more")
    return flags


def step_of(flags, torch):
    from torch_models import image_shape, make_model

    model = make_model(flags.model).train()
    if not flags.alone:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    images = torch.rand(flags.batch, *image_shape(flags.model))
    labels = torch.randint(CLASSES[flags.model], (flags.batch,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def work(rank, flags, meeting_place):
    # As bench/compare_workers has sluicerun do: a core for each.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    # Those that are alone meet, too, to begin at the same time.
    torch = torch_gloo.meet(rank, flags, meeting_place)
    torch.manual_seed(rank)
    step = step_of(flags, torch)
    for _ in range(flags.warm_up):
        step()
    torch.distributed.barrier()
    seconds = []
    for _ in range(flags.steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    rate = torch.tensor([flags.batch / statistics.median(seconds)])
    torch.distributed.all_reduce(rate)
    if rank == 0:
        print(json.dumps({"examples_per_second": float(rate)}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    torch_gloo.spawn(work, parse())


if __name__ == "__main__":
    main()
