"""What a step does, by the rule of docs/architecture.md alone.

A read sees the variable as it was when the step began, unless it depends on a
write of this step; it then sees what the last write on which it depends left.
Two writes of one variable without an order are an error. There is no schedule
here: a node's value follows from its ancestors.
"""
from dataclasses import dataclass, field

import numpy as np
import torch

import reference
import reference_elementwise  # noqa: F401: these fill the list of references
import reference_nn  # noqa: F401
import reference_shape  # noqa: F401
import reference_update  # noqa: F401

MUTATES = {"Assign": 1, "AssignAdd": 1, "AssignSub": 1, "ApplySgd": 1,
           "ApplyMomentum": 2}


@dataclass
class Item:
    """A node. Inputs are pairs of a node's name and an output."""
    name: str
    op: str
    inputs: list = field(default_factory=list)
    attrs: dict = field(default_factory=dict)
    controls: list = field(default_factory=list)
    types: list = field(default_factory=list)  # (dtype, shape) of each output
    device: str = None

    def sources(self):
        return [name for name, _ in self.inputs] + self.controls


class Unordered(Exception):
    """Two writes of a variable have no order."""


class Interpreter:
    """One step over the nodes, from the variables' values."""

    def __init__(self, items, attrs_of, feeds, state):
        self.items, self.attrs_of, self.feeds, self.state = items, attrs_of, feeds, state
        self.values, self.above = {}, {}

    def needed(self, roots):
        """Fed outputs need nothing: only their nodes' other uses do."""
        seen, stack = set(), list(roots)
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack += self._sources(name)
        return [n for n in self.items if n in seen]

    def _sources(self, name):
        return [] if name in self.feeds else self.items[name].sources()

    def run(self, roots):
        order = self.needed(roots)
        for name in order:
            above = set()
            for source in self._sources(name):
                above |= self.above[source] | {source}
            self.above[name] = above
        writes = {}
        for name in order:
            for variable in self._written(name):
                writes.setdefault(variable, []).append(name)
        for variable, names in writes.items():
            for a, b in zip(names, names[1:]):
                if a not in self.above[b]:
                    raise Unordered(f"{a} and {b} of {variable}")
        self.writes = writes
        for name in order:
            self._evaluate(name)
        for variable, names in writes.items():
            self.state[variable] = self.values[names[-1]][1][variable]

    def _written(self, name):
        item = self.items[name]
        return [v for v, _ in item.inputs[:MUTATES.get(item.op, 0)]]

    def seen_by(self, name, variable):
        """The value of a variable that node `name` reads."""
        before = [w for w in self.writes.get(variable, []) if w in self.above[name]]
        return self.values[before[-1]][1][variable] if before else self.state[variable]

    def value(self, reader, operand):
        name, output = operand
        if name in self.feeds:
            return self.feeds[name]
        if self.items[name].op == "Variable":
            return self.seen_by(reader, name) if reader else self.state[name]
        return self.values[name][0][output]

    def _evaluate(self, name):
        item = self.items[name]
        if name in self.feeds or item.op in ("Variable", "NoOp"):
            return
        if item.op == "Const":
            self.values[name] = ([wide(item.attrs["value"])], {})
            return
        inputs = [self.value(name, operand) for operand in item.inputs]
        outputs = reference.evaluate(item.op, self.attrs_of(item), inputs)
        written = self._written(name)
        # After the node's output come the new values of what it updates.
        state = dict(zip(written, outputs[1:]))
        self.values[name] = (outputs[:1] if written else outputs, state)


def wide(value):
    array = value.wide() if value.dtype.startswith("float") else value.array
    return torch.from_numpy(np.array(array))
