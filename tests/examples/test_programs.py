"""The examples as programs, on servers of each kind: local, behind Sentinel, in a cluster, over TLS; and the page."""

import json
import re
import socket

import pytest

from applications import PROGRAMS, Row, named, on, python
from packages import HERE, IS_DEBIAN, ROOT
from servers import Address, fates, free_port, saying, wait_for

PAGE = (ROOT / "docs/clients.md").read_text()
# The lines that each prints: three at once and one a minute, and a last call that asks for four.
ANSWERS = PAGE.split("Each prints:\n\n")[1].split("\n\n")[0].replace("    ", "") + "\n"
REFUSED = "503 Retry-After: 1\n"
# The others are applications, too.
SMALLEST = named("phpredis", "predis", "redis_rb", "redigo", "redis_rs")


def python_program(file):
    return on([Row(file, python("redis"), f"$PYTHON {file}")], "program")


@on(PROGRAMS, "program", TIMEOUT=3600)
def test_each_program_decides_as_redis_does_and_prints_what_the_page_shows(program, server):
    assert program.output(server.port) == ANSWERS


@on(PROGRAMS, "program", TIMEOUT=2, FAIL="closed")
def test_a_program_is_refused_where_no_server_decides_and_says_why(program, server):
    # A listener whose queue is full answers no further connection.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        for nobody in full.getsockname()[1], free_port():
            assert program.output(nobody).count(REFUSED) == 5
    server("CONFIG SET requirepass secret")
    said = program.output(server.port)
    assert said.count(REFUSED) == 5 and "uthenticat" in said, said


# A program that takes what is missing for 0 would pass each call.
@on(SMALLEST, "program", TIMEOUT=60)
def test_a_program_takes_no_reply_of_another_shape_and_answers_a_closed_plan_by_403(program, server):
    address = Address(server)
    others = b"*0\r\n", b"*4\r\n:0\r\n:3\r\n:2\r\n:-1\r\n", b"*5\r\n" + 5 * b"$-1\r\n", b"-WRONGTYPE no\r\n"
    # A limit of 0: no wait would help.
    address.filter = saying(*others, b"*5\r\n:1\r\n:0\r\n:0\r\n:-1\r\n:0\r\n")
    said = program.output(address.port)
    closed = "403 X-RateLimit-Limit: 0, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 0\n"
    assert said.count(REFUSED) == 4 and said.endswith(closed) and "WRONGTYPE" in said, said


@on(SMALLEST, "program", TIMEOUT=2)
def test_each_smallest_call_is_made_once_and_leaves_its_connection_after_an_error(program, new_server):
    """The first connection leads to a replica for ever, as an old one does after a failover behind one address. On the
    server itself, the answer to the second call is lost, and the connection of the third is closed before the server
    has the call. The last call finds one of three tokens: the second has taken its token once."""
    replica, primary = new_server("--replicaof", "127.0.0.1 1"), new_server()
    address = Address(replica, primary)
    address.filter = fates("CL.THROTTLE", None, None, "lost", "unheard")
    shown = [line for line in program.output(address.port).splitlines() if re.match(r"\d{3} ", line)]
    left = "X-RateLimit-Limit: 3, X-RateLimit-Remaining:"
    expected = [REFUSED.strip(), f"200 {left} 2,", REFUSED.strip(), REFUSED.strip(), f"413 {left} 1,"]
    assert len(shown) == 5 and all(line.startswith(begin) for line, begin in zip(shown, expected)), shown


@on(named("phpredis", "predis", "redis_rb"), "program", TIMEOUT=60)
def test_a_program_gives_no_tokens_back_by_a_quantity_below_zero_and_names_it(program, server):
    *words, file = program.row.words.split()
    with pytest.raises(AssertionError, match="quantity cannot be -3"):
        program.output(server.port, f"sed 's/1, 1, 4]/-3, 1]/' {file} | {' '.join(words)}")
    assert server("CL.LOOK user123 2 1 60")[2] == 1


@python_program("pipeline.py")
def test_a_pipeline_makes_each_call_once_and_an_error_is_no_allowed_call(program, server):
    server("RPUSH user:7 x")
    assert program.output(server.port).endswith("allowed: 999 of 1000\n")
    assert server("CL.LOOK user:8 2 1 60")[2] == 2


@python_program("sentinel.py")
def test_a_call_through_a_stuck_sentinel_fails_in_time(program, server):
    server.signal("STOP")
    with pytest.raises(AssertionError, match="TimeoutError|No master found"):
        program.output(1, SENTINEL_PORT=server.port)


# Debian's redis-py 4.3.4 repeats a call in a cluster, whatever its settings.
@pytest.mark.skipif(IS_DEBIAN, reason="redis-py 4.3.4")
@python_program("cluster.py")
def test_a_call_in_a_cluster_that_gets_no_answer_takes_once_and_fails_in_time(program, new_server):
    """The node announces a proxy's port as its own, and the proxy loses the answer to the first call."""
    node = new_server("--cluster-enabled", "yes")
    node("CLUSTER ADDSLOTS", *range(16384))
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    address = Address(node)
    node(f"CONFIG SET cluster-announce-port {address.port}")
    address.filter = fates("CL.THROTTLE", "lost")
    with pytest.raises(AssertionError, match="TimeoutError"):
        program.output(address.port)
    assert node("CL.LOOK {user123}:minute 2 1 60")[2] == 2


@python_program("own_tests.py")
def test_an_applications_tests_have_a_server_of_their_own(program):
    assert "Ran 2 tests" in program.output(0, RUN=ROOT / "scripts/run")


def test_the_page_names_the_version_of_each_library_that_runs_here():
    """The page need not name what only serves or calls the examples."""
    libraries = (HERE / "requirements.txt").read_text().split("\n\n")[0]
    pypi = re.findall(r"^(?!httpx2|uvicorn)(\S+)==(\S+)", libraries, re.M)
    npm = json.loads((HERE / "package.json").read_text())["dependencies"].items()
    rust = re.findall(r'name = "(redis)"\nversion = "(\S+)"', (ROOT / "Cargo.lock").read_text())
    table = " ".join(line for line in PAGE.splitlines() if line.startswith("|"))
    missing = {name: version for name, version in [*pypi, *npm, *rust] if version not in re.split("[ ,]", table)}
    assert not missing, "write these versions, which run here, into the table of docs/clients.md"


@on(named("node_redis.js", "ioredis.js"), "program")
def test_limits_js_passes_its_tests(program, server):
    # An hour is longer than any machine takes: Redis decides each call.
    words = f"CLIENT=./{program.row.name} node --test $TESTS/limits.test.js"
    program.output(server.port, words, TIMEOUT=3600)
