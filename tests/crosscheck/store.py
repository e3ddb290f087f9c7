"""The programs at an object store: moto's server, or Swift's, behind a door that
lets nothing pass that is signed wrongly, and that fails by seed (store_proxy.py).
Without moto_server nothing is compared, and that is said."""
import collections
import contextlib
import hashlib
import http.client
import importlib
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import time

import botocore.auth
import botocore.awsrequest

from draw import Draw
from remote import LETTERS, clock, credentials, text
from signed_request import SKEW
from store_proxy import Faults, StoreProxy

# Which one: a module's name.
SERVER = importlib.import_module(os.environ.get("CROSSCHECK_STORE", "moto"))
KEYS = ("test:tester", "S/E+C", "TO/KEN==")
REGION = "eu-central-1"
SECONDS = 1800  # of a program: Swift is slow where the cores are busy
INJECTED = collections.Counter()


def client():
    return SERVER.client(KEYS, REGION)


def keys(bucket):
    pages = client().get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {entry["Key"] for page in pages for entry in page.get("Contents", [])}


class Failed(Exception):
    """A program's, with what it said."""


def said(stderr):
    return (stderr or b"").decode(errors="replace")[-2000:]


class StoreCase:
    def __init__(self, seed, index, long):
        self.seed, self.index, self.long = seed, index, long
        name = type(self).__name__.lower()
        self.draw = Draw(f"store/{name}", seed, index)
        self.bucket = f"{name}-{seed}-{index}"

    def reproduction(self):
        return []

    def check(self, driver):
        self.programs = pathlib.Path(driver.program).parent
        client().create_bucket(Bucket=self.bucket,
                               CreateBucketConfiguration={"LocationConstraint": REGION})
        with self.door() as self.proxy, tempfile.TemporaryDirectory() as folder:
            try:
                faults = self.differences(pathlib.Path(folder))
            except Failed as failure:
                faults = [str(failure)]
            return faults + self.proxy.refused[:10]

    def door(self, tls=None):
        # The client gives up after 20 s.
        stall = 25 if self.long else 0.3
        return StoreProxy(SERVER.port(KEYS, REGION), KEYS, REGION, latency=0.001, stall=stall,
                          tls=tls)

    def run(self, program, *arguments, **more):
        """What it prints, with s3:// at the proxy, and `more` in its environment."""
        environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith("AWS_")},
            "AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1],
            "AWS_SESSION_TOKEN": KEYS[2], "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.proxy.url, **more}
        line = f"{program} {' '.join(map(str, arguments))}"
        try:
            done = subprocess.run([self.programs / program, *map(str, arguments)],
                                  env=environment, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{line}: took more than {SECONDS} s: {said(late.stderr)}") from None
        if done.returncode:
            raise Failed(f"{line}: code {done.returncode}: {said(done.stderr)}")
        return done.stdout.decode(errors="replace")

    @contextlib.contextmanager
    def faulty(self, count, one_in):
        """So many faults, or it fails."""
        faults = Faults(self.seed * 1000 + self.index, count, one_in)
        self.proxy.faults = faults
        yield
        self.proxy.faults = Faults(0)
        INJECTED.update(faults.injected)
        if faults.left:
            raise Failed(f"only {count - faults.left} of {count} faults met a request")


class Door(StoreCase):
    """The proxy lets botocore's requests pass, and no other."""

    def status(self, change):
        """Of a PUT that `change` alters once it is signed."""
        body, path = b"some bytes", f"/{self.bucket}/a%20b?x=1&b=%2F"
        request = botocore.awsrequest.AWSRequest(
            "PUT", self.proxy.url + path, data=body,
            headers={"Host": self.proxy.url[len("http://"):], "x-amz-meta-a": "b"})
        sent = {"now": 0, "secret": KEYS[1], "body": body, "path": path, "drop": None,
                "headers": {}, **change}
        with clock(int(time.time()) + sent["now"]):
            botocore.auth.S3SigV4Auth(credentials([KEYS[0], sent["secret"], KEYS[2]]), "s3",
                                      REGION).add_auth(request)
        headers = {n: v for n, v in request.headers.items() if n.lower() != sent["drop"]}
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.server_address[1])
        connection.request("PUT", sent["path"], sent["body"], {**headers, **sent["headers"]})
        answer = connection.getresponse().status
        connection.close()
        return answer

    def differences(self, folder):
        wrong = [{"now": SKEW + 60}, {"now": -SKEW - 60}, {"secret": "other"},
                 {"body": b"some Bytes"}, {"path": f"/{self.bucket}/a%20c?x=1&b=%2F"},
                 {"path": f"/{self.bucket}/a%20b?x=2&b=%2F"}, {"drop": "authorization"},
                 {"drop": "x-amz-date"}, {"drop": "x-amz-content-sha256"},
                 {"drop": "x-amz-security-token"}, {"headers": {"x-amz-meta-a": "c"}},
                 {"headers": {"x-amz-acl": "public-read"}}]
        faults = [f"{change} got {self.status(change)}, wanted 403" for change in wrong
                  if self.status(change) != 403]
        self.proxy.refused.clear()
        right = [{}, {"now": SKEW - 60}, {"now": 60 - SKEW}, {"headers": {"unsigned": "x"}}]
        return faults + [f"{change} is refused" for change in right if self.status(change) != 200]


# Names on a disk are drawn from these; moto finds no key with a line's end in it.
NAME_LETTERS = [letter for letter in LETTERS if "/" not in letter and letter not in "\0\n"]


class Copy(StoreCase):
    """A folder comes back as it went there, under keys that are its names."""

    def make_files(self, folder):
        d = self.draw
        names = (f"{text(d, NAME_LETTERS, 6)}{i}{text(d, NAME_LETTERS, 3)}" for i in range(10_000))
        folders = [folder]
        for _ in range(d.integer(2, 6)):
            folders.append(d.pick(folders) / next(names))
        for i in range(200 if self.long else 40):
            path = d.pick(folders) / next(names)
            path.parent.mkdir(parents=True, exist_ok=True)
            # The first is large enough to go there in several parts.
            size = (40 << 20) + 5 if i == 0 else d.pick([0, 1, 5000, d.integer(0, 300_000)])
            path.write_bytes(d.rng.bytes(size))

    def differences(self, folder):
        self.make_files(folder / "in")
        wanted = files_in(folder / "in")
        there, count = f"s3://{self.bucket}/a b/+", 60 if self.long else 15
        copy = ["sluice", "data", "copy"]
        with self.faulty(count, 5):
            self.run(*copy, folder / "in", there, "--threads", "4", "--check")
        with self.faulty(count, 5):
            self.run(*copy, there, folder / "back", "--threads", "4")
        found, names = keys(self.bucket), {"a b/+/" + name for name in wanted}
        back = files_in(folder / "back")
        odd = [n for n in sorted({*back, *wanted}) if back.get(n) != wanted.get(n)]
        faults = []
        if odd:
            faults.append(f"{len(odd)} of {len(wanted)} files came back otherwise: {odd[:5]}")
        if found != names:
            faults.append(f"keys that are there or wanted, not both: {sorted(found ^ names)[:5]}")
        return faults


class Secure(StoreCase):
    """By TLS: of a server whose certificate nobody vouches for, or that is of
    another one, nothing is read, and nothing is told."""

    def certificate(self, folder, address):
        cert, key = folder / f"{address}.pem", folder / f"{address}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=store",
                        "-addext", f"subjectAltName=IP:{address}", "-keyout", key, "-out", cert],
                       check=True, stderr=subprocess.DEVNULL)
        return cert, key

    def copies(self, folder, tls, **trust):
        """What is wrong with a copy there and back, and how often it asked."""
        there = f"s3://{self.bucket}/in"
        with self.door(tls) as self.proxy:
            try:
                with self.faulty(5 if trust.pop("faults", False) else 0, 5):
                    self.run("sluice", "data", "copy", folder / "in", there, **trust)
                    self.run("sluice", "data", "copy", there, folder / "back", **trust)
            except Failed as failure:
                return str(failure), self.proxy.requests.total()
            odd = files_in(folder / "in") != files_in(folder / "back")
            return "other files came back" if odd else "", self.proxy.requests.total()

    def differences(self, folder):
        (folder / "in").mkdir()
        for i in range(6):
            (folder / f"in/{i}").write_bytes(self.draw.rng.bytes(self.draw.integer(0, 200_000)))
        faults, plain = [], self.proxy
        own, other = (self.certificate(folder, at) for at in ("127.0.0.1", "127.0.0.2"))
        for tls, bundle in ((own, None), (own, other[0]), (other, other[0])):
            trust = {"AWS_CA_BUNDLE": str(bundle)} if bundle else {}
            wrong, asked = self.copies(folder, tls, **trust)
            if "AWS_CA_BUNDLE names a file of certificates to trust" not in wrong or asked:
                faults.append(f"{tls[0].name}, trusting {bundle}: {asked} requests, {wrong!r}")
        wrong, _ = self.copies(folder, own, AWS_CA_BUNDLE=str(own[0]), faults=True)
        self.proxy = plain
        return faults + ([wrong] if wrong else [])


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


class Epoch(StoreCase):
    """A shuffled epoch over shards sees each record once."""

    def differences(self, folder):
        shards, records = (16, 8_000) if self.long else (4, 1_600)
        there = f"s3://{self.bucket}/records"
        self.run("epoch_bench", "make", there, "--records", records, "--shards", shards)
        with self.faulty(100, 8):
            self.run("epoch_bench", "read", there, "--state", folder / "state", "--threads", 32)
        seen = (folder / "state.seen").read_bytes()
        visits = collections.Counter(struct.unpack(f"<{len(seen) // 8}q", seen))
        wrong = [r for r in range(records) if visits[r] != 1]
        if wrong or len(visits) != records:
            return [f"{len(wrong)} of {records} records not seen once, {len(visits)} seen:"
                    f" {wrong[:5]}"]
        return []


class Train(StoreCase):
    """A training whose data and log are there has a local one's bits."""

    def train(self, data, log):
        # Its checkpoints are of 39 MB, so that they go there in parts.
        self.run("mnist", "train", "--data-dir", data, "--log-dir", log, "--model", "cnn",
                 "--seed", self.seed, "--threads", 1, "--deterministic", "--batch-size", 20,
                 "--max-steps", 12, "--save-every", 6)

    def evaluate(self, data, log):
        said = json.loads(self.run("mnist", "eval", "--data-dir", data, "--log-dir", log, "--json"))
        return {name: said[name] for name in ("steps", "test_accuracy")}

    def differences(self, folder):
        write_digits(folder / "digits", "train", 400, self.draw)
        write_digits(folder / "digits", "t10k", 100, self.draw)
        data, log = f"s3://{self.bucket}/digits", f"s3://{self.bucket}/log"
        self.train(folder / "digits", folder / "log")
        with self.faulty(20, 5):
            self.run("sluice", "data", "copy", folder / "digits", data)
            self.train(data, log)
            self.run("sluice", "data", "copy", log, folder / "back")
        faults = []
        for name in ("checkpoint-6.safetensors", "checkpoint-12.safetensors"):
            here, there = (hashlib.sha256((folder / f / name).read_bytes()).hexdigest()
                           for f in ("log", "back"))
            if here != there:
                faults.append(f"{name} has SHA-256 {there}, of a local training {here}")
        with self.faulty(2, 2):
            loaded = self.evaluate(data, log)
        local = self.evaluate(folder / "digits", folder / "log")
        return faults + ([] if loaded == local else [f"evaluates to {loaded}, wanted {local}"])


def write_digits(folder, part, count, d):
    """IDX files of noise."""
    folder.mkdir(exist_ok=True)
    for name, dims in (("images-idx3", [count, 28, 28]), ("labels-idx1", [count])):
        values = d.rng.integers(0, 10 if len(dims) == 1 else 256, dims).astype("uint8")
        header = bytes([0, 0, 8, len(dims)]) + struct.pack(f">{len(dims)}i", *dims)
        (folder / f"{part}-{name}-ubyte").write_bytes(header + values.tobytes())


# How many of each, and in a long run.
CASES = [(Door, 1, 1), (Secure, 1, 1), (Copy, 1, 10), (Epoch, 1, 3), (Train, 1, 3)]


def cases(ops, seed, long):
    for make, some, many in CASES if SERVER.PROGRAM else []:
        for index in range(many if long else some):
            yield (f"{make.__name__.lower()}/{index}",
                   lambda make=make, index=index: make(seed, index, long))


def missing(ops):
    return []


def notes():
    if not SERVER.PROGRAM:
        return "(skipped: there is no moto_server)"
    return "(faults: " + ", ".join(f"{n} {kind}" for kind, n in sorted(INJECTED.items())) + ")"
