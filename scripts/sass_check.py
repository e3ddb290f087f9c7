#!/usr/bin/env python3
"""Holds the machine code of CUDA kernels to kernels/cuda/sass_limits.txt.

Disassembles the objects of a build (cuobjdump, found by install_cuobjdump.sh)
and finds of each kernel:

  registers  of a thread; 65536 of a multiprocessor are shared by its threads
  ahead      16-byte global loads that are issued before the first use of one
             of their results, in one straight run of instructions of a loop:
             what a thread has in flight
  narrow     8- and 16-bit global accesses in the loop that this is found in
  slow       integer divisions and calls there: a call is of a 64-bit division,
             or of what an exact division of floats falls back on

A kernel that keeps anything in local memory fails, whatever its row says.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]
INSTRUCTION = re.compile(
    r"^\s*/\*(?P<at>[0-9a-f]{4,})\*/\s+(?:(?P<guard>@!?U?P\d+)\s+)?"
    r"(?P<op>[A-Z][A-Z0-9_.]*)\s*(?P<operands>[^;]*);")
REGISTER = re.compile(r"\bR(\d+)")
NARROW = ("U8", "S8", "U16", "S16")
COLUMNS = ("registers", "ahead", "narrow", "slow")


@dataclass
class Instruction:
    at: int
    guarded: bool
    op: str
    operands: str

    def registers(self):
        return {int(r) for r in REGISTER.findall(self.operands)}

    def target(self):
        """Where a branch goes to, or None."""
        if not self.op.startswith("BRA"):
            return None
        found = re.search(r"0x([0-9a-f]+)", self.operands)
        return int(found.group(1), 16) if found else None

    def ends(self):
        """Whether what is behind it is reached from elsewhere only."""
        # "BRA P1, 0xce0" goes on where P1 is not set.
        conditional = self.guarded or re.match(r"!?U?P\d", self.operands)
        return (self.op.split(".")[0] in ("BRA", "EXIT", "RET", "BRX", "JMP")
                and not conditional)

    def loads(self, *sizes):
        """Whether it is a load of such a size from global memory, or from an
        address that was itself loaded (LD)."""
        first, *rest = self.op.split(".")
        return first in ("LDG", "LD") and any(size in rest for size in sizes)

    def is_narrow(self):
        return (self.loads(*NARROW) or self.op.startswith("STG")
                and bool(set(NARROW) & set(self.op.split("."))))

    def is_slow(self):
        # Integer division starts from a reciprocal, rounded up.
        return self.op.startswith("CALL") or (
            self.op.startswith("I2F") and self.op.endswith(".RP"))

    def is_local(self):
        return self.op.startswith(("LDL", "STL"))


@dataclass
class Block:
    """Instructions that are entered at the first and left at the last."""
    code: list
    after: list = field(default_factory=list)
    before: list = field(default_factory=list)


def blocks_of(code):
    """The blocks of a function, in their order, with the ways between them."""
    starts = {i.target() for i in code} | {code[0].at}
    blocks = []
    for i, instruction in enumerate(code):
        if (instruction.at in starts or code[i - 1].ends()
                or code[i - 1].target() is not None):
            blocks.append(Block([]))
        blocks[-1].code.append(instruction)
    number = {block.code[0].at: n for n, block in enumerate(blocks)}
    for n, block in enumerate(blocks):
        last = block.code[-1]
        if last.target() in number:
            block.after.append(number[last.target()])
        if not last.ends() and n + 1 < len(blocks):
            block.after.append(n + 1)
        for after in block.after:
            blocks[after].before.append(n)
    return blocks


def loops_of(blocks):
    """The natural loops, as sets of blocks, the smallest first."""
    loops, state, stack = {}, {}, [(0, iter(blocks[0].after))]
    state[0] = "open"
    while stack:
        block, left = stack[-1]
        after = next(left, None)
        if after is None:
            state[block] = "done"
            stack.pop()
        elif after not in state:
            state[after] = "open"
            stack.append((after, iter(blocks[after].after)))
        elif state[after] == "open":  # a way back: all that leads to it
            loop, left_to_see = loops.setdefault(after, {after}), [block]
            while left_to_see:
                seen = left_to_see.pop()
                if seen not in loop:
                    loop.add(seen)
                    left_to_see += blocks[seen].before
    return sorted(loops.values(), key=len)


def loads_ahead(blocks):
    """Of each block, the most loads that are issued before a use; loads of the
    block before count where there is no other way into this one."""
    most, pending = [], set()
    for n, block in enumerate(blocks):
        if block.before != [n - 1]:
            pending, count = set(), 0
        best = 0
        for instruction in block.code:
            if instruction.registers() & pending:
                pending, count = set(), 0
            if instruction.loads("128"):
                first = int(REGISTER.search(instruction.operands).group(1))
                pending |= set(range(first, first + 4))
                count += 1
                best = max(best, count)
        most.append(best)
    return most


def figures_of(code):
    """ahead, narrow, slow and whether there are local accesses."""
    blocks = blocks_of(code)
    loops = loops_of(blocks)
    ahead = loads_ahead(blocks)
    # Loops that hold no other, if any of those loads.
    inner = [loop for loop in loops if not any(o < loop for o in loops)]
    if not any(ahead[n] for loop in inner for n in loop):
        inner = loops or [set(range(len(blocks)))]
    loop = max(inner, key=lambda l: max(ahead[n] for n in l))
    inside = [i for n in loop for i in blocks[n].code]
    return {
        "ahead": max(ahead[n] for n in loop),
        "narrow": sum(i.is_narrow() for i in inside),
        "slow": sum(i.is_slow() for i in inside),
        "local": sum(i.is_local() for i in code),
    }


def functions_of(sass):
    """Instructions by function, of cuobjdump -sass."""
    functions, code = {}, None
    for line in sass.splitlines():
        if "Function :" in line:
            code = functions.setdefault(line.split(":", 1)[1].strip(), [])
            continue
        found = INSTRUCTION.match(line)
        if found and code is not None:
            code.append(Instruction(int(found["at"], 16),
                                    found["guard"] is not None, found["op"],
                                    found["operands"].strip()))
    return functions


def usage_of(text):
    """(registers, bytes of stack and local memory) by function, of
    cuobjdump -res-usage."""
    return {
        name: (int(registers), int(stack) + int(local))
        for name, registers, stack, local in re.findall(
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", text)
    }


def short_name(demangled):
    """A kernel's name with its template arguments, without namespaces."""
    name = demangled.removeprefix("void ")
    for space in "(anonymous namespace)::", "sluice::cuda::", "sluice::":
        name = name.replace(space, "")
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name


def kernels_of(objects, sass, usage, demangle):
    """Figures by kernel, of what cuobjdump printed of some objects."""
    functions, used = functions_of(sass), usage_of(usage)
    names = list(functions)
    kernels = {}
    for name, readable in zip(names, demangle(names), strict=True):
        if name not in used:
            raise ValueError(f"{objects}: no resource usage of {readable}")
        figures = figures_of(functions[name])
        figures["registers"] = used[name][0]
        figures["local"] += used[name][1]
        kernels[short_name(readable)] = figures
    return kernels


def limits_of(text):
    """[(source, kernel, limits)] of the table."""
    source, rows = None, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            source = line.strip("[]")
            continue
        kernel, *figures = line.rsplit(None, len(COLUMNS))
        if source is None or len(figures) != len(COLUMNS):
            raise ValueError(f"line {number}: wanted a kernel and "
                             f"{' '.join(COLUMNS)} below a [source]: {line}")
        rows.append((source, kernel, dict(zip(COLUMNS, map(int, figures)))))
    return rows


def faults_of(kernel, limits, found):
    """What is wrong with a kernel, a line each."""
    if found is None:
        return [f"{kernel}: there is no such kernel"]
    faults = []
    if found["local"]:
        faults.append(f"{kernel}: local memory, {found['local']} "
                      "accesses and bytes")
    for column in COLUMNS:
        got, limit = found[column], limits[column]
        if column == "ahead" and got < limit:
            faults.append(f"{kernel}: {got} loads ahead, wanted {limit}")
        if column != "ahead" and got > limit:
            faults.append(f"{kernel}: {got} {column}, at most {limit}")
    return faults


def run(*command, text=None):
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          input=text).stdout


def demangle(names):
    return run("c++filt", text="\n".join(names)).splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=ROOT / "build/cuda",
                        type=pathlib.Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--print", metavar="SOURCE", action="append",
                        help="print what all kernels of a source have, as rows")
    args = parser.parse_args()
    folder = ROOT / "kernels/cuda"
    rows = limits_of((folder / "sass_limits.txt").read_text())
    found = {}
    for source in args.print or dict.fromkeys(r[0] for r in rows):
        file = (args.build / "CMakeFiles/sluice_cuda.dir/kernels/cuda"
                / f"{source}.o")
        found[source] = kernels_of(
            source, run(args.cuobjdump, "-arch", "sm_90", "-sass", file),
            run(args.cuobjdump, "-arch", "sm_90", "-res-usage", file), demangle)
    if args.print:
        for source, kernels in found.items():
            print(f"[{source}]")
            for kernel, figures in sorted(kernels.items()):
                print(kernel, *(figures[c] for c in COLUMNS),
                      *(["# local memory"] if figures["local"] else []))
        return 0
    faults = [fault for source, kernel, limits in rows
              for fault in faults_of(kernel, limits, found[source].get(kernel))]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(rows)} kernels, {len(faults)} faults")
    return 1 if faults or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
