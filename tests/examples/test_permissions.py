"""The permissions that docs/operating.md lists for each client library in a cluster."""

import os
import re
import subprocess
import sys

import pytest

from applications import PHP_IS_REQUIRED, is_found
from packages import IS_DEBIAN, NODE, PYTHON, ROOT
from servers import wait_for

PAGE = (ROOT / "docs/operating.md").read_text()
BASE = re.search(r"ACL SETUSER limiter (.*)", PAGE)[1]
LIBRARIES = ["redis-py 4", "node-redis 4"] if IS_DEBIAN else ["redis-py 8", "node-redis 6", "ioredis 6"]
if PHP_IS_REQUIRED or is_found("php -r 'new Redis();'"):
    LIBRARIES.append("phpredis 5")
# Each program makes one call in the cluster whose node has the port in the first argument, and prints `limit`.
PYTHON_PROGRAM = """
import sys
from redis.cluster import RedisCluster
client = RedisCluster.from_url(f"redis://limiter:secret@127.0.0.1:{sys.argv[1]}")
print(client.execute_command("CL.THROTTLE", "limit:a", 15, 30, 60)[1])
"""
NODE_REDIS_PROGRAM = """
const rootNodes = [{ url: `redis://127.0.0.1:${process.argv[1]}` }];
const client = require('redis').createCluster({ rootNodes, defaults: { username: 'limiter', password: 'secret' } });
client.on('error', () => {});
client.connect().then(() => client.sendCommand('limit:a', false, ['CL.THROTTLE', 'limit:a', '15', '30', '60']))
  .then((reply) => { console.log(reply[1]); process.exit(); }, (error) => { console.error(error); process.exit(1); });
"""
IOREDIS_PROGRAM = """
const redisOptions = { username: 'limiter', password: 'secret' };
const nodes = [{ host: '127.0.0.1', port: process.argv[1] }];
const client = new (require('ioredis').Cluster)(nodes, { redisOptions, clusterRetryStrategy: null });
client.on('error', () => {});
client.eval("return redis.call('CL.THROTTLE', KEYS[1], unpack(ARGV))", 1, 'limit:a', 15, 30, 60)
  .then((reply) => { console.log(reply[1]); process.exit(); }, (error) => { console.error(error); process.exit(1); });
"""
PHP_PROGRAM = """
$client = new RedisCluster(null, ['127.0.0.1:' . $argv[1]], 60, 60, false, ['limiter', 'secret']);
echo $client->rawCommand('limit:a', 'CL.THROTTLE', 'limit:a', 15, 30, 60)[1];
"""
PROGRAMS = {
    "redis-py": [sys.executable, "-c", PYTHON_PROGRAM],
    "node-redis": ["node", "-e", NODE_REDIS_PROGRAM, "--"],
    "ioredis": ["node", "-e", IOREDIS_PROGRAM, "--"],
    "phpredis": ["php", "-r", PHP_PROGRAM, "--"],
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_works_in_a_cluster_with_the_permissions_on_the_page_and_not_with_fewer(library, new_server):
    # A node that is alone does not know its address.
    node = new_server("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
    node("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    more = re.search(rf"^\* .*{library}.*: `(.*)`$", PAGE, re.M)[1]
    environment = {**os.environ, "NODE_PATH": NODE, "PYTHONPATH": PYTHON}
    for permissions, is_enough in [(BASE, False), (f"{BASE} {more}", True)]:
        node(f"ACL SETUSER limiter reset {permissions}")
        command = [*PROGRAMS[library.split()[0]], str(node.port)]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (said.stdout.strip() == "16") == is_enough, f"{permissions}: {said}"
