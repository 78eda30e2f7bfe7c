"""Libraries that clients.md names without a program of their own, by the calls that the page shows."""

import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from applications import IOREDIS, NGINX_EDITS, NODE_REDIS, Row, named, on, python
from packages import IS_DEBIAN, ROOT
from servers import Address, wait_for

PAGE = (ROOT / "docs/clients.md").read_text()
HIREDIS = f"""
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {{
    struct timeval timeout = {{2, 0}};
    char key[] = "user\\0x";
    size_t length = sizeof key - 1;
    redisContext *context = redisConnectWithTimeout("127.0.0.1", atoi(getenv("REDIS_AT")), timeout);
    redisSetTimeout(context, timeout);
    redisReply *reply = {re.search(r"redisCommand[^`]*", PAGE)[0]};
    for (size_t i = 0; reply && i < reply->elements; i++) printf("%lld ", reply->element[i]->integer);
    puts(reply ? "" : "no answer");
}}
"""
CALL = "CL.THROTTLE user\0x 15 30 60"
VALKEY = f"""
import os, valkey
try:
    client = valkey.Valkey(port=int(os.environ["REDIS_AT"]), socket_timeout=2)
    print(*client.execute_command(*{CALL.split(" ")}))
except valkey.TimeoutError:
    print("no answer")
"""
GLIDE = f"""
import asyncio, os, glide
async def main():
    nodes = [glide.NodeAddress("127.0.0.1", int(os.environ["REDIS_AT"]))]
    client = await glide.GlideClient.create(glide.GlideClientConfiguration(nodes, request_timeout=2000))
    try:
        print(*await client.custom_command({CALL.split(" ")}))
    except glide.TimeoutError:
        print("no answer")
asyncio.run(main())
"""
# Without a cluster, and with the settings of ioredis.js.
IOVALKEY = f"""
const Redis = require('iovalkey');
const client = new Redis({{ port: process.env.REDIS_AT, commandTimeout: 2000, maxRetriesPerRequest: 0 }});
client.call(...{CALL.split(" ")})
  .then((reply) => console.log(...reply), () => console.log('no answer')).finally(process.exit);
"""
LIBRARIES = [
    Row("hiredis", "ls /usr/include/hiredis", "sh -c 'cc -x c program -lhiredis -o hiredis && ./hiredis'"),
    Row("valkey", python("valkey"), "$PYTHON program", is_required=not IS_DEBIAN),
    Row("glide", python("glide"), "$PYTHON program", is_required=not IS_DEBIAN),
    Row("iovalkey", "node -e 'require(\"iovalkey\")'", "node program", is_required=not IS_DEBIAN),
]
PROGRAMS = {"hiredis": HIREDIS, "valkey": VALKEY, "glide": GLIDE, "iovalkey": IOVALKEY}


@on(LIBRARIES, "program")
def test_a_library_calls_once_even_if_the_answer_is_lost(program, server):
    Path(program.own.name, "program").write_text(PROGRAMS[program.row.name])
    address = Address(server)
    assert program.output(address.port).split() == ["0", "16", "15", "-1", "2"]
    address.fates("CL.", "lost")
    # glide's own log comes before.
    assert program.output(address.port).endswith("no answer\n")
    assert server.client.info("commandstats")["cmdstat_cl.throttle"]["calls"] == 2


CLUSTER = """
const [port, key, failed] = [process.env.REDIS_AT, (number) => `user:${number}`, (error) => { throw error; }];
(async () => {
  const { Cluster } = require('ioredis'), { createCluster } = require('redis');
  const cluster = process.env.LIBRARY === 'ioredis' ? new Cluster([{ host: '127.0.0.1', port }], { OPTIONS })
    : createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }).on('error', failed);
  if (process.env.LIBRARY !== 'ioredis') await cluster.connect();
  const replies = await Promise.all([...Array(60).keys()].map((number) => throttle(cluster, key(number))));
  console.log(replies.filter(([limited, , remaining]) => limited === 0 && remaining === 2).length);
  process.exit();
})();
"""


@on([Row("ioredis", IOREDIS, "LIBRARY=ioredis node program"), Row("node-redis", NODE_REDIS, "node program")], "program")
@pytest.mark.parametrize("options", ["", "enableAutoPipelining: true"])
def test_a_call_in_a_cluster_goes_to_its_node_at_once(program, new_server, options):
    nodes = [new_server("--cluster-enabled", "yes") for _ in range(3)]
    for number, node in enumerate(nodes):
        node(f"CLUSTER ADDSLOTSRANGE {number * 5500} {min(number * 5500 + 5499, 16383)}")
        node(f"CLUSTER MEET 127.0.0.1 {nodes[0].port} {nodes[0].words[nodes[0].words.index('--cluster-port') + 1]}")
    for node in nodes:
        expected = "cluster_state:ok", "cluster_known_nodes:3"
        wait_for("the cluster is up", lambda: all(line in node("CLUSTER INFO") for line in expected))
        node("CONFIG RESETSTAT")
    call = re.search(rf"^    (cluster\..*)  // {program.row.name}$", PAGE, re.M)[1]
    text = f"const throttle = (cluster, key) => {call};" + CLUSTER.replace("OPTIONS", options)
    Path(program.own.name, "program").write_text(text)
    assert program.output(nodes[0].port) == "60\n"
    assert all(node("DBSIZE") for node in nodes)
    assert not any("MOVED" in str(node("INFO errorstats")) for node in nodes)


def test_nginx_tells_a_limited_client_of_grpc_that_a_resource_is_exhausted(start, server):
    section = re.search(r"^\* For gRPC, .*?^$", PAGE, re.M | re.S)[0]
    error_page, *answer = re.findall(r"`([^`]*;)`", section)
    limited = f"""
        location /grpc {{
            rewrite_by_lua_block {{ check("grpc", {{ 0, 1, 86400 }}) }}
            {error_page}
            grpc_pass grpc://127.0.0.1:1;
        }}
        location @limited {{ {" ".join(answer)} }}
        location = /health"""
    edits = *NGINX_EDITS, ("nginx.conf", "backlog=1024;", "http2;"), ("nginx.conf", "\n        location = /health", limited)
    app = start(named("nginx")[0]._replace(edits=edits), server)
    url = f"http://127.0.0.1:{app.http_port}/grpc"
    call = "curl", "-s", "--http2-prior-knowledge", "-i", "-X", "POST", "-H", "Content-Type: application/grpc", url
    first, second = (subprocess.run(call, stdout=subprocess.PIPE, text=True).stdout for _ in range(2))
    assert "grpc-status" not in first
    assert "grpc-status: 8\n" in second and "content-type: application/grpc\n" in second


@on(named("flask", "fastapi", "express", "express_4", "nginx"), REDIS_TIMEOUT=1)
def test_a_connection_that_a_frozen_server_never_greets_is_left(app, server, new_server):
    accepted = app.address.accepted
    server.process.send_signal(signal.SIGSTOP)
    # The system accepts a connection for the frozen server, which answers nothing on it.
    frozen = lambda: app.passed(1, app.caller(), closed=True) == 0 and app.address.accepted > accepted
    wait_for("another connection is opened", frozen)
    other = new_server()
    app.address.lead_to(other)
    app.finds(other)


# A project of ES modules has the copy under the name that the page says.
ES_MODULE = """
import { answer, close, ready, throttle } from './copy.cjs';
await ready;
for (const key of [undefined, null, 7, { id: 7 }]) await throttle(key, 2, 1, 60).catch(({ name }) => console.log(name));
console.log(answer(await throttle('user', 2, 1, 60))[0]);
close();
"""


@on(named("node_redis", "ioredis"), "program", REDIS_TIMEOUT=5)
def test_a_module_of_node_js_takes_texts_as_keys_and_lets_its_process_end(program, server):
    file = program.row.words.removeprefix("node ")
    Path(program.own.name, "program.mjs").write_text(ES_MODULE)
    run = lambda port, words: program.output(port, f"timeout 120 {words}")
    assert run(server.port, f"sh -c 'cp {file} copy.cjs && node program.mjs'") == "TypeError\n" * 4 + "200\n"
    assert server("KEYS *") == ["user"]
    # While the connection is being made; with no server; with one that answers nothing.
    close = f"node -e 'require(\"./{file}\").close()'"
    assert run(server.port, close) == ""
    run(1, close)
    server.process.send_signal(signal.SIGSTOP)
    run(server.port, close)


# The page has this setting for asyncio; Debian's redis-py does not know it.
ASYNCIO = named("fastapi")[0]
ASYNCIO = ASYNCIO._replace(words=("" if IS_DEBIAN else "REDIS_URL=$REDIS_URL?protocol=2 ") + ASYNCIO.words)


@on([*named("flask", "express", "express_4", "nginx"), ASYNCIO])
def test_a_connection_that_ended_while_idle_costs_no_call(app, server):
    accepted = app.address.accepted
    server("CLIENT KILL TYPE normal")
    # The client has heard of the end, too.
    carried = lambda: [thread for thread in threading.enumerate() if "carry" in thread.name]
    if "express" in app.row.name:
        wait_for("another connection is opened", lambda: app.address.accepted > accepted)
        app.finds(server)
        server("CLIENT KILL TYPE normal")
        # A call opens the next one. It stays when the client's own time has come, in a tenth of a second. node-redis
        # 4.5.1 connects by itself as well.
        app.finds(server)
        time.sleep(0.5)
        assert app.address.accepted == accepted + 2 or IS_DEBIAN and app.row.name == "express"
    else:
        wait_for("the end of all connections", lambda: not carried())
        assert app.passed(1, app.caller(), closed=True) == 1
