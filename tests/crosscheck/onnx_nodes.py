"""ONNX's tests of single nodes, for every operator that some ops of the table
make up. What is not covered is counted by reason."""
import collections
import inspect
import warnings

import numpy as np

from compare import difference, summary
from driver import Refused
from onnx_map import CONVERSIONS, DTYPES, Mapper, Unmapped

TOLERANCE = {"float32": 1e-5, "float64": 1e-7, "float16": 4e-3}
SKIPPED = collections.Counter()


class OnnxCase:
    def __init__(self, ops, test):
        self.test = test
        (node,) = test.model.graph.node
        inputs, outputs = test.data_sets[0]
        self.wanted = [np.asarray(o) for o in outputs]
        self.mapper = Mapper(ops, node, [np.asarray(i) for i in inputs])
        fetches = CONVERSIONS[node.op_type](self.mapper)
        self.fetches = fetches if isinstance(fetches, list) else [fetches]

    def check(self, driver):
        m, faults = self.mapper, []
        for options in ({}, {"fuse": False, "simplify": False}):
            try:
                runs, _ = driver.run(m.text.text(), [(m.feeds, self.fetches, [])],
                                     options=options)
            except Refused as error:
                return [f"{m.op}: refused: {error}"]
            for want, got in zip(self.wanted, runs[0]):
                dtype = str(want.dtype)
                wide = want.astype(np.float64) if dtype.startswith("float") else want
                fault = difference(wide, got, dtype, 0.1, TOLERANCE.get(dtype, 0))
                if fault:
                    faults.append(f"{m.op} {options}: {fault}")
        return faults

    def reproduction(self):
        lines = ["    " + line[:300] for line in self.mapper.text.text().splitlines()]
        return lines + [f"feed {n}: {summary(v)}" for n, v in self.mapper.feeds.items()]


def _tests():
    """onnx 1.12 uses names that NumPy 1.24 no longer has."""
    for name, plain in (("float", float), ("int", int), ("bool", bool), ("object", object)):
        if name not in np.__dict__:
            setattr(np, name, plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        wants = inspect.signature(collect_testcases).parameters
        return collect_testcases(*[None] * len(wants))


def _arrays(values):
    return all(isinstance(v, (np.ndarray, np.generic)) and str(v.dtype) in DTYPES
               for v in values)


def cases(ops, seed, long):
    SKIPPED.clear()
    for test in _tests():
        nodes = test.model.graph.node
        if len(nodes) != 1:
            SKIPPED["made of several nodes"] += 1
        elif nodes[0].op_type not in CONVERSIONS:
            SKIPPED["no such op: " + nodes[0].op_type] += 1
        elif not all(_arrays(part) for part in test.data_sets[0]):
            SKIPPED["a dtype that is not known here"] += 1
        else:
            try:
                case = OnnxCase(ops, test)
            except Unmapped as why:
                SKIPPED[f"{nodes[0].op_type}: {why}"] += 1
                continue
            yield test.name, lambda c=case: c


def missing(ops):
    return []


def notes():
    lines = [f"    {count:4} not run: {why}" for why, count in sorted(SKIPPED.items())]
    return f"({sum(SKIPPED.values())} have no counterpart)\n" + "\n".join(lines)
