"""The examples as programs: decisions, outages, mistakes, many callers; behind Sentinel and in a cluster."""

import re
import socket
import subprocess
from pathlib import Path
from signal import SIGSTOP

import pytest

from applications import Row, node, on, python
from packages import IS_DEBIAN, ROOT
from servers import WITH_THE_TEST, Address, free_port, library, wait_for

PAGE = (ROOT / "docs/clients.md").read_text()
PROGRAMS = {row.name: row for row in (
    Row("redis_py", python("redis"), "$PYTHON redis_py.py"),
    Row("redis_asyncio", python("redis"), "$PYTHON redis_asyncio.py"),
    Row("node_redis", node("redis"), "node node_redis.js"),
    Row("ioredis", node("ioredis"), "node ioredis.js"),
    Row("phpredis", "php -r 'new Redis();'", "php php_redis.php"),
    Row("redis_rb", "ruby -e 'require \"redis\"'", "ruby redis_rb.rb"),
    # scripts/test does not install Go, which is large.
    Row("redigo", "go list github.com/gomodule/redigo/redis", "go run redigo.go", is_required=False),
    Row("redis_rs", "cargo --version",
        f"${{REDIS_RS:-cargo run --quiet --profile test --manifest-path {ROOT}/Cargo.toml --example redis_rs}}"),
)}


def programs(*names, **environment):
    """Parametrizes a test with these programs, or with all."""
    return on([PROGRAMS[name] for name in names or PROGRAMS], "program", **environment)


def replies(said):
    """Returns the replies that a program has printed, five integers each."""
    return [[*map(int, five.split())] for five in re.findall(r"-?\d+(?: -?\d+){4}", re.sub(r"[][, ]+", " ", said))]


@programs()
def test_each_program_makes_four_calls_and_prints_what_the_page_shows(program, server):
    (shown,) = re.findall(r"\n\n((?:    \[.*\]\n)+)\n", PAGE)
    assert len(replies(shown)) == 4 and replies(program.output(server.port)) == replies(shown)


# A program that reads a string or a missing number as 0 would allow every call.
OTHERS = b"-WRONGTYPE no\r\n", b"*0\r\n", b"*4\r\n:0\r\n:3\r\n:2\r\n:-1\r\n", b"*5\r\n" + 5 * b"$1\r\n0\r\n", b"\0\r\n"


@programs()
def test_a_reply_of_an_unexpected_shape_is_no_answer_and_a_limit_of_0_is_one(program, server):
    address = Address(server)
    for reply in OTHERS:
        address.fates("CL.", *4 * [reply])
        said = program.output(address.port, REDIS_TIMEOUT=0.5)
        assert not replies(said) and (reply != OTHERS[0] or "WRONGTYPE" in said), said
    address.fates("CL.", b"*5\r\n:1\r\n:0\r\n:0\r\n:-1\r\n:0\r\n")
    assert replies(program.output(address.port, REDIS_TIMEOUT=60))[0] == [1, 0, 0, -1, 0]


@programs(REDIS_TIMEOUT=0.1)
def test_a_program_that_no_server_answers_exits_and_says_why(program, server):
    server("CONFIG SET requirepass secret")
    if program.row.name == "redigo":
        # Without a timeout, Go waits ten seconds for TLS: this test would time out.
        program.edit("redigo.go", "call < 4", "call < 99")
    # One listener accepts connections and is silent. The other one accepts no more, because its queue is full.
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silent, \
            socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        silent, full = silent.getsockname()[1], full.getsockname()[1]
        # redis_rs is compiled without TLS, which would need OpenSSL.
        tls = () if program.row.name == "redis_rs" else (("rediss", silent, ""),)
        refused = ("redis", free_port(), ""), ("redis", server.port, "uthenticat")
        for scheme, port, why in ("redis", silent, ""), ("redis", full, ""), *tls, *refused:
            said = program.output(port, REDIS_URL=f"{scheme}://127.0.0.1:{port}")
            assert not replies(said) and why in said and ": undefined" not in said, (scheme, port, said)


@programs(REDIS_TIMEOUT=2)
def test_after_a_failure_the_connection_is_dropped_and_the_call_is_not_retried(program, server):
    address = Address(server)
    # After a reply, two calls get a replica's error, as after a failover. The last call is on a third connection.
    address.fates("CL.THROTTLE", b"*5\r\n:0\r\n:3\r\n:2\r\n:-1\r\n:60\r\n", *2 * [b"-READONLY no\r\n"])
    assert len(replies(program.output(address.port))) == 2 and address.accepted >= 3
    # Two calls without a reply take a token each.
    server("DEL user123")
    address.fates("CL.THROTTLE", "lost", "broken off")
    assert [reply[0] for reply in replies(program.output(address.port))] == [0, 1]


# A missing key, in each language that compiles such a call.
NO_KEY = {"redis_py": "None", "redis_asyncio": "None", "node_redis": "null", "ioredis": "null", "phpredis": "null",
          "redis_rb": "nil"}


@programs(*NO_KEY)
def test_a_callers_mistake_raises_its_own_error_and_is_not_taken_for_an_outage(program):
    """There is no server. A call to it would say that Redis did not decide."""
    name, file = program.row.name, program.row.words.split()[1]
    call = re.search("([\"'])user123.*60", Path(program.folder, file).read_text())[0]
    mistakes = [f"{NO_KEY[name]}, 2, 1, 60", f"{call}, 1.5"]
    # In Python and Node.js, a negative quantity is a refund.
    for mistake in mistakes + [f"{call}, -3"] * (name in ("phpredis", "redis_rb")):
        program.edit(file, call, mistake)
        with pytest.raises(AssertionError, match="TypeError|ArgumentError|ValueError") as raised:
            program.output(free_port())
        assert "did not decide" not in str(raised.value)
        program.edit(file, mistake, call)


@programs("redis_py")
def test_a_time_limit_of_the_application_such_as_celerys_is_not_taken_for_an_outage(program, server):
    server.process.send_signal(SIGSTOP)
    with pytest.raises(AssertionError, match="SoftTimeLimitExceeded\n"):
        program.drive("""import redis_py, signal
class SoftTimeLimitExceeded(Exception): pass
def stop(*_): raise SoftTimeLimitExceeded
signal.signal(signal.SIGALRM, stop)
signal.alarm(1)
redis_py.throttle("user123", 2, 1, 60)""", server.port)


NODE_IDLE = """const limits = require('./%s.js'), { once } = require('events');
(async () => {
  console.log(await limits.throttle('user123', 2, 1, 60));
  limits.client.%s.catch(() => {});
  await once(limits.client, '%s');
  console.log(await limits.throttle('user123', 2, 1, 60));
  limits.close();
})();"""
KILL = "'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no'"
IDLE = {
    "redis_asyncio": """import asyncio, redis_asyncio, redis_py
async def main():
    client = redis_asyncio.connect()
    print(await redis_asyncio.throttle(client, "user123", 2, 1, 60))
    redis_py.client.client_kill_filter(_type="normal")
    await asyncio.sleep(0.1)
    print(await redis_asyncio.throttle(client, "user123", 2, 1, 60))
asyncio.run(main())""",
    "node_redis": NODE_IDLE % ("node_redis", f"sendCommand([{KILL}])", "error"),
    "ioredis": NODE_IDLE % ("ioredis", f"call({KILL})", "close"),
}


@programs(*IDLE)
def test_a_connection_that_was_closed_while_idle_does_not_fail_a_call(program, server):
    assert len(replies(program.drive(IDLE[program.row.name], server.port))) == 2


@programs("redigo")
def test_of_60_concurrent_calls_in_go_three_pass_with_at_most_20_connections(program, server):
    address = Address(server)
    # Each reply is late, so all calls wait at once. A connection may still be closing when the next one opens.
    server("CONFIG SET maxclients 41")
    address.fates("CL.", *60 * ["late"])
    call = 'fmt.Println(throttle(pool, timeout, "user123", 2, 1, 60, 1))'
    program.edit("redigo.go", call, f"""done := make(chan bool)
for i := 0; i < 60; i++ {{ go func() {{ {call}; done <- true }}() }}
for i := 0; i < 60; i++ {{ <-done }}""")
    program.edit("redigo.go", "call < 4", "call < 1")
    said = program.output(address.port)
    assert sorted(reply[0] for reply in replies(said)) == 3 * [0] + 57 * [1], said


@programs("redis_py")
def test_an_applications_tests_have_a_server_of_their_own(program):
    program.row = program.row._replace(words="$PYTHON -m pytest own_tests.py")
    assert "1 passed" in program.output(MODULE=library())


def python_example(file):
    return on([Row(file, python("redis"), f"$PYTHON {file}")], "program", REDIS_TIMEOUT=2)


@python_example("sentinel.py")
def test_a_stuck_sentinel_is_asked_once(program, server):
    address = Address(server)
    address.fates("", "lost")
    assert "did not decide" in program.output(address.port) and address.accepted == 1


@python_example("sentinel.py")
def test_behind_sentinel_threads_and_tasks_share_20_connections_each(program, server, request, tmp_path):
    settings, port, address = tmp_path / "sentinel.conf", free_port(), Address(server)
    settings.write_text(f"port {port}\nsentinel monitor limits 127.0.0.1 {address.port} 1\n")
    request.addfinalizer(subprocess.Popen([*WITH_THE_TEST, "KILL", "redis-server", settings, "--sentinel"]).kill)
    wait_for("Sentinel has connected", lambda: len(server.client.client_list()) > 2)
    # Sentinel and this test have three more.
    server("CONFIG SET maxclients 43")
    address.fates("CL.", *120 * ["late"])
    said = program.drive("""import asyncio, redis_asyncio, sentinel
from concurrent.futures import ThreadPoolExecutor
from redis_py import throttle
with ThreadPoolExecutor(60) as threads:
    print(*threads.map(lambda _: throttle("user123", 2, 1, 60), range(60)))
async def main():
    client = sentinel.connect()
    print(*await asyncio.gather(*(redis_asyncio.throttle(client, "user123", 2, 1, 60) for _ in range(60))))
asyncio.run(main())""", port, REDIS_TIMEOUT=60)
    assert sorted(reply[0] for reply in replies(said)) == 3 * [0] + 117 * [1], said


@pytest.mark.skipif(IS_DEBIAN, reason="redis-py 4.3.4 repeats a call in a cluster, whatever its settings")
@python_example("cluster.py")
def test_a_call_in_a_cluster_that_gets_no_answer_takes_its_token_once(program, new_server):
    """The node announces the port of a proxy, which loses the reply."""
    node = new_server("--cluster-enabled", "yes")
    node("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    address = Address(node)
    address.fates("CL.THROTTLE", "lost")
    node(f"CONFIG SET cluster-announce-port {address.port}")
    assert "did not decide" in program.output(address.port)
    assert node("CL.LOOK user123 2 1 60")[2] == 2
