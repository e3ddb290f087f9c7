"""scripts/predict_step.py, on plans that a test wrote down."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import predict_step  # noqa: E402


def launch(kernel, times=1, gigabytes=0, multiply_adds=0, kind="other"):
    return {"event": "launch", "kind": kind, "kernel": kernel, "times": times,
            "bytes": int(gigabytes * 1e9), "multiply_adds": multiply_adds}


class PredictStepTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def plan(self, launches, stated=None):
        path = self.folder / "plan.jsonl"
        bench = {"event": "bench", "batch": 256, "launches":
                 stated or sum(one["times"] for one in launches)}
        path.write_text("".join(json.dumps(event) + "\n"
                                for event in launches + [bench]))
        return path

    def limits(self, text):
        path = self.folder / "limits.txt"
        path.write_text(text)
        return path

    def test_loads_in_flight_decide_on_bandwidth(self):
        ahead = predict_step.read_limits(self.limits(
            "# a comment of five words\n\n[ops/some.cu]\n"
            "Four<__half, true> 128 4 0 0\nThree<__half> 80 3 0 0 # more\n"))
        self.assertEqual(ahead, {"Four<__half, true>": 4, "Three<__half>": 3})
        for kernel, terabytes_per_s in (
                ("Four<__half, true>", 3.9), ("Three<__half>", 2),
                ("Unknown", 2), ("library", 3.9), ("memcpy", 3.9)):
            seconds = predict_step.predicted(launch(kernel, 3, 7.8), ahead)
            self.assertAlmostEqual(
                seconds, 3 * (1e-6 + 7.8e-3 / terabytes_per_s), 12)
        four = launch("Four<__half, true>", 1, 7.8)
        self.assertAlmostEqual(
            predict_step.predicted(four, ahead, fixed_ahead=1), 3.901e-3, 12)

    def test_the_larger_of_bytes_and_operations_counts(self):
        product = launch("library", 2, 0.39, int(3e11))  # 0.1 ms or 1 ms
        self.assertAlmostEqual(predict_step.bound(product), 2e-3, 12)
        self.assertAlmostEqual(predict_step.predicted(product, {}), 2.002e-3,
                               12)

    def test_the_table_adds_up(self):
        launches = [launch("library", 2, 3.9, kind="convolution"),
                    launch("Slow", 1, 2, kind="pooling")]
        sys.argv = ["predict_step.py", str(self.plan(launches)), "--limits",
                    str(self.limits("[a.cu]\nSlow 32 2 0 0\n")),
                    "--before-ahead", "4"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            predict_step.main()
        lines = out.getvalue().splitlines()
        self.assertIn("| convolution | 2 | 7.80 | 2.00 | 2.00 | 2 | 2.00 |",
                      lines)
        self.assertIn("| pooling | 1 | 2.00 | 0.51 | 1.00 | 1 | 0.51 |", lines)
        self.assertIn("| all | 3 | 9.80 | 2.51 | 3.00 | 3 | 2.52 |", lines)
        self.assertIn("3.0 ms a step", lines[-1])

    def test_what_is_no_plan_is_refused(self):
        for path in (self.plan([launch("library")], stated=5), self.plan([])):
            with self.assertRaises(SystemExit):
                predict_step.read_plan(path)

    def test_the_kernels_of_the_table_are_known_by_these_names(self):
        """Those that move the most of a ResNet-50."""
        ahead = predict_step.read_limits(
            ROOT / "kernels/cuda/sass_limits.txt")
        for kernel in ("MomentsKernel<__half, true, false>",
                       "NormalizeKernel<__half, true, true>",
                       "GradSumsKernel<__half, true, true, true>",
                       "GradKernel<__half, false>",
                       "MaxPoolGradWithArgmaxKernel<__half, true>",
                       "OptimizerKernel<optimizer::Momentum, float>"):
            self.assertIn(kernel, ahead)


if __name__ == "__main__":
    unittest.main()
