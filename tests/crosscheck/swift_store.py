"""OpenStack Swift (Debian) with its S3 interface, which verifies signatures by
itself; scripts/install_swift.sh fetches it."""
import atexit
import functools
import os
import pathlib
import subprocess
import tempfile

import botocore.session
from botocore.config import Config

HERE = pathlib.Path(__file__).parent
PROGRAM = HERE / "swift_server.py"


@functools.cache
def port(keys, region):
    """Of the one that runs from now on until this process ends."""
    root = pathlib.Path(subprocess.run([HERE / "../../scripts/install_swift.sh"], check=True,
                                       stdout=subprocess.PIPE, text=True).stdout.strip())
    folder = tempfile.TemporaryDirectory()
    libraries = ":".join(map(str, root.glob("usr/lib/*-linux-gnu")))
    server = subprocess.Popen(
        ["/usr/bin/python3", "-P", PROGRAM, folder.name, region, *keys[:2]],
        env={**os.environ, "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
             "LD_LIBRARY_PATH": libraries},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(folder.cleanup)
    atexit.register(server.wait)
    atexit.register(server.kill)
    line = server.stdout.readline()
    if not line:
        raise RuntimeError("Swift did not start")
    return int(line)


@functools.cache
def client(keys, region):
    """botocore's, which asks Swift itself."""
    return botocore.session.Session().create_client(
        "s3", region, endpoint_url=f"http://127.0.0.1:{port(keys, region)}",
        aws_access_key_id=keys[0], aws_secret_access_key=keys[1],
        config=Config(s3={"addressing_style": "path"}))
