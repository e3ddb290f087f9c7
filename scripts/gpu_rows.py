"""The rows of gpu_check.py, the most valuable first.

Their limits are so that the rows of PLANNED fit into three calls of seven
minutes even if every one takes as long as it may, and PROFILE into a fourth of
three; EXTRA is for the time that they leave, or for whoever names one.
tests/scripts/gpu_check_test.py holds them to that.
"""

from dataclasses import dataclass, field
from typing import Callable, Dict, Optional, Tuple


@dataclass(frozen=True)
class Row:
    name: str
    limit: int  # seconds
    # Words that begin with bin/ or bench/ are files of the archive, which is
    # ROOT; python3 is this interpreter.
    command: Tuple[str, ...]
    environment: Dict[str, str] = field(default_factory=dict)
    # What is wrong with the JSON objects that it wrote; None if nothing is.
    judge: Optional[Callable] = None
    # Files that it leaves in its folder, and their names in OUT.
    keeps: Dict[str, str] = field(default_factory=dict)


GPU = ("--device", "/gpu:0")


def by_libraries(results):
    """Whether all convolutions and products of a model's step are NVIDIA's, and
    its fused programs compiled: ours, and what is interpreted, are many times
    slower, and would be measured in silence."""
    steps = [r["providers"] for r in results if "providers" in r]
    if not any("cudnn" in who for step in steps
               for op, who in step.items() if "Conv2D" in op):
        return "no convolution is cuDNN's"
    for result in results:
        for op, who in result.get("providers", {}).items():
            wanted = ("cudnn" if "Conv2D" in op else
                      "cublaslt" if "MatMul" in op else
                      "nvrtc" if op in ("Fused", "FusedSum") else None)
            others = sorted(set(who) - {wanted}) if wanted else []
            if others:
                refused = [line for line in result.get("refused", [])
                           if line.startswith(f"{op} '")]
                return " ".join([f"{who[others[0]]} of {op} are by"
                                 f" '{others[0]}', not by {wanted}",
                                 *refused[:1]])
    return None


def captured(results):
    """Whether a GPU's steps are replayed whole: kernels that are added one by
    one would be measured in silence, too."""
    for result in results:
        why = result.get("why_not_captured")
        if why and result.get("device", "").startswith("/gpu:"):
            return f"not captured: {why}"
    return None


def as_it_should_be(results):
    return by_libraries(results) or captured(results)


def tests(name, limit, file, program=()):
    command = (*program, "bin/kernels_cuda_tests",
               f"--source-file=*/kernels/cuda/{file}.cc")
    return Row(name, limit, command, {"SLUICE_TEST_GPU": "1"})


def mnist(model, precision, steps):
    return Row(f"mnist {model}, {precision}", 30,
               ("bin/mnist", "train", "--model", model, *GPU, "--precision",
                precision, "--steps", str(steps), "--json"))


def steps(model, batch, precision, limit):
    """Ours alone: blocks of steps, their plan and who computes what."""
    return Row(f"{model} {precision}", limit,
               ("bin/step_bench", "--model", model, "--batch", str(batch),
                *GPU, "--precision", precision, "--json", "--blocks", "7"),
               judge=as_it_should_be)


def ran_beside(peer):
    """Whether it did: one that cannot be started is left out."""
    def judge(results):
        if any(result.get("peer") == peer for result in results):
            return None
        return f"{peer} did not run"
    return judge


def beside(model, batch, precision, peer, limit, judge=None):
    """In turns with a peer."""
    return Row(f"{model} {precision} beside {peer}", limit,
               ("python3", "bench/compare", "--build", "ROOT", "--python",
                "python3", "--model", model, "--batch", str(batch), *GPU,
                "--precision", precision, "--peer", peer, "--rounds", "7",
                "--json"), judge=judge)


# The host makes the operands of 256 images and checks samples of the results, and
# cuDNN's plans are searched for.
SUITE_SECONDS = {"batch_norm": 110, "conv": 200, "elementwise": 60, "pool": 90,
                 "reduction": 90}


def kernels(suite, dtype):
    limit = SUITE_SECONDS.get(suite, 40)
    return Row(f"kernels: {suite} {dtype}", limit,
               ("bin/kernel_bench", *GPU, "--dtype", dtype, "--suite", suite,
                "--seconds", "0.05", "--json"))


PLANNED = [
    # Does it run at all, is it right, and how fast is what matters most?
    mnist("mlp", "fp32", 600),
    tests("sessions", 40, "session_test"),
    steps("resnet50_training", 256, "fp16", 150),
    beside("resnet50_training", 256, "fp16", "pytorch-compile-nhwc", 200),
    # Is every kernel right?
    tests("op table", 180, "op_table_test"),
    tests("training against the CPU", 70, "training_test"),
    beside("mnist_mlp", 100, "fp32", "pytorch-graph", 60),
    kernels("batch_norm", "float16"),
    # The rest of what speed rests on, and of what may be wrong.
    kernels("conv", "float16"),
    tests("fused programs", 120, "fused/fused_test"),
    kernels("gemm", "float16"),
    mnist("cnn", "fp16", 300),
    tests("bad indices", 20, "device/bad_index_test"),
]

PROFILE = [
    Row("profile", 170,
        ("bin/resnet50", "train", "--data", "synthetic", "--batch-size", "256",
         *GPU, "--precision", "fp16", "--steps", "50", "--profile",
         "steps=30:40", "--log-dir", "profile", "--json"),
        keeps={"profile/trace-30-40.json": "trace.json"}),
]

EXTRA = [
    # Sends between two devices that are one GPU, recorded as one graph.
    tests("two devices of one GPU", 30, "peer_graph_test"),
    # What goes between tasks, which are threads here, and trainings that do so.
    tests("tensors between tasks of one GPU", 60, "links_test"),
    tests("stages and served workers of one GPU", 90, "trained_tasks_test"),
    tests("mirrored devices of one GPU", 60, "mirrored_test"),
    # What convolutions that sum their results save, and whether it is right:
    # the row "training against the CPU" compares these, too.
    beside("resnet50_training", 256, "fp16", "fused-statistics", 170,
           ran_beside("fused-statistics")),
    # One rank, which is all that NCCL takes on one GPU.
    tests("one rank through NCCL", 90, "nccl_test"),
    # There are no others: variables are float32, in mixed precision, too.
    kernels("optimizer", "float32"),
    kernels("elementwise", "float16"),
    steps("resnet50_training", 256, "bf16", 120),
    steps("resnet50_training", 256, "tf32", 120),
    steps("resnet50_inference", 256, "fp16", 90),
    *(mnist(model, precision, steps)
      for model, steps in (("mlp", 600), ("cnn", 300))
      for precision in ("fp32", "tf32", "fp16", "bf16")
      if (model, precision) not in (("mlp", "fp32"), ("cnn", "fp16"))),
    *(kernels(suite, "float16")
      for suite in ("memcpy", "chain", "reduction", "softmax", "pool")),
    beside("resnet50_training", 256, "fp16", "pytorch-nhwc", 120),
    beside("resnet50_training", 256, "bf16", "pytorch-compile-nhwc", 200),
    beside("resnet50_training", 256, "tf32", "pytorch-compile-nhwc", 200),
    beside("resnet50_inference", 256, "fp16", "pytorch-compile-nhwc", 150),
    beside("mnist_cnn", 100, "fp32", "pytorch-graph", 60),
    beside("mnist_mlp", 100, "fp32", "pytorch-compile", 90),
    *(kernels(suite, dtype)
      for dtype in ("float32", "bfloat16")
      for suite in ("batch_norm", "conv", "gemm", "elementwise", "chain",
                    "reduction", "softmax", "pool")),
    # Instrumented kernels take ten times as long and more.
    *(tests(f"{tool}, fused programs", 400, "fused/fused_test",
            ("compute-sanitizer", "--tool", tool, "--error-exitcode", "1"))
      for tool in ("memcheck", "racecheck")),
    # torch.compile tries out all kernels that it knows: minutes.
    beside("resnet50_training", 256, "fp16", "pytorch-tuned-nhwc", 415),
]

ROWS = PLANNED + PROFILE + EXTRA
