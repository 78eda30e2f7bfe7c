"""The examples as programs, on servers of each kind: local, behind Sentinel, in a cluster."""

import re
import socket
import textwrap
from pathlib import Path

import pytest

from applications import IOREDIS, NODE_REDIS, PROGRAMS, PYPI_IS_REQUIRED, Row, named, on, python
from packages import IS_DEBIAN, ROOT
from servers import Address, free_port, wait_for

PAGE = (ROOT / "docs/clients.md").read_text()
REFUSED = "503 Retry-After: 1\n"
# The others are applications, too.
SMALLEST = named("valkey_py", "phpredis", "redis_rb", "redigo", "redis_rs")


def python_program(file):
    return on([Row(file, python("redis"), f"$PYTHON {file}", file)], "program")


@on(PROGRAMS, "program")
def test_each_program_decides_as_redis_does_and_prints_what_the_page_shows(program, server):
    assert f"Each prints:\n\n{textwrap.indent(program.output(server.port), '    ')}\n" in PAGE


# A program that took a text, or what is missing, for 0 would pass each call.
OTHERS = b"-WRONGTYPE no\r\n", b"*0\r\n", b"*4\r\n:0\r\n:3\r\n:2\r\n:-1\r\n", b"*5\r\n" + 5 * b"$1\r\n0\r\n"


@on(PROGRAMS, "program", REDIS_TIMEOUT=60)
def test_a_program_is_refused_where_no_server_decides_and_says_why(program, server):
    address = Address(server)
    # A limit of 0, for which no wait would help, is an answer. Further calls may have to wait for a new connection.
    for reply in *OTHERS, b"*5\r\n:1\r\n:0\r\n:0\r\n:-1\r\n:0\r\n":
        address.fates("CL.", reply)
        first = re.search(r"^\d{3} .*\n", said := program.output(address.port), re.M)[0]
        assert first.startswith("403 X-RateLimit-Limit: 0,") if reply not in OTHERS else first == REFUSED, said
        assert reply != OTHERS[0] or "WRONGTYPE" in said, said
    server("CONFIG SET requirepass secret")
    # A listener whose queue is full answers no further connection.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        for port, why in (full.getsockname()[1], ""), (free_port(), ""), (server.port, "uthenticat"):
            said = program.output(port, REDIS_TIMEOUT=2)
            assert said.count(REFUSED) == 5 and why in said, said


@on(SMALLEST, "program", REDIS_TIMEOUT=2)
def test_each_smallest_call_is_made_once_and_leaves_its_connection_after_an_error(program, server):
    """The first call gets a replica's error, as after a failover. The second and the third take a token each, without
    an answer, and the fourth takes the last one."""
    address = Address(server)
    address.fates("CL.THROTTLE", b"-READONLY no\r\n", "lost", "broken off")
    shown = re.findall(r"^(\d{3}) .*?(?:Remaining: (\d),.*)?$", program.output(address.port), re.M)
    assert shown == [*3 * [("503", "")], ("200", "0"), ("413", "0")]
    # redigo has a connection for each call.
    assert address.accepted >= 4


def edited(old, new, *names):
    return on([row._replace(edits=((row.files, old, new),)) for row in named(*names)], "program")


@edited("1, 1, 4]", "-3, 1]", "phpredis", "redis_rb")
def test_a_program_gives_no_tokens_back_by_a_quantity_below_zero_and_names_it(program, server):
    with pytest.raises(AssertionError, match="quantity cannot be -3"):
        program.output(server.port)


@edited("'user123'", "null", "node_redis", "ioredis")
def test_a_key_in_node_js_is_a_text(program, server):
    with pytest.raises(AssertionError, match="a key is a text"):
        program.output(server.port)


@python_program("sentinel.py")
def test_a_call_through_a_stuck_sentinel_asks_it_once_and_fails(program, server):
    address = Address(server)
    address.fates("", "lost")
    with pytest.raises(AssertionError, match="TimeoutError|No master found"):
        program.output(address.port)
    assert address.accepted == 1


@pytest.mark.skipif(IS_DEBIAN, reason="redis-py 4.3.4 repeats a call in a cluster, whatever its settings")
@python_program("cluster.py")
def test_a_call_in_a_cluster_that_gets_no_answer_takes_once_and_fails_in_time(program, new_server):
    """The node announces a proxy's port as its own, and the proxy loses the answer to the call."""
    node = new_server("--cluster-enabled", "yes")
    node("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    address = Address(node)
    address.fates("CL.THROTTLE", "lost")
    node(f"CONFIG SET cluster-announce-port {address.port}")
    with pytest.raises(AssertionError, match="TimeoutError"):
        program.output(address.port)
    assert node("CL.LOOK user123 2 1 60")[2] == 2


# The page's calls of the two libraries in a cluster, by sixty callers at once.
CLUSTERS = {
    "node-redis": "require('redis').createCluster({ rootNodes: [{ url: process.env.REDIS_URL }] })",
    "ioredis": "new (require('ioredis').Cluster)([process.env.REDIS_URL], { lazyConnect: true })",
    "auto": "new (require('ioredis').Cluster)([process.env.REDIS_URL], { lazyConnect: true, enableAutoPipelining: true })",
}
CALLERS = """
cluster.connect().then(() => Promise.all([...Array(60).keys()].map((number) => throttle(`user:${number}`))))
  .then((replies) => console.log(replies.join('\\n')), console.error).finally(process.exit);
"""


@on([Row(name, NODE_REDIS if name == "node-redis" else IOREDIS, "node program") for name in CLUSTERS], "program")
def test_a_call_of_node_js_in_a_cluster_goes_to_its_node_at_once(program, new_server):
    nodes = [new_server("--cluster-enabled", "yes") for _ in range(3)]
    for number, node in enumerate(nodes):
        node(f"CLUSTER ADDSLOTSRANGE {number * 5461} {number * 5461 + 5460 + number // 2}")
        node(f"CLUSTER MEET 127.0.0.1 {nodes[0].port} {nodes[0].words[nodes[0].words.index('--cluster-port') + 1]}")
    for node in nodes:
        expected = "cluster_state:ok", "cluster_known_nodes:3"
        wait_for("the cluster is up", lambda: all(line in node("CLUSTER INFO") for line in expected))
        node("CONFIG RESETSTAT")
    library = program.row.name.replace("auto", "ioredis")
    call = re.search(rf"^    (cluster\..*)  // {library}$", PAGE, re.M)[1]
    text = f"const cluster = {CLUSTERS[program.row.name]}, throttle = (key) => {call};" + CALLERS
    Path(program.own.name, "program").write_text(text)
    assert program.output(nodes[0].port) == 60 * "0,3,2,-1,60\n"
    assert all(node("DBSIZE") for node in nodes)
    assert not any("MOVED" in str(node("INFO errorstats")) for node in nodes)


# Two libraries without an example, each by the call on the page.
HIREDIS = """
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    struct timeval timeout = {2, 0};
    char key[] = "user\\0x";
    size_t length = sizeof key - 1;
    redisContext *context = redisConnectWithTimeout("127.0.0.1", atoi(getenv("REDIS_AT")), timeout);
    redisSetTimeout(context, timeout);
    redisReply *reply = CALL;
    for (size_t i = 0; reply && i < reply->elements; i++) printf("%lld ", reply->element[i]->integer);
    return !reply;
}
"""
PREDIS = r"""<?php
require 'Predis/Autoloader.php';
Predis\Autoloader::register();
$key = "user\0x";
$client = new Predis\Client(['port' => getenv('REDIS_AT'), 'timeout' => 2, 'read_write_timeout' => 2]);
echo implode(' ', CALL);
"""
PLAIN = {
    Row("hiredis", "ls /usr/include/hiredis", "sh -c 'cc -x c program -lhiredis -o hiredis && ./hiredis'"):
        (HIREDIS, r"redisCommand[^`]*"),
    Row("predis", "ls /usr/share/php/Predis", "php -n program"): (PREDIS, r"\$client->executeRaw[^`]*"),
}


@on(PLAIN, "program")
def test_a_library_without_an_example_calls_once_even_if_the_answer_is_lost(program, server):
    text, call = PLAIN[program.row]
    Path(program.own.name, "program").write_text(text.replace("CALL", re.search(call, PAGE)[0]))
    address = Address(server)
    assert program.output(address.port).split() == ["0", "16", "15", "-1", "2"]
    address.fates("CL.", "lost")
    with pytest.raises(AssertionError):
        program.output(address.port)
    assert server.client.info("commandstats")["cmdstat_cl.throttle"]["calls"] == 2


@on([Row("own_tests.py", python("redis, pytest"), "$PYTHON -m pytest own_tests.py", "own_tests.py")], "program")
def test_an_applications_tests_have_a_server_of_their_own(program):
    assert "2 passed" in program.output(0, RUN=ROOT / "scripts/run")


# Users move here from these two libraries, which import PyPI's `limits`.
MOVED = Row("moved", python("flask_limiter, slowapi"), python("flask_limiter, slowapi, flask_app, fastapi_app"),
            "flask_app.py fastapi_app.py", is_required=PYPI_IS_REQUIRED)


@on([MOVED], "program")
def test_the_copies_hide_no_library(program, server):
    assert program.output(server.port) == ""
