#!/usr/bin/env python3
"""Checks and measures Sluice on a machine with a GPU, from an archive that
scripts/package.sh made: nothing is compiled here.

  gpu_check.py [--from DIR] [--minutes N] OUT     the rows that are not done yet
  gpu_check.py [--from DIR] --row NAME... OUT     these rows, done or not
  gpu_check.py --list                             all rows, in their order

The most valuable rows come first (gpu_rows.py). Each has a time limit of its
own, and is begun only if that fits into what is left of the call's minutes (7,
or those given): so the same line, called until it says that nothing is left,
does the whole check. What it found stays if it is stopped, and rows done by the
same build on the same kind of GPU are not done again. One that failed is tried
once more by a later call, when all others are done: what failed for lack of time
or by chance may pass, and what fails twice would a third time. OUT gets few files,
to be carried to the next call there or, from elsewhere, with --from:
  machine.json   device, driver, versions of libraries, commit, date
  rows.jsonl     one line a row: passed (null: not possible), seconds, results
  rows.md        the same as a table, and what is left
  check.log      what the programs wrote
  cache.tar      generated kernels, and what was chosen of cuDNN's
  trace.json     of the row "profile", for Perfetto
Peers need PyTorch in this python3. Exits with 1 if a row failed. Without a GPU
every row is run to see that it says so, in one line, and no more is wrong: the
exit status is then 0.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

sys.dont_write_bytecode = True  # nothing may land in the archive
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from gpu_rows import ROWS  # noqa: E402

SECONDS_WITHOUT_GPU = 60  # a row's, at most: it has only to say so
MOST_FAILURES = 2  # of a row, before it is left alone


def build_of(root):
    """Names what is measured: a hash of the archive's files."""
    digest = hashlib.sha256()
    for folder in ("bin", "lib", "bench", "scripts"):
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(root)).encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def said(*command):
    """What a command writes; None where it cannot."""
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def objects_of(text):
    """The lines that are JSON objects."""
    objects = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                objects.append(json.loads(line))
            except ValueError:
                pass  # the last one of a program that was stopped
    return objects


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def fault_in(out, errors):
    """What is wrong, where something is: a test's first error with the line
    behind it, or a program's last word."""
    lines = out.splitlines()
    for i, line in enumerate(lines):
        if "ERROR" in line:
            return " ".join(" ".join(lines[i:i + 4]).split())
    return last_line(errors) or last_line(out)


class Check:
    """One call. `rows` are in the order in which they are to be run."""

    def __init__(self, root, out, rows, earlier=None, minutes=7.0):
        self.root, self.out, self.rows = root, out, rows
        self.deadline = time.monotonic() + 60 * minutes
        self.build = build_of(root)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="gpu_check."))
        self.records = []
        self.process = None
        out.mkdir(parents=True, exist_ok=True)
        for name in ("rows.jsonl", "cache.tar", "check.log"):
            if earlier and not (out / name).exists():
                if (earlier / name).exists():
                    shutil.copyfile(earlier / name, out / name)
        if (out / "rows.jsonl").exists():
            self.records = objects_of((out / "rows.jsonl").read_text())
        self.unpack_cache()
        self.doctor = self.ask_doctor()
        gpus = self.doctor.get("gpus") or {}
        self.gpu = gpus.get("/gpu:0")
        # Why there is none, in the words that every program then has.
        self.no_gpu = None if self.gpu else self.doctor.get("no_gpu")

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(self, *_):
        self.kill()
        self.write_table()
        self.pack_cache()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- What is known of the machine

    def ask_doctor(self):
        program = self.root / "bin" / "sluice"
        answers = objects_of(said(str(program), "doctor", "--json") or "")
        doctor = answers[-1] if answers else {}
        query = "name,driver_version,memory.total,clocks.max.sm,power.limit"
        torch = ("import torch; print(torch.__version__, torch.version.cuda,"
                 " torch.backends.cudnn.version())")
        commit = self.root / "commit"
        now = datetime.datetime.now(datetime.timezone.utc)
        machine = {
            "date": now.isoformat(timespec="seconds"),
            "commit": commit.read_text().strip() if commit.exists() else None,
            "build": self.build,
            "gpu": said("nvidia-smi", "--query-gpu=" + query,
                        "--format=csv,noheader"),
            "torch_cuda_cudnn": said(sys.executable, "-c", torch),
            "system": platform.platform(),
            "doctor": doctor or None,
        }
        text = json.dumps(machine, indent=1) + "\n"
        (self.out / "machine.json").write_text(text)
        return doctor

    # --- What is carried from call to call

    def cache(self):
        return self.scratch / "cache"

    def unpack_cache(self):
        self.cache().mkdir()
        if (self.out / "cache.tar").exists():
            try:
                with tarfile.open(self.out / "cache.tar") as tar:
                    tar.extractall(self.cache())
            except (OSError, tarfile.TarError) as error:
                reason = str(error).splitlines()[0]
                print(f"cache.tar is left out: {reason}")  # it only saves time

    def pack_cache(self):
        if not any(self.cache().iterdir()):
            return
        packed = self.out / "cache.tar.new"
        with tarfile.open(packed, "w") as tar:
            for entry in sorted(self.cache().iterdir()):
                tar.add(entry, entry.name)
        packed.replace(self.out / "cache.tar")

    def records_of(self, row):
        """Those of this build on this kind of GPU."""
        key = row.name, self.build, self.gpu
        return [r for r in self.records
                if (r.get("row"), r.get("build"), r.get("gpu")) == key]

    def record_of(self, row):
        """The latest; None if there is none."""
        return (self.records_of(row) or [None])[-1]

    def to_do(self):
        """The rows that this call is to run: those that have not been, then
        those that failed and may yet pass."""
        if self.gpu is None:
            return list(self.rows)  # the machine may have one next time
        new = [row for row in self.rows if not self.records_of(row)]
        return new + [row for row in self.rows if self.to_repeat(row)]

    def to_repeat(self, row):
        records = self.records_of(row)
        return (0 < len(records) < MOST_FAILURES
                and records[-1]["passed"] is False)

    # --- Rows

    def kill(self):
        """Ends a row that is under way, with all that it has started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def run(self, row):
        limit = row.limit
        if self.no_gpu:
            limit = min(limit, SECONDS_WITHOUT_GPU)
        command = [self.place(word) for word in row.command]
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.cache()),
                           **row.environment)
        if not self.is_ours(command[0]) and shutil.which(command[0]) is None:
            self.add(row, 0, None, f"{command[0]} is not installed")
            return
        begin = time.monotonic()
        out, errors = self.scratch / "out", self.scratch / "errors"
        status = None
        with out.open("wb") as o, errors.open("wb") as e:
            try:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=o, stderr=e,
                    cwd=self.scratch, env=environment, start_new_session=True)
                status = self.process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            except OSError as error:
                status = f"{command[0]} cannot be started: {error.strerror}"
            finally:
                self.kill()
        seconds = round(time.monotonic() - begin, 1)
        out, errors = (f.read_text(errors="replace") for f in (out, errors))
        with (self.out / "check.log").open("a") as log:
            log.write(f"=== {row.name}: {' '.join(command)}\n{out}{errors}")
        self.keep_files(row)
        self.add(row, seconds, *self.verdict(row, limit, status, out, errors))

    def place(self, word):
        """Words that begin with a folder of the archive are files in it."""
        if word == "python3":
            return sys.executable
        if word == "ROOT":
            return str(self.root)
        if word.startswith(("bin/", "bench/")):
            return str(self.root / word)
        return word

    def is_ours(self, program):
        """A file of the archive has to be there; another tool need not be."""
        return program.startswith(str(self.root))

    def keep_files(self, row):
        for name, kept in row.keeps.items():
            if (self.scratch / name).exists():
                shutil.move(str(self.scratch / name), str(self.out / kept))

    def verdict(self, row, limit, status, out, errors):
        """passed, and the results as JSON objects or one line."""
        results = objects_of(out)
        if isinstance(status, str):
            return False, status
        if self.no_gpu:
            if status not in (None, 0) and self.no_gpu in " ".join(
                    (out + errors).split()):
                return None, "no GPU: " + self.no_gpu
            return False, ("there is no GPU, but it says: " +
                           (fault_in(out, errors) or f"status {status}"))
        if status is None:
            return False, results + [f"not over after {limit} s"]
        if status != 0:
            fault = fault_in(out, errors) or f"exit status {status}"
            return False, results + [fault] if results else fault
        fault = row.judge(results) if row.judge else None
        if fault:
            return False, results + [fault]
        return True, results or last_line(out)

    def add(self, row, seconds, passed, results):
        record = {"row": row.name, "passed": passed, "seconds": seconds,
                  "results": results, "build": self.build, "gpu": self.gpu}
        self.records.append(record)
        with (self.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.write_table()
        self.pack_cache()
        print(f"{row.name}: {WORDS[passed]} ({seconds} s) {one_line(results)}",
              flush=True)

    def write_table(self):
        lines = [f"Build {self.build} on {self.gpu or 'no GPU'}.", "",
                 "| row | passed | seconds | result |", "|---|---|---|---|"]
        left = []
        for row in self.rows:
            record = self.record_of(row)
            if record is None:
                left.append(row.name)
                continue
            text = one_line(record["results"]).replace("|", "\\|")
            lines.append(f"| {row.name} | {WORDS[record['passed']]} |"
                         f" {record['seconds']} | `{text}` |")
        if left:
            lines += ["", "Left: " + ", ".join(left) + "."]
        again = [row.name for row in self.rows if self.to_repeat(row)]
        if again and self.gpu:
            lines += ["", "To be tried again: " + ", ".join(again) + "."]
        (self.out / "rows.md").write_text("\n".join(lines) + "\n")
        return left

    def run_all(self):
        """Rows that are not done, as long as there is time. Returns whether
        none failed."""
        if self.no_gpu:
            print(f"no GPU: {self.no_gpu}")
        for row in self.to_do():
            limit = SECONDS_WITHOUT_GPU if self.no_gpu else row.limit
            left = self.deadline - time.monotonic()
            if limit <= left:
                self.run(row)
            else:
                print(f"{row.name}: left for the next call: it may take"
                      f" {limit} s, and {max(left, 0):.0f} s are left")
        return self.passed(self.rows)

    def run_named(self, rows):
        for row in rows:
            self.run(row)
        return self.passed(rows)

    def passed(self, rows):
        records = filter(None, map(self.record_of, rows))
        return all(record["passed"] is not False for record in records)


WORDS = {True: "passed", False: "FAILED", None: "not possible"}


def one_line(results):
    """The end of them, if they are long; rows.jsonl has them all."""
    if isinstance(results, str):
        results = [results]
    text = "; ".join(r if isinstance(r, str) else json.dumps(r)
                     for r in results)
    return text if len(text) <= 2000 else "... " + text[-2000:]


def list_rows(rows, minutes=7.0):
    """In which call each row is if every one takes as long as it may."""
    calls = planned_calls(rows, 60 * minutes)
    for row in rows:
        print(f"{calls[row.name]}  {row.limit:>4} s  {row.name}")


def planned_calls(rows, seconds):
    """The number of the call that does a row, by name: each takes, in order,
    what fits into the time that it has left."""
    calls, call, waiting = {}, 1, list(rows)
    while waiting:
        left, later = seconds, []
        for row in waiting:
            if row.limit <= left:
                calls[row.name] = call
                left -= row.limit
            else:
                later.append(row)
        if len(later) == len(waiting):
            raise ValueError(f"'{later[0].name}' fits into no call")
        call, waiting = call + 1, later
    return calls


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", metavar="NAME",
                        choices=[row.name for row in ROWS])
    parser.add_argument("--from", dest="earlier", type=pathlib.Path,
                        metavar="DIR", help="OUT of an earlier call")
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("out", nargs="?", type=pathlib.Path, metavar="OUT")
    flags = parser.parse_args()
    if flags.list:
        list_rows(ROWS)
        return 0
    if flags.out is None:
        parser.error("where to? OUT is missing")
    out = flags.out.resolve()
    earlier = flags.earlier.resolve() if flags.earlier else None
    with Check(ROOT, out, ROWS, earlier, flags.minutes) as check:
        if flags.row:
            passed = check.run_named([r for r in ROWS if r.name in flags.row])
        else:
            passed = check.run_all()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
