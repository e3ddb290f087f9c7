"""moto's server (PyPI), a process that knows S3 and believes everybody."""
import atexit
import functools
import shutil
import socket
import subprocess
import time

import botocore.session

PROGRAM = shutil.which("moto_server")


@functools.cache
def port(_keys, _region):
    """Of the one that runs from now on until this process ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    server = subprocess.Popen([PROGRAM, "-H", "127.0.0.1", "-p", str(number)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(server.kill)
    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            with socket.create_connection(("127.0.0.1", number)):
                return number
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("moto_server did not start")


@functools.cache
def client(keys, region):
    """botocore's, which asks moto itself."""
    return botocore.session.Session().create_client(
        "s3", region, endpoint_url=f"http://127.0.0.1:{port(keys, region)}",
        aws_access_key_id=keys[0], aws_secret_access_key=keys[1])
