"""bench/compare --against, and beside Sluice told more, with scripts in place of
the builds' programs.

They answer with times that a test wrote down; nothing here is timed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"

# Each reads plan.json of its build folder and notes its turns in ../turns.
STEP_BENCH = """
for flag in sys.argv[1:]:
    if flag == "--json":
        if "arena_bytes" not in plan:
            sys.exit("--json is not known")
        print(json.dumps({"arena_bytes": plan["arena_bytes"]}))
        sys.exit()
if "--fuse-statistics" in sys.argv:
    plan["rates"] = plan["fused_rates"]
with open(build.parent / "processes", "a") as processes:
    print(os.getpid(), file=processes)
if not plan["rates"]:
    sys.exit("usage: ...\\nthere is no such model")
print(json.dumps({"ready": True}), flush=True)
# The first run finds that a block is of two steps.
rates = [5] + plan["rates"]
for line in sys.stdin:
    if not rates:
        break
    rate, steps = rates.pop(0), int(line.split()[1])
    if rate != 5:
        note_turn()
    if plan.get("answers_when_gone") and not rates:
        side = os.getpid()
        if os.fork() == 0:
            while os.getppid() == side:
                time.sleep(0.01)
        else:
            os.kill(side, signal.SIGKILL)
    print(json.dumps({"seconds": steps / rate, "steps": steps}), flush=True)
sys.exit("std::bad_alloc")
"""
KERNEL_BENCH = """
note_turn()
if plan.get("wrong"):
    sys.exit("kernel_bench: 1 rows are wrong")
turns = (build.parent / "turns").read_text().split()
print(json.dumps({"bench": "machine", "gflops": 1}))
for op, seconds in plan["kernels"].items():
    print(json.dumps({"bench": "kernel", "suite": "conv", "op": op,
                      "shape": "1x2", "pass": "", "threads": 1,
                      "seconds": seconds[turns.count(build.name) - 1]}))
"""
COMMON = """#!{python}
import json, os, pathlib, signal, sys, time
build = pathlib.Path(__file__).parent.parent
plan = json.loads((build / "plan.json").read_text())
def note_turn():
    with open(build.parent / "turns", "a") as turns:
        print(build.name, file=turns)
"""


class Against(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def build(self, name, **plan):
        folder = self.folder / name
        (folder / "bin").mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps(plan))
        for program, text in (
            ("step_bench", STEP_BENCH),
            ("kernel_bench", KERNEL_BENCH),
        ):
            path = folder / "bin" / program
            path.write_text(COMMON.format(python=sys.executable) + text)
            path.chmod(0o755)

    def compare(self, *flags):
        """The exit status and what came out."""
        done = subprocess.run(
            [
                *(sys.executable, COMPARE),
                *("--build", self.folder / "new"),
                *("--against", self.folder / "old"),
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out, self.errors = done.stdout, done.stderr
        return done.returncode

    def compare_mlp(self, *flags, rounds=5):
        chosen = ("--model", "mnist_mlp", "--rounds", str(rounds))
        return self.compare(*chosen, *flags)

    def turns(self):
        return (self.folder / "turns").read_text().split()

    def test_sluice_itself_told_more_is_a_peer_that_is_asked_for(self):
        self.build("new", rates=[10, 20, 20, 20],
                   fused_rates=[10, 25, 25, 25])
        done = subprocess.run(
            [
                *(sys.executable, COMPARE, "--build", self.folder / "new"),
                *("--model", "resnet50_training", "--rounds", "3"),
                *("--peer", "fused-statistics", "--json"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        plain, fused = map(json.loads, done.stdout.splitlines())
        self.assertEqual([plain["peer"], fused["peer"]],
                         ["sluice", "fused-statistics"])
        self.assertEqual(fused["ratio"], 0.8)

    def test_sides_take_turns_and_neither_always_begins(self):
        self.build("new", rates=[10, 22, 30, 44], arena_bytes=300)
        self.build("old", rates=[10, 20, 30, 40], arena_bytes=200)
        self.assertEqual(self.compare_mlp("--json", rounds=4), 0, self.errors)
        self.assertEqual(self.turns(), ["new", "old", "old", "new"] * 2)
        new, old = map(json.loads, self.out.splitlines())
        self.assertEqual([new["peer"], old["peer"]], ["new", "old"])
        self.assertEqual(new["steps_per_second"], 26)
        self.assertEqual(old["steps_per_second"], 25)
        # Of 1, 1.1, 1, 1.1.
        self.assertEqual(old["ratio"], 1.05)
        self.assertEqual([old["ratio_low"], old["ratio_high"]], [1, 1.1])
        self.assertEqual([new["arena_bytes"], old["arena_bytes"]], [300, 200])
        self.assertEqual(old["arena_ratio"], 1.5)

    def test_a_loss_of_speed_fails_only_beyond_noise(self):
        self.build("new", rates=[80] * 5)
        self.build("old", rates=[100] * 5)
        self.assertEqual(self.compare_mlp("--fail-over", "25%"), 0)
        self.assertEqual(self.compare_mlp("--fail-over", "15%"), 1)
        self.assertIn("mnist_mlp new 100 1 speed", self.errors)
        self.assertEqual(self.compare_mlp(), 0)

    def test_a_loss_that_one_round_in_five_denies_is_noise(self):
        self.build("new", rates=[50, 50, 110, 50, 50])
        self.build("old", rates=[100] * 5)
        status = self.compare_mlp("--fail-over", "15%")
        self.assertEqual(status, 0, self.errors)

    def test_a_larger_arena_fails(self):
        self.build("new", rates=[100] * 5, arena_bytes=1200)
        self.build("old", rates=[100] * 5, arena_bytes=1000)
        self.assertEqual(self.compare_mlp("--fail-over", "15%"), 1)
        self.assertIn("mnist_mlp new 100 1 arena", self.errors)
        self.assertIn("WORSE: arena\n", self.out)

    def test_a_build_that_reports_no_arena_still_takes_part(self):
        self.build("new", rates=[100] * 5, arena_bytes=5 * 10**6)
        self.build("old", rates=[100] * 5)
        status = self.compare_mlp("--fail-over", "15%")
        self.assertEqual(status, 0, self.errors)
        self.assertIn("arena MB: new 5.00, old unknown\n", self.out)

    def test_kernels_alternate_by_process(self):
        same = [1] * 5
        slow = [2, 9, 2, 2, 2]
        self.build("new", kernels={"A": slow, "B": same, "C": same})
        self.build("old", kernels={"A": same, "B": same, "D": same})
        flags = ("--kernels", "--json")
        self.assertEqual(self.compare(*flags), 0, self.errors)
        order = ["new", "old", "old", "new"] * 2 + ["new", "old"]
        self.assertEqual(self.turns(), order)
        rows = {r["op"]: r for r in map(json.loads, self.out.splitlines())}
        self.assertEqual(list(rows), ["A", "B"])
        self.assertEqual(rows["A"]["seconds"], 2)
        self.assertEqual(rows["A"]["old_seconds"], 1)
        self.assertEqual(rows["A"]["ratio"], 0.5)
        self.assertIn("only new has kernel conv C", self.errors)
        self.assertIn("only old has kernel conv D", self.errors)
        (self.folder / "turns").unlink()
        self.assertEqual(self.compare(*flags, "--fail-over", "5%"), 1)
        self.assertIn("kernel conv A 1x2  1 speed", self.errors)
        self.assertNotIn("kernel conv B", self.errors)

    def one_line(self, status, text):
        self.assertEqual(status, 1)
        self.assertEqual(len(self.errors.splitlines()), 1, self.errors)
        self.assertTrue(self.errors.startswith("compare: "), self.errors)
        self.assertIn(text, self.errors)

    def no_process_is_left(self):
        for process in (self.folder / "processes").read_text().split():
            self.assertFalse(os.path.exists(f"/proc/{process}"))

    def test_wrong_rows_are_not_compared(self):
        self.build("new", kernels={}, wrong=True)
        self.build("old", kernels={})
        self.one_line(self.compare("--kernels"), "of new failed: kernel_bench")

    def test_a_side_that_dies_ends_the_run(self):
        self.build("new", rates=[100] * 5)
        self.build("old", rates=[100] * 2)
        self.one_line(self.compare_mlp(), "old ended in the middle of a")
        self.assertIn("std::bad_alloc", self.errors)
        self.no_process_is_left()

    def test_a_side_that_is_gone_has_no_memory_to_compare(self):
        self.build("new", rates=[100] * 5)
        self.build("old", rates=[100] * 5, answers_when_gone=True)
        self.one_line(self.compare_mlp(), "old ended in the middle of a")
        self.no_process_is_left()

    def test_a_side_that_does_not_start_ends_the_run(self):
        self.build("new", rates=[100] * 5)
        self.build("old", rates=[])
        self.one_line(self.compare_mlp(), "old ended before it was ready")
        self.assertIn("there is no such model", self.errors)
        self.no_process_is_left()

    def test_what_is_missing_is_named(self):
        self.build("new", rates=[100] * 5)
        self.one_line(self.compare(), "there is no build folder")
        self.build("old", rates=[100] * 5)
        (self.folder / "old/bin/step_bench").chmod(0o644)
        self.one_line(self.compare(), "old cannot be started")
        (self.folder / "old/bin/step_bench").unlink()
        self.one_line(self.compare(), "old/bin/step_bench is missing")
        (self.folder / "old/bin/kernel_bench").unlink()
        self.one_line(self.compare("--kernels"), "kernel_bench is missing")

    def test_wrong_usage(self):
        for flags in (["--peer=pytorch"], ["--pairs"], ["a", "b"]):
            self.assertEqual(self.compare(*flags), 2)
            self.assertIn("--against takes no", self.errors)
        self.assertEqual(self.compare("--rounds", "0"), 2)
        self.assertEqual(self.compare("--rounds", "4", "--fail-over", "5%"), 2)
        self.assertIn("needs 5 rounds", self.errors)


if __name__ == "__main__":
    unittest.main()
