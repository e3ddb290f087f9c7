"""scripts/gpu_check.py, in an archive of programs that a test wrote."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import gpu_check  # noqa: E402
import gpu_rows  # noqa: E402
from gpu_rows import Row  # noqa: E402

WITHOUT = "there is no NVIDIA driver; install one, or use /cpu:0"


class Calls(unittest.TestCase):
    """What calls of an archive do, whose programs count how often they run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "archive"
        for name in ("bin", "lib", "bench", "scripts"):
            (self.root / name).mkdir(parents=True)
        self.counts = self.folder / "counts"
        self.counts.mkdir()
        self.gpu("NVIDIA H200")
        self.rows = []

    def program(self, name, text):
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\necho >>{self.counts / name}\n{text}\n")
        path.chmod(0o755)

    def gpu(self, name):
        doctor = {"gpus": {"/gpu:0": name}}
        if name is None:
            doctor = {"gpus": {}, "no_gpu": WITHOUT}
        # Not in bin: it would be another build.
        (self.folder / "doctor").write_text(json.dumps(doctor) + "\n")
        self.program("sluice", f"cat {self.folder / 'doctor'}")

    def row(self, name, text, limit=60, **more):
        self.program(name, text)
        self.rows.append(Row(name, limit, (f"bin/{name}",), **more))

    def runs(self, name):
        path = self.counts / name
        return len(path.read_text().split("\n")) - 1 if path.exists() else 0

    def call(self, out, earlier=None, minutes=7.0, named=None):
        """Whether none failed."""
        earlier = earlier and self.folder / earlier
        with gpu_check.Check(self.root, self.folder / out, self.rows, earlier,
                             minutes) as check:
            if named:
                return check.run_named(
                    [r for r in self.rows if r.name in named])
            return check.run_all()

    def records(self, out):
        text = (self.folder / out / "rows.jsonl").read_text()
        return {r["row"]: r for r in map(json.loads, text.splitlines())}

    def table(self, out):
        return (self.folder / out / "rows.md").read_text()

    def test_rows_run_in_order_and_leave_what_they_found(self):
        self.row("slow", 'echo \'{"ms": 3}\'; echo \'{"ms": 4}\'')
        self.row("quick", "echo noise; echo all is well")
        self.assertTrue(self.call("out"))
        records = self.records("out")
        self.assertEqual(list(records), ["slow", "quick"])
        self.assertEqual(records["slow"]["results"], [{"ms": 3}, {"ms": 4}])
        self.assertEqual(records["quick"]["results"], "all is well")
        self.assertEqual([r["passed"] for r in records.values()], [True, True])
        self.assertNotIn("Left", self.table("out"))
        self.assertIn("noise", (self.folder / "out/check.log").read_text())

    def test_what_is_done_is_not_done_again_by_the_same_build(self):
        self.row("first", "echo 1")
        self.row("second", "exit 3")
        self.assertFalse(self.call("out"))
        self.assertFalse(self.call("out"))  # it still failed
        self.assertFalse(self.call("copy", earlier="out"))
        self.assertEqual(self.runs("first"), 1)
        self.assertEqual(self.runs("second"), 2)
        # The copy has all of it, too.
        self.assertEqual(list(self.records("copy")), ["first", "second"])
        # By name it is.
        self.assertTrue(self.call("copy", named=["first"]))
        self.assertEqual(self.runs("first"), 2)
        # Of another build, and on another card, everything is.
        (self.root / "lib" / "libsluice.so").write_text("changed")
        self.call("out")
        self.assertEqual(self.runs("first"), 3)
        self.gpu("NVIDIA H100")
        self.call("out")
        self.assertEqual(self.runs("first"), 4)
        self.gpu("NVIDIA H200")
        self.call("out")
        self.assertEqual(self.runs("first"), 4)

    def test_what_failed_is_tried_once_more_when_all_else_is_done(self):
        # Passes the second time.
        self.row("unlucky", f"[ $(wc -l <{self.counts / 'unlucky'}) -gt 1 ]")
        self.row("wrong", "exit 3")
        self.row("large", "echo 1", limit=1000)
        self.assertFalse(self.call("out", minutes=11.5))
        self.assertIn("Left: large.", self.table("out"))
        self.assertIn("To be tried again: unlucky, wrong.", self.table("out"))
        # What has not run comes first, and takes the time.
        self.assertFalse(self.call("next", earlier="out", minutes=17.5))
        text = (self.folder / "next" / "rows.jsonl").read_text()
        rows = [json.loads(line)["row"] for line in text.splitlines()]
        self.assertEqual(rows, ["unlucky", "wrong", "large", "unlucky",
                                "wrong"])
        self.assertIs(self.records("next")["unlucky"]["passed"], True)
        self.assertNotIn("To be tried", self.table("next"))
        self.assertFalse(self.call("next"))  # which runs nothing
        self.assertEqual([self.runs(n) for n in ("unlucky", "wrong", "large")],
                         [2, 2, 1])

    def test_a_row_that_hangs_is_ended_with_what_it_has_started(self):
        marker = self.folder / "alive"
        self.row("hangs", 'echo \'{"ms": 3}\'\n'
                 f"(while :; do touch {marker}; sleep 0.1; done) &\nwait",
                 limit=1)
        self.row("next", "echo 1")
        self.assertFalse(self.call("out"))
        record = self.records("out")["hangs"]
        self.assertEqual(record["results"], [{"ms": 3}, "not over after 1 s"])
        self.assertIs(record["passed"], False)
        self.assertIs(self.records("out")["next"]["passed"], True)
        marker.unlink()
        time.sleep(0.5)
        self.assertFalse(marker.exists())

    def test_a_row_that_does_not_fit_is_left_to_the_next_call(self):
        self.row("large", "echo 1", limit=100)
        self.row("small", "echo 1", limit=50)
        self.assertTrue(self.call("out", minutes=1.25))
        self.assertEqual((self.runs("large"), self.runs("small")), (0, 1))
        self.assertIn("Left: large.", self.table("out"))
        self.assertTrue(self.call("out"))
        self.assertEqual((self.runs("large"), self.runs("small")), (1, 1))

    def test_a_fault_is_named(self):
        self.row("crash", "kill -SEGV $$")
        self.row("says", "echo started; echo 'x: no such thing' >&2; exit 1")
        self.row("test", "echo 'a.cc:3: ERROR: CHECK( 1 == 2 ) is NOT'; "
                 "echo '  values: CHECK( 1 == 2 )'; echo; echo end; exit 1")
        self.row("judged", 'echo \'{"ms": 3}\'',
                 judge=lambda results: f"{results[0]['ms']} ms is too long")
        self.rows.append(Row("absent", 60, ("bin/absent",)))
        self.assertFalse(self.call("out"))
        found = {n: r["results"] for n, r in self.records("out").items()}
        self.assertEqual(found["crash"], "exit status -11")
        self.assertEqual(found["says"], "x: no such thing")
        self.assertIn("CHECK( 1 == 2 ) is NOT values:", found["test"])
        self.assertEqual(found["judged"], [{"ms": 3}, "3 ms is too long"])
        self.assertIn("cannot be started: No such file", found["absent"])
        self.assertTrue(all(r["passed"] is False
                            for r in self.records("out").values()))

    def test_a_tool_that_is_not_installed_is_no_fault(self):
        self.rows.append(Row("tool", 60, ("no-such-sanitizer", "bin/x")))
        self.assertTrue(self.call("out"))
        self.assertIs(self.records("out")["tool"]["passed"], None)
        self.assertEqual(self.records("out")["tool"]["results"],
                         "no-such-sanitizer is not installed")
        self.gpu(None)
        self.assertTrue(self.call("without"))
        self.assertIs(self.records("without")["tool"]["passed"], None)

    def test_caches_are_carried(self):
        self.row("fills", 'mkdir -p "$XDG_CACHE_HOME/sluice"; '
                 'echo plan >>"$XDG_CACHE_HOME/sluice/convolutions"; '
                 'wc -l <"$XDG_CACHE_HOME/sluice/convolutions"')
        self.row("leaves", "mkdir run; echo [] >run/trace",
                 keeps={"run/trace": "trace.json"})
        self.call("out")
        self.assertLessEqual(len(os.listdir(self.folder / "out")), 8)
        self.assertEqual((self.folder / "out/trace.json").read_text(), "[]\n")
        (self.folder / "out").chmod(0o555)  # as what comes back may be
        self.call("next", earlier="out", named=["fills"])
        self.assertEqual(self.records("next")["fills"]["results"], "2")
        (self.folder / "out").chmod(0o755)
        # It only saves time.
        (self.folder / "next" / "cache.tar").write_text("no archive")
        self.call("next", named=["fills"])
        self.assertEqual(self.records("next")["fills"]["results"], "1")

    def test_without_a_gpu_every_row_has_to_say_so(self):
        self.gpu(None)
        says = f"echo 'x: {WITHOUT}' >&2; exit 1"
        self.row("first", says)
        self.row("second", says)
        self.assertTrue(self.call("out"))
        for record in self.records("out").values():
            self.assertIsNone(record["passed"])
            self.assertEqual(record["results"], "no GPU: " + WITHOUT)
        # Not done: the machine may have one next time.
        self.call("out")
        self.assertEqual(self.runs("first"), 2)
        self.row("library", "echo 'liby.so.1: cannot open' >&2; exit 127")
        self.row("silent", "exit 0")
        self.assertFalse(self.call("out"))
        found = {n: r["results"] for n, r in self.records("out").items()}
        self.assertIn("liby.so.1: cannot open", found["library"])
        self.assertIn("status 0", found["silent"])

    def test_what_was_found_stays_when_it_is_stopped(self):
        (self.root / "bin" / "sluice").write_text(
            f"#!/bin/sh\ncat {self.folder / 'doctor'}\n")
        for name in ("gpu_check.py", "gpu_rows.py"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        # All rows are of these programs; sessions hang.
        started = self.folder / "started"
        self.program("mnist", 'mkdir -p "$XDG_CACHE_HOME/sluice"; '
                     'echo 1 >"$XDG_CACHE_HOME/sluice/made"; echo 1')
        self.program("kernels_cuda_tests", f"touch {started}; sleep 600")
        out = self.folder / "out"
        process = subprocess.Popen(
            [sys.executable, self.root / "scripts" / "gpu_check.py", out],
            stdout=subprocess.DEVNULL)
        while not started.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 143)
        self.assertEqual(list(self.records("out")), ["mnist mlp, fp32"])
        self.assertIn("Left: sessions,", self.table("out"))
        self.assertTrue((out / "cache.tar").exists())


class Providers(unittest.TestCase):
    """A model's convolutions and products have to be by NVIDIA's libraries, its
    fused programs compiled, and its step captured."""

    def judge(self, providers, refused=()):
        return gpu_rows.by_libraries(
            [{"copy_gbs": 1}, {"providers": providers,
                               "refused": list(refused)}])

    def test_what_the_libraries_compute_is_right(self):
        self.assertIsNone(self.judge({
            "Conv2D": {"cudnn": 53}, "Conv2DBackpropFilter": {"cudnn": 53},
            "MatMulBias": {"cublaslt": 1}, "Relu": {"own": 3},
            "Fused": {"nvrtc": 9}, "FusedSum": {"nvrtc": 2}}))

    def test_what_is_ours_is_named_with_the_reason(self):
        self.assertEqual(
            self.judge({"Conv2D": {"cudnn": 50, "own": 3},
                        "MatMul": {"cublaslt": 1}},
                       ["MatMul 'a' is by 'own': cublaslt: no",
                        "Conv2D 'b' is by 'own': cudnn: no engine"]),
            "3 of Conv2D are by 'own', not by cudnn"
            " Conv2D 'b' is by 'own': cudnn: no engine")
        self.assertEqual(self.judge({"Conv2D": {"cudnn": 2},
                                     "MatMulAdd": {"own": 1}}),
                         "1 of MatMulAdd are by 'own', not by cublaslt")

    def test_fused_programs_that_are_interpreted_are_named(self):
        for op in ("Fused", "FusedSum"):
            refused = f"{op} 'c' is by 'own': nvrtc: NVRTC 13.0: no builtins"
            self.assertEqual(
                self.judge({"Conv2D": {"cudnn": 2}, op: {"own": 3}},
                           [refused]),
                f"3 of {op} are by 'own', not by nvrtc {refused}")

    def test_a_step_that_is_not_captured_is_named(self):
        def judge(**more):
            return gpu_rows.as_it_should_be(
                [{"copy_gbs": 1},
                 {"providers": {"Conv2D": {"cudnn": 2}}, **more}])
        why = "Conv2D 'a': the operation is not permitted"
        self.assertEqual(judge(device="/gpu:0", why_not_captured=why),
                         "not captured: " + why)
        self.assertIsNone(judge(device="/gpu:0", why_not_captured=""))
        self.assertIsNone(judge(device="/gpu:0"))
        self.assertIsNone(judge(device="/cpu:0", why_not_captured=why))
        # It is still judged by who computes.
        self.assertEqual(gpu_rows.as_it_should_be([]),
                         "no convolution is cuDNN's")

    def test_silence_is_no_proof(self):
        self.assertEqual(self.judge({"MatMul": {"cublaslt": 1}}),
                         "no convolution is cuDNN's")
        self.assertEqual(gpu_rows.by_libraries([]),
                         "no convolution is cuDNN's")

    def test_the_rows_of_networks_are_judged_so(self):
        judged = [row for row in gpu_rows.ROWS
                  if row.command[0] == "bin/step_bench"]
        self.assertTrue(judged)
        for row in judged:
            self.assertIs(row.judge, gpu_rows.as_it_should_be)


class Plan(unittest.TestCase):
    def test_three_calls_of_seven_minutes_and_one_of_three(self):
        rows = gpu_rows.PLANNED
        calls = gpu_check.planned_calls(rows, 420)
        self.assertEqual(set(calls.values()), {1, 2, 3}, calls)
        self.assertLessEqual(sum(r.limit for r in gpu_rows.PROFILE), 180)
        # None of them behind others that cannot be in the same call.
        order = [calls[row.name] for row in rows]
        self.assertEqual(order, sorted(order))

    def test_every_row_fits_into_a_call_and_has_a_name_of_its_own(self):
        gpu_check.planned_calls(gpu_rows.ROWS, 420)
        names = [row.name for row in gpu_rows.ROWS]
        self.assertEqual(len(names), len(set(names)))

    def test_optimizers_are_measured_in_the_dtype_that_they_have(self):
        asked = [row.command for row in gpu_rows.ROWS
                 if "optimizer" in row.command]
        self.assertTrue(asked)
        for command in asked:
            self.assertEqual(command[command.index("--dtype") + 1], "float32")

    def test_programs_are_those_that_are_packed(self):
        text = (ROOT / "scripts" / "package.sh").read_text()
        for row in gpu_rows.ROWS:
            for word in row.command:
                if word.startswith("bin/"):
                    self.assertIn(word[len("bin/"):], text)
                if word.startswith("--source-file="):
                    file = word.split("*/")[1]
                    self.assertTrue((ROOT / "tests" / file).exists(), file)


if __name__ == "__main__":
    unittest.main(buffer=True)
