"""The driver (driver.cc) as a child process, and the tensors it is sent.

A tensor is a NumPy array beside the name of its dtype; NumPy has no bfloat16,
whose values are held as float32 that bfloat16 can represent.
"""
import json
import os
import select
import signal
import subprocess
from dataclasses import dataclass

import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")


def numpy_type(dtype):
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


@dataclass
class Value:
    dtype: str
    array: np.ndarray

    @staticmethod
    def of(dtype, array):
        """`array` rounded to dtype, NaN and all; to half by way of float32."""
        with np.errstate(all="ignore"):
            if dtype == "bfloat16":
                wide = np.asarray(array, dtype=np.float32)
                return Value(dtype, _from_bits(_to_bits(wide)))
            array = np.asarray(array)
            if dtype == "float16":
                array = array.astype(np.float32)
            return Value(dtype, array.astype(numpy_type(dtype)))

    @property
    def shape(self):
        return list(self.array.shape)

    def bytes(self):
        if self.dtype == "bfloat16":
            return _to_bits(self.array).tobytes()
        return np.ascontiguousarray(self.array).tobytes()

    def wide(self):
        """As float64, int64 or bool."""
        if self.dtype in FLOATS:
            return self.array.astype(np.float64)
        return self.array if self.dtype == "bool" else self.array.astype("int64")


def _to_bits(array):
    """float32 to bfloat16: to nearest, halves to even; NaN stays NaN."""
    bits = np.array(array, dtype=np.float32, order="C").view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _from_bits(bits):
    return np.array(bits.astype(np.uint32) << 16, np.uint32).view(np.float32)


def _decode(header, data):
    shape, dtype = header["shape"], header["dtype"]
    if dtype == "bfloat16":
        return Value(dtype, _from_bits(np.ndarray(shape, np.uint16, data)))
    return Value(dtype, np.ndarray(shape, dtype, data).copy())


class Refused(Exception):
    """The engine answered with an error."""


class Died(Exception):
    """The driver crashed, or did not answer in time."""


class Driver:
    """Started when first needed, and again after it died."""

    def __init__(self, program, seconds=120):
        self.program, self.seconds, self.child = program, seconds, None

    def ops(self):
        return {op["name"]: op for op in self._ask({"do": "ops"}, b"")["ops"]}

    def run(self, graph, runs, variables=None, gradients=(), options=None,
            frozen=False):
        """runs: [(feeds by name, fetches, targets)]. Returns the fetched
        values of each run, None for a gradient that does not exist, and the
        variables' last values. Raises Refused or Died."""
        variables = variables or {}
        request = {"do": "run", "graph": graph, "gradients": list(gradients),
                   "options": options or {}, "frozen": frozen,
                   "variables": [_header(n, v) for n, v in variables.items()],
                   "runs": [{"feeds": [_header(n, v) for n, v in feeds.items()],
                             "fetches": fetches, "targets": targets}
                            for feeds, fetches, targets in runs]}
        data = [v.bytes() for v in variables.values()]
        for feeds, _, _ in runs:
            data += [v.bytes() for v in feeds.values()]
        answer = self._ask(request, b"".join(data))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["runs"], answer["variables"]

    def differentiated(self, graph, gradients):
        """The text of the graph with gradients added, and their names."""
        answer = self._ask({"do": "run", "graph": graph, "runs": [],
                            "gradients": gradients}, b"")
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["graph"], answer["names"]

    def remote(self, request):
        """An answer of remote_answers.h and the others beside it. Raises Refused or Died."""
        answer = self._ask(request, b"")
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    def _ask(self, request, data):
        if self.child is None:
            self.child = subprocess.Popen(
                [self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, bufsize=0)
            self.buffer = b""
        try:
            line = json.dumps(request).encode() + b"\n" + data
            self._send(memoryview(line))
            answer = json.loads(self._line())
            return self._tensors(answer, self._read(answer["bytes"]))
        except (BrokenPipeError, EOFError):
            code = self.child.wait()
            self.close()
            name = signal.Signals(-code).name if code < 0 else f"code {code}"
            raise Died(f"the driver died: {name}") from None
        except TimeoutError:
            self.close()
            raise Died(f"no answer within {self.seconds} s") from None

    def _send(self, data):
        while data:
            data = data[self.child.stdin.write(data):]

    def _more(self):
        if not select.select([self.child.stdout], [], [], self.seconds)[0]:
            raise TimeoutError
        data = os.read(self.child.stdout.fileno(), 1 << 20)
        if not data:
            raise EOFError
        self.buffer += data

    def _line(self):
        while b"\n" not in self.buffer:
            self._more()
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def _read(self, size):
        while len(self.buffer) < size:
            self._more()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    @staticmethod
    def _tensors(answer, data):
        position = 0

        def take(header):
            nonlocal position
            if header is None:
                return None
            size = int(np.prod(header["shape"], dtype=np.int64))
            width = 2 if header["dtype"] == "bfloat16" else np.dtype(
                header["dtype"]).itemsize
            part = data[position:position + size * width]
            position += size * width
            return _decode(header, part)

        answer["runs"] = [[take(t) for t in run] for run in answer.get("runs", [])]
        answer["variables"] = {
            n: take(t) for n, t in sorted(answer.get("variables", {}).items())}
        return answer


def _header(name, value):
    return {"name": name, "dtype": value.dtype, "shape": value.shape}
