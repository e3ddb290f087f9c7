"""Requests to S3 against botocore's, letter by letter: their signatures, as its
signer and as its client makes them; and the files and variables that credentials
come from, against botocore and Python's configparser."""
import configparser
import datetime
import hashlib
import os
import tempfile
import types
import urllib.parse
from unittest import mock

import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.exceptions
import botocore.session
from botocore.utils import percent_encode

from draw import Draw
from driver import Refused
from signed_request import credentials

LETTERS = list("aZ09-_.~/+% &=?#*'()!$,:;@[]\\|\"<>^`{}") + [
    "//", "/./", "/../", "%2F", "%25", "é", "ß", "日本", "😀", "e\u0301", "\u200b",
    "\0", "\n", "\r", "\t", "\x7f", "name", "2024-01-01"]
HEADER_LETTERS = list("aZ0-_.~/+%&=?#*'(),:;@\"") + [" ", "  ", "\t", "é", "bytes=0-9"]
HEADER_NAMES = ["Range", "If-Match", "if-none-match", "Content-Type", "Content-MD5",
                "x-amz-meta-a", "x-amz-meta-a-b", "X-Amz-Copy-Source", "x-amz-acl"]
REGIONS = ["us-east-1", "eu-central-1", "cn-north-1", "ap-southeast-2"]


def text(d, letters, most):
    return "".join(d.pick(letters) for _ in range(d.integer(0, most)))


def keys(d):
    return [text(d, list("ABCXYZ0189"), 20) + "A", text(d, list("azAZ09/+"), 40) + "S",
            text(d, list("azAZ09/+="), 80) if d.chance(0.4) else ""]


def clock(time):
    """botocore.auth's, stopped."""
    now = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=time)
    stopped = type("Stopped", (datetime.datetime,), {"utcnow": staticmethod(lambda: now)})
    return mock.patch.object(botocore.auth, "datetime",
                             types.SimpleNamespace(datetime=stopped))


def differences(wanted, got):
    return [f"{name}: wanted {wanted.get(name)!r}, got {got.get(name)!r}"
            for name in sorted({*wanted, *got}) if wanted.get(name) != got.get(name)]


class Case:
    """With self.request for the driver."""

    def reproduction(self):
        return [repr(self.request)]


class SignCase(Case):
    def __init__(self, seed, index):
        d = Draw("remote/sign", seed, index)
        self.s3 = d.chance(0.9)
        self.in_url = d.chance(0.5)  # the query
        self.unsigned = self.s3 and d.chance(0.3)
        self.body = text(d, LETTERS, 6).encode() if d.chance(0.5) else b""
        query = [(text(d, LETTERS, 4), text(d, LETTERS, 4))
                 for _ in range(d.pick([0, 0, 1, 2, 3, 6]))]
        query += [pair for pair in query if d.chance(0.2)]
        query += [(name, text(d, LETTERS, 2)) for name, _ in query if d.chance(0.2)]
        # An HTTP library leaves no spaces at the ends of a value.
        headers = [(d.pick(HEADER_NAMES), text(d, HEADER_LETTERS, 8).strip())
                   for _ in range(d.pick([0, 1, 2, 4]))]
        self.request = {
            "do": "sign", "method": d.pick(["GET", "PUT", "HEAD", "POST", "DELETE"]),
            "host": d.pick(["bucket.s3.eu-west-1.amazonaws.com", "localhost:9000",
                            "127.0.0.1", "[::1]:9000"]),
            "path": "/" + (text(d, LETTERS, 15) if self.s3 else ""),
            "query": query, "headers": headers,
            "payload": ("UNSIGNED-PAYLOAD" if self.unsigned
                        else hashlib.sha256(self.body).hexdigest()),
            "credentials": keys(d), "region": d.pick(REGIONS),
            "service": "s3" if self.s3 else "other",
            "time": d.integer(0, 4102444800)}

    def wanted(self):
        r = self.request
        path = percent_encode(r["path"], safe="/~")
        pairs = [(percent_encode(n, safe="~"), percent_encode(v, safe="~"))
                 for n, v in r["query"]]
        query = "&".join(f"{n}={v}" for n, v in pairs)
        url = "https://" + r["host"] + path
        request = botocore.awsrequest.AWSRequest(
            r["method"], url + ("?" + query if self.in_url and pairs else ""),
            data=self.body, params=None if self.in_url else r["query"])
        for name, value in r["headers"]:
            request.headers[name] = value
        if self.unsigned:
            request.context["client_config"] = types.SimpleNamespace(
                s3={"payload_signing_enabled": False})
        signer = botocore.auth.S3SigV4Auth if self.s3 else botocore.auth.SigV4Auth
        given = len(request.headers)
        with clock(r["time"]):
            signer(credentials(r["credentials"]), r["service"],
                   r["region"]).add_auth(request)
        added = {name.lower(): value for name, value in request.headers.items()[given:]}
        return {**added, "path": path,
                "query": "&".join(f"{n}={v}" for n, v in sorted(pairs))}

    def check(self, driver):
        answer = driver.remote(self.request)
        got = {**dict(answer["headers"]), "path": answer["path"],
               "query": answer["query"]}
        return differences(self.wanted(), got)


class Sent(Exception):
    """Carries the request that botocore's client would have sent."""


def send(request, **_):
    raise Sent(request)


CLIENTS = {}


def client(endpoint, region, style):
    """Each is made in tens of milliseconds."""
    if (endpoint, region, style) not in CLIENTS:
        made = botocore.session.Session().create_client(
            "s3", region, endpoint_url=endpoint or None,
            aws_access_key_id="ACCESS", aws_secret_access_key="S/E+C",
            aws_session_token="TO/KEN==" if endpoint else None,
            config=botocore.config.Config(
                retries={"total_max_attempts": 1}, parameter_validation=False,
                s3={"addressing_style": style, "us_east_1_regional_endpoint": "regional"}))
        made.meta.events.register("before-send.s3", send)
        CLIENTS[endpoint, region, style] = made
    return CLIENTS[endpoint, region, style]


OPERATIONS = {
    "get_object": ["Key", "Range", "IfMatch"], "head_object": ["Key"],
    "put_object": ["Key", "Body", "ContentType"], "delete_object": ["Key"],
    "list_objects_v2": ["Prefix", "Delimiter", "ContinuationToken", "MaxKeys"],
    "create_multipart_upload": ["Key"],
    "upload_part": ["Key", "Body", "UploadId", "PartNumber"],
    "abort_multipart_upload": ["Key", "UploadId"],
    "copy_object": ["Key", "CopySource"]}


class ClientCase(Case):
    def __init__(self, seed, index):
        d = Draw("remote/client", seed, index)
        self.endpoint = d.pick(["", "", "http://localhost:9000", "https://obs.example.com"])
        self.region = d.pick(REGIONS)
        # Without one botocore puts the bucket into the host's name at other
        # endpoints, too.
        self.style = d.pick(["path", "virtual"] if self.endpoint
                            else ["auto", "path", "virtual"])
        # The others fit into no host's name, or no certificate's.
        self.bucket = d.pick(["bucket", "my-bucket-2", "0ab"] if self.style == "virtual"
                             else ["bucket", "my-bucket-2", "0ab", "a.b", "Upper_"])
        self.operation = d.pick(list(OPERATIONS))
        draw = {"Key": lambda: "k" + text(d, LETTERS, 12) if d.chance(0.7)
                else text(d, LETTERS, 12) + "k",
                "Prefix": lambda: text(d, LETTERS, 8), "Delimiter": lambda: "/",
                "ContinuationToken": lambda: text(d, list("aZ0/+="), 20),
                "MaxKeys": lambda: d.integer(1, 1000), "Range": lambda: "bytes=0-99",
                "IfMatch": lambda: '"abc"', "Body": lambda: text(d, LETTERS, 5).encode(),
                "ContentType": lambda: "text/plain", "UploadId": lambda: text(d, list("a_.~-"), 9),
                "PartNumber": lambda: d.integer(1, 10000),
                "CopySource": lambda: {"Bucket": "other", "Key": "k" + text(d, LETTERS, 9)}}
        self.arguments = {name: draw[name]() for name in OPERATIONS[self.operation]}
        self.time = d.integer(0, 4102444800)
        self.request = {"do": "address", "endpoint": self.endpoint, "region": self.region,
                        "style": self.style, "bucket": self.bucket,
                        "key": self.arguments.get("Key", "")}

    def reproduction(self):
        return [f"{self.operation}({self.arguments}) {self.request}"]

    def check(self, driver):
        call = getattr(client(self.endpoint, self.region, self.style), self.operation)
        with clock(self.time):
            try:
                call(Bucket=self.bucket, **self.arguments)
                return ["the oracle sent nothing"]
            except Sent as sent:
                request = sent.args[0]
        url, _, query = request.url.partition("?")
        pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
        headers = {name.lower(): value.decode() if isinstance(value, bytes) else value
                   for name, value in request.headers.items()}
        names = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        ours = ("host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token")
        address = driver.remote(self.request)["url"]
        parts = urllib.parse.urlsplit(address)
        signed = driver.remote({
            "do": "sign", "method": request.method, "host": parts.netloc,
            "path": urllib.parse.unquote(parts.path),
            "query": [[urllib.parse.unquote(part) for part in pair] for pair in pairs],
            "headers": [[n, headers[n]] for n in names if n not in ours],
            "payload": headers["x-amz-content-sha256"],
            "credentials": ["ACCESS", "S/E+C", "TO/KEN==" if self.endpoint else ""],
            "region": self.region, "service": "s3", "time": self.time})
        got = dict(signed["headers"])
        return differences(
            {"url": url, "query": "&".join(f"{n}={v}" for n, v in sorted(pairs)),
             **{name: headers.get(name) for name in got}},
            {"url": address, "query": signed["query"], **got})


INI_PARTS = ["[a]", "[b]", "[profile c]", "[", "]", "a", "B", "c", "=", ":", "#", ";", " ",
             "  ", "\t", "\n", "\n", "\n", "\r\n", "\n ", "\n  ", "a = 1\n", "B: 2\n",
             " c = 3\n", "d =\n  e = f\n", "%(a)s"]


class IniCase(Case):
    def __init__(self, seed, index):
        d = Draw("remote/ini", seed, index)
        begin = d.pick(["", "[first]\n", "[first]\nx = y\n"])
        self.request = {"do": "ini", "text": begin + text(d, INI_PARTS, 15)}

    def check(self, driver):
        parser = configparser.RawConfigParser()
        wanted, got = "an error", "an error"
        try:
            parser.read_string(self.request["text"])
            wanted = {name: dict(parser.items(name)) for name in parser.sections()}
        except configparser.Error:
            pass
        try:
            got = driver.remote(self.request)["sections"]
        except Refused:
            pass
        return [] if wanted == got else [f"wanted {wanted}, got {got}"]


def profile_section(d, name):
    lines = []
    if d.chance(0.7):
        lines.append(f"aws_access_key_id = {name}{d.integer(0, 99)}")
        if d.chance(0.95):
            lines.append(f"aws_secret_access_key: S{d.integer(0, 99)}")
        if d.chance(0.3):
            lines.append(f"aws_session_token=T{d.integer(0, 99)}")
    if d.chance(0.4):
        lines.append("Region = " + d.pick(REGIONS))
    return [lines[i] for i in d.rng.permutation(len(lines))]


class SettingsCase(Case):
    def __init__(self, seed, index):
        d = Draw("remote/settings", seed, index)
        self.files = {}
        for name in ("credentials", "config"):
            if d.chance(0.2):
                continue
            lines = []
            for profile in d.subset(["default", "p", "a b"]):
                header = profile
                if name == "config" and (profile != "default" or d.chance(0.2)):
                    quote = d.pick("'\"") if " " in profile or d.chance(0.2) else ""
                    header = f"profile {quote}{profile}{quote}"
                lines += [f"[{header}]", *profile_section(d, name), ""]
            self.files[name] = "\n".join(lines)
        self.variables = {}
        if d.chance(0.4):
            self.variables["AWS_ACCESS_KEY_ID"] = "E1"
            if d.chance(0.9):
                self.variables["AWS_SECRET_ACCESS_KEY"] = d.pick(["E2", "E2", ""])
        for name in ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
            if d.chance(0.2):
                self.variables[name] = name + "X"
        if d.chance(0.5):
            self.variables["AWS_PROFILE"] = d.pick(["default", "p", "a b", "missing"])
        if d.chance(0.3):
            self.variables["AWS_DEFAULT_REGION"] = d.pick(REGIONS)
        self.elsewhere = d.chance(0.3)

    def reproduction(self):
        return [repr(self.variables), *(f"{n}: {t!r}" for n, t in self.files.items())]

    def wanted(self):
        try:
            session = botocore.session.Session()
            found = session.get_credentials()
            if found is None:
                return "an error"
            region = session.get_config_variable("region") or "us-east-1"
            return [found.access_key, found.secret_key, found.token or "", region]
        except (botocore.exceptions.PartialCredentialsError,
                botocore.exceptions.ProfileNotFound):
            return "an error"

    def check(self, driver):
        with tempfile.TemporaryDirectory() as home:
            folder = os.path.join(home, "other" if self.elsewhere else ".aws")
            os.mkdir(folder)
            for name, content in self.files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(content)
            variables = {**self.variables, "HOME": home, "AWS_EC2_METADATA_DISABLED": "true"}
            if self.elsewhere:
                variables["AWS_SHARED_CREDENTIALS_FILE"] = "~/other/credentials"
                variables["AWS_CONFIG_FILE"] = folder + "/config"
            with mock.patch.dict(os.environ, variables, clear=True):
                wanted = self.wanted()
            try:
                answer = driver.remote({"do": "settings", "variables": variables})
                got = [*answer["credentials"], answer["region"]]
            except Refused:
                got = "an error"
        return [] if wanted == got else [f"wanted {wanted}, got {got}"]


# How many of each, and in a long run.
CASES = [("sign", SignCase, 10_000, 100_000), ("client", ClientCase, 500, 5_000),
         ("ini", IniCase, 2_000, 50_000), ("settings", SettingsCase, 300, 3_000)]


def cases(ops, seed, long):
    for name, make, some, many in CASES:
        for index in range(many if long else some):
            yield f"{name}/{index}", lambda make=make, index=index: make(seed, index)


def missing(ops):
    return []


def notes():
    return ""
