"""Processes of PyTorch that meet through Gloo on 127.0.0.1."""

import os
import sys
import tempfile


def spawn(work, flags):
    """`work(rank, flags, meeting_place)` in each of flags.processes."""
    # Read when torch is loaded, and when Gloo looks for its address.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    from torch import multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        try:
            multiprocessing.spawn(
                work, (flags, os.path.join(folder, "meet")), flags.processes
            )
        except multiprocessing.ProcessExitedException as error:
            sys.exit(error.exit_code)


def meet(rank, flags, meeting_place):
    """By one that was spawned, which computes on one thread."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting_place}",
        rank=rank,
        world_size=flags.processes,
    )
    return torch
