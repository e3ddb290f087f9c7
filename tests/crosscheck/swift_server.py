"""OpenStack Swift with its S3 interface, all servers in one process, on a free
port of the loopback that it prints, until standard input ends:

    swift_server.py FOLDER REGION KEY SECRET
"""
import pathlib
import socket
import sys

import eventlet
import eventlet.wsgi
from swift.common import ring, utils, wsgi
from swift.common.ring import builder

SERVERS = ("account", "container", "object")
SERVER = """[DEFAULT]
swift_dir = {folder}
devices = {folder}
mount_check = false
user = root
log_level = CRITICAL
disable_fallocate = true
fallocate_reserve = 0
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
# tempauth asks a cache that need not be there.
PROXY = """[DEFAULT]
swift_dir = {folder}
log_level = CRITICAL
[pipeline:main]
pipeline = catch_errors cache listing_formats bulk s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
location = {region}
s3_acl = false
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user} = {secret} .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


def write_ring(path, port):
    made = builder.RingBuilder(2, 1, 0)
    made.add_dev({"id": 0, "region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1",
                  "port": port, "device": "disk"})
    made.rebalance()
    made.get_ring().save(str(path))


def serve(folder, name, text, listening):
    conf = folder / f"{name}.conf"
    conf.write_text(text)
    app = wsgi.loadapp(str(conf), global_conf={"log_name": name})
    eventlet.spawn_n(eventlet.wsgi.server, listening, app, utils.NullLogger(),
                     protocol=wsgi.SwiftHttpProtocol, max_size=1000)


def main(folder, region, key, secret):
    folder = pathlib.Path(folder).resolve()
    (folder / "disk").mkdir()
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_prefix = p\n"
                                       "swift_hash_path_suffix = s\n")
    utils.SWIFT_CONF_FILE = str(folder / "swift.conf")
    utils.validate_configuration()
    eventlet.patcher.monkey_patch(all=False, socket=True, select=True, thread=True)
    listening = {name: eventlet.listen(("127.0.0.1", 0)) for name in (*SERVERS, "proxy")}
    for name in SERVERS:
        write_ring(folder / f"{name}.ring.gz", listening[name].getsockname()[1])
    for name in SERVERS:
        serve(folder, name, SERVER.format(folder=folder, name=name), listening[name])
    account, user = key.split(":")
    serve(folder, "proxy", PROXY.format(folder=folder, region=region, account=account, user=user,
                                        secret=secret), listening["proxy"])
    print(listening["proxy"].getsockname()[1], flush=True)
    eventlet.tpool.execute(sys.stdin.read)


main(*sys.argv[1:])
