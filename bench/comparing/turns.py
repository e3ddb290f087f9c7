"""Servers of steps (peers/protocol.py) and the order in which sides run."""

import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

from comparing.failure import Failure

BLOCK_SECONDS = 0.4
FEWEST_ROUNDS = 5  # with which rounds can exclude chance


class Side:
    """One server process, stopped unless it is its turn.

    Its blocks have `fewest` steps or more.
    """

    def __init__(self, name, command, threads, fewest=1):
        self.name = name
        self.fewest = fewest
        self.rates = []
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        # Nothing of a peer's imports may land in the source tree.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        # A file, since a pipe that nobody reads would fill and block.
        self.errors = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                env=environment,
            )
        except OSError as error:
            raise Failure(f"{name} cannot be started: {error}") from None
        try:
            if not self.process.stdout.readline().startswith("{"):
                raise self.failure("ended before it was ready")
            self.steps = fewest
            self.calibrate()
            self.pause()
        except BaseException:
            self.close()
            raise

    def failure(self, what):
        """What to raise of a process that does not answer."""
        self.close()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return Failure(": ".join([f"{self.name} {what}", *lines[-1:]]))

    def calibrate(self):
        """Chooses how many steps fill a block."""
        while True:
            seconds = self.run(self.steps)
            if seconds > BLOCK_SECONDS / 4:
                break
            self.steps *= 4
        steps = round(self.steps * BLOCK_SECONDS / seconds)
        self.steps = max(self.fewest, steps)

    def run(self, steps):
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"run {steps}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line:
            raise self.failure("ended in the middle of a measurement")
        try:
            answer = json.loads(line)
            ran, seconds = answer["steps"], float(answer["seconds"])
        except (ValueError, TypeError, KeyError):
            raise self.failure(f"answered {line.strip()!r}") from None
        if ran != steps:
            raise self.failure(f"ran {ran} steps instead of {steps}")
        return seconds

    def take_turn(self):
        self.process.send_signal(signal.SIGCONT)
        self.rates.append(self.steps / self.run(self.steps))
        self.pause()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def peak_bytes(self):
        """The most memory the process has held, what it imports included."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in status.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        # What has ended has no memory, and at last no status.
        raise self.failure("ended in the middle of a measurement")

    def close(self):
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@contextlib.contextmanager
def started(commands, threads, optional=(), fewest=1):
    """A side for each of `commands` (by name), all ended when the block is.

    An optional one that does not start is left out.
    """
    with contextlib.ExitStack() as stack:
        sides = []
        for name, command in commands.items():
            try:
                side = Side(name, command, threads, fewest)
            except Failure as failure:
                if name not in optional:
                    raise
                print(f"compare: left out: {failure}", file=sys.stderr)
                continue
            stack.callback(side.close)
            sides.append(side)
        yield sides


def in_turns(sides, rounds):
    """The order of turns: every side once a round.

    A different side begins each round, so that none always follows the same
    other.
    """
    for turn in range(rounds):
        first = turn % len(sides)
        yield from sides[first:] + sides[:first]


def spread(values):
    """The median and the quartiles."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), low, high


def beyond_noise(ratios, bound):
    """Are so many ratios below the bound that chance does it once in 20 times?

    The sign test: were the bound their true median, each would be below it in
    one case of two.
    """
    n = len(ratios)
    below = sum(ratio < bound for ratio in ratios)
    return sum(math.comb(n, k) for k in range(below, n + 1)) < 0.05 * 2**n


def speed_ratio(ours, theirs):
    """Ours / theirs, round by round, so that a slow moment cancels."""
    ratios = [a / b for a, b in zip(ours, theirs)]
    middle, low, high = spread(ratios)
    return {
        "ratio": round(middle, 3),
        "ratio_low": round(low, 3),
        "ratio_high": round(high, 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
