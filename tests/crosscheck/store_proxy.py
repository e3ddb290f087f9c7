"""A store's door: passes on what is signed rightly, and fails by seed."""
import collections
import http.client
import http.server
import random
import socket
import socketserver
import ssl
import threading
import time

from signed_request import fault

# What befalls a request. Of the first three the store hears nothing; the others
# are answers to what has been done.
FAULTS = ("error 500", "slow down", "no answer",
          "lost answer", "cut", "too short", "too long", "stall")
DROPPED = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Faults:
    """`count` of them, each of a request in `one_in`, until they are used up."""

    def __init__(self, seed, count=0, one_in=8, kinds=FAULTS):
        self.random, self.left = random.Random(seed), count
        self.one_in, self.kinds = one_in, kinds
        self.injected = collections.Counter()
        self.lock = threading.Lock()

    def draw(self, method):
        with self.lock:
            if not self.left or self.random.randrange(self.one_in):
                return None
            kind = self.random.choice(self.kinds)
            # The length that HEAD tells is all it tells: nobody could notice.
            if method == "HEAD" and kind in ("too short", "too long", "stall"):
                kind = "error 500"
            self.left -= 1
            self.injected[kind] += 1
            return kind


class StoreProxy(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """At `url` while the block lasts. `refused` has what came with a wrong
    signature, date or hash; `requests` counts by method."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream, keys, region, latency=0.0, stall=1.0, tls=None):
        """`tls`: the files of a certificate and its key."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.keys, self.region = upstream, keys, region
        self.latency, self.stall = latency, stall  # seconds
        self.faults = Faults(0)
        self.refused, self.requests = [], collections.Counter()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_address[1]}"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # who hung up was told to


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body together

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        proxy = self.server
        proxy.requests[self.command] += 1
        wrong = fault(self.command, self.path, self.headers.items(), body, proxy.keys,
                      proxy.region)
        if wrong:
            proxy.refused.append(f"{self.command} {self.path}: {': '.join(wrong)}")
            return self.refuse(403, *wrong)
        time.sleep(proxy.latency)
        kind = proxy.faults.draw(self.command)
        if kind == "error 500":
            return self.refuse(500, "InternalError", "by command")
        if kind == "slow down":
            return self.refuse(503, "SlowDown", "Please reduce your request rate.")
        if kind == "no answer":
            return self.hang_up()
        status, headers, answer = self.forward(body)
        if kind == "lost answer" or (kind == "cut" and not answer):
            return self.hang_up()
        self.reply(status, headers, answer, kind)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def forward(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        try:
            connection.putrequest(self.command, self.path, skip_host=True,
                                  skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in DROPPED:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            headers = [(n, v) for n, v in response.getheaders() if n.lower() not in DROPPED]
            length = response.getheader("Content-Length")
            if self.command == "HEAD" and length:
                headers.append(("Content-Length", length))
            return response.status, headers, response.read()
        finally:
            connection.close()

    def refuse(self, status, code, message):
        xml = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.reply(status, [("Content-Type", "application/xml")],
                   b"" if self.command == "HEAD" else xml, None)

    def reply(self, status, headers, body, kind):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        half = len(body) // 2
        length = len(body) + {"too short": -half, "too long": 100}.get(kind, 0)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(length))
        if kind:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[:half])
        if kind == "cut":
            self.wfile.flush()
            return self.hang_up()
        if kind == "stall":
            self.wfile.flush()
            time.sleep(self.server.stall)
        self.wfile.write(body[half:length])
        self.wfile.flush()

    def hang_up(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
