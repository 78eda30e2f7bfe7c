"""The programs in docs/clients and the lines in docs/clients.md, in the situations that their users meet."""

import contextlib
import re
import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from applications import MODULES, NEWEST_ARE_REQUIRED, PHP_IS_REQUIRED, Row, node, on, python
from packages import IS_DEBIAN, ROOT
from servers import WITH_THE_TEST, Address, free_port, library, wait_for

PAGE, OPERATING = ((ROOT / f"docs/{page}.md").read_text() for page in ("clients", "operating"))
# The ACL rules of the user in docs/operating.md, with the key that the programs use.
LIMITER = re.search(r"ACL SETUSER limiter (.*)", OPERATING)[1].replace("limit:*", "user123")
PROGRAMS = {row.name: row for row in (
    Row("redis_py", python("redis"), "$PYTHON redis_py.py"),
    Row("redis_asyncio", python("redis"), "$PYTHON redis_asyncio.py"),
    Row("node_redis", node("redis"), "node node_redis.mjs", MODULES, NEWEST_ARE_REQUIRED),
    Row("ioredis", node("ioredis"), "node ioredis.mjs", MODULES, NEWEST_ARE_REQUIRED),
    Row("phpredis", "php -r 'new Redis();'", "php php_redis.php", is_required=PHP_IS_REQUIRED),
    Row("redis_rb", "ruby -e 'require \"redis\"; require \"connection_pool\"'", "ruby redis_rb.rb"),
    # scripts/test does not install Go, which is large.
    Row("redigo", "go list github.com/gomodule/redigo/redis", "go run redigo.go", is_required=False),
    Row("redis_rs", "cargo --version",
        f"${{REDIS_RS:-cargo run --quiet --profile test --manifest-path {ROOT}/Cargo.toml --example redis_rs}}"),
)}
# Drivers: a command, and a file that loads a program from docs/clients. TEXT stands for code that calls `throttle`.
PYTHON = "$PYTHON driver.py", "import redis, NAME\nfrom NAME import *\nTEXT"
NODE = "node driver.mjs", """import { setTimeout as sleep } from 'node:timers/promises';
import { client, throttle } from './NAME.mjs';
await new Promise((resolve) => client.once('ready', resolve));
TEXT
process.exit();"""
DRIVERS = {
    "redis_py": PYTHON, "redis_asyncio": PYTHON, "node_redis": NODE, "ioredis": NODE,
    "redis_rb": ("ruby driver.rb", "require './redis_rb'\nTEXT"),
    # Go runs `init` before the `main` of redigo.go.
    "redigo": ("go run redigo.go driver.go", """package main
import ("fmt"; "os"; "time")
var pause = 20 * time.Millisecond
func init() {
	TEXT
	os.Exit(0)
}
"""),
}


def programs(*names, **environment):
    """Parametrizes a test with these programs, or with all."""
    return on([PROGRAMS[name] for name in names or PROGRAMS], "program", **environment)


def replies(said):
    """Returns the replies that a program has printed, five integers each."""
    return [[*map(int, five.split())] for five in re.findall(r"-?\d+(?: -?\d+){4}", re.sub(r"[][, ]+", " ", said))]


def run(program, words, text, server, user="", **environment):
    """Writes this text to the file that the words end with, and runs the words instead of the program."""
    Path(program.folder, words.split()[-1]).write_text(text)
    program.row = program.row._replace(words=words)
    return program.output(server, user, **environment)


def drive(program, text, server, **environment):
    """Runs a driver of the program with this text."""
    words, frame = DRIVERS[program.row.name]
    return run(program, words, frame.replace("NAME", program.row.name).replace("TEXT", text), server, **environment)


def lines(words, *replaced):
    """Returns the block of code in docs/clients.md that contains these words, with the test's addresses and paths."""
    (block,) = [block for block in re.findall(r"\n\n((?:(?:    .*)?\n)+)", PAGE) if words in block]
    block = textwrap.dedent(block)
    for old, new in replaced:
        assert old in block
        block = block.replace(old, str(new))
    return block


@programs()
def test_a_program_prints_what_the_page_shows_with_only_the_permissions_on_the_page(program, server):
    server(f"ACL SETUSER limiter {LIMITER}")
    shown = replies(lines("[0, 3, 2, -1, 60]"))
    assert len(shown) == 4 and replies(program.output(server, "limiter:secret@")) == shown


# For each outage: a command for the server, the user in the URL, and a pattern for the program's output.
OUTAGES = {
    "gone": ("SHUTDOWN NOSAVE", "", ""),
    "replica": ("REPLICAOF 127.0.0.1 1", "", "READONLY|read only|read-only"),
    "no_memory": ("CONFIG SET maxmemory 1", "", "OOM|command not allowed"),
    "no_replicas": ("CONFIG SET min-replicas-to-write 1", "", "NOREPLICAS"),
    "forbidden": ("ACL SETUSER limits on >secret ~* +@all -cl.throttle", "limits:secret@", "NOPERM|no permissions"),
    "wrong_password": ("CONFIG SET requirepass secret", ":wrong@", "(?i)WRONGPASS|username-password|authentication"),
    "crowded": ("CONFIG SET maxclients 1", "", ""),
}


@pytest.mark.parametrize("outage", OUTAGES)
@programs(REDIS_TIMEOUT=1)
def test_a_program_says_that_redis_did_not_decide_and_why(program, outage, server):
    told, user, why = OUTAGES[outage]
    with contextlib.suppress(redis.ConnectionError):
        server(told)
    said = program.output(server, user)
    assert not replies(said) and said.count("did not decide") == 4 and re.search(why, said), said


@programs()
def test_an_error_that_begins_with_err_is_a_mistake_and_no_outage(program, server):
    server("SET user123 7")
    with pytest.raises(AssertionError, match="the key holds no rate limiter state") as raised:
        program.output(server)
    assert "did not decide" not in str(raised.value)


@programs("redis_py")
def test_python_tells_each_mistake_in_an_argument_from_an_outage(program, server):
    said = drive(program, """
for numbers in (2, 0, 60), (2, 1, 60, 1, 9), (2, 1, None), (2, 1, 60, 1.5), (10**30, 1, 60), (2, 1, 60, 10**5000):
    try:
        print(throttle("user123", *numbers))
    except (redis.RedisError, ValueError) as error:
        print(is_mistake(error) or type(error))
""", server)
    assert said.splitlines() == 5 * ["True"] + ["<class 'ValueError'>"]


@programs()
def test_a_program_uses_the_database_in_its_url_or_none(program, server):
    assert len(replies(program.output(server, path="/3"))) == 4
    server("ACL SETUSER limits on >secret ~* +@all -select")
    with contextlib.suppress(AssertionError):  # redis-rs says that an argument is wrong.
        program.output(server, "limits:secret@", path="/3", REDIS_TIMEOUT=1)
    assert server("INFO keyspace").keys() == {"db3"}


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
@programs()
def test_a_program_waits_for_a_late_server_as_long_as_its_timeout_says(program, scheme, new_server, tmp_path):
    if (program.row.name, scheme) == ("redis_rs", "rediss"):
        return  # It is compiled without TLS, which would need OpenSSL.
    certificate, key, tls = tmp_path / "certificate", tmp_path / "key", free_port()
    words = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -addext subjectAltName=IP:127.0.0.1 -out"
    subprocess.run([*words.split(), certificate, "-keyout", key], check=True, capture_output=True)
    server = new_server("--tls-port", tls, "--tls-auth-clients", "no", "--tls-cert-file", certificate,
                        "--tls-key-file", key, "--tls-ca-cert-file", certificate)
    address = Address(SimpleNamespace(port=tls) if scheme == "rediss" else server)
    program.environment |= dict.fromkeys(["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"], certificate)
    for timeout, decided in (0.1, 0), (60, 4):
        address.fates("", *99 * ["late"])
        said = program.output(address, scheme=scheme, REDIS_TIMEOUT=timeout)
        assert (len(replies(said)), said.count("did not decide")) == (decided, 4 - decided), said
        # Over TLS, the handshake times out, so no call is sent.
        assert server("DEL user123") == bool(decided) or scheme == "redis"


# Drivers that make calls until three are decided, because the clients for Node.js reconnect in the background, and Go's
# pool leaves a replica only after ten seconds. The other programs run as they are, and make four calls.
UNTIL_DECIDED = {"redigo": """
for decided := 0; decided < 3; time.Sleep(pause) {
	reply, err := throttle("user123", 2, 1, 60, 1)
	if err == nil { decided++; fmt.Println(reply) } else { fmt.Println("did not decide:", err) }
}"""}
UNTIL_DECIDED |= dict.fromkeys(("node_redis", "ioredis"), """
for (let decided = 0; decided < 3; await sleep(20)) {
  await throttle('user123', 2, 1, 60).then(
    (reply) => { decided += 1; console.log(reply); }, (error) => console.log(`did not decide: ${error}`));
}""")
# Libraries that stay connected to a demoted server, and to a server that has stopped replying (see docs/clients.md).
STAY_AT_A_REPLICA = "node_redis", "redis_rb", "redis_rs"
STAY_AT_A_SILENT_SERVER = "node_redis", "redis_rs"
# A thread that starts servers, and stays: a server ends together with the thread that started it.
STARTER = ThreadPoolExecutor(1)


def fail_over(server, address, new_server):
    replica = address.server = new_server("--replicaof", f"127.0.0.1 {server.port}")
    wait_for("the replica has the calls", lambda: replica("EXISTS user123"))
    replica("REPLICAOF NO ONE")
    server(f"REPLICAOF 127.0.0.1 {replica.port}")


# What happens during the second call, and how many tokens remain after each call that is decided. A call whose reply is
# lost has taken a token.
FAILURES = {
    "restart": (lambda server, *_: server.restart(), [2, 2, 1]),
    "failover": (fail_over, [2, 1, 0]),
    "broken_off": (lambda *_: "broken off", [2, 0, 0]),
    "silence": (lambda *_: "lost", [2, 0, 0]),
}


@pytest.mark.parametrize("failure", FAILURES)
@programs()
def test_a_program_recovers_from_a_failure_and_repeats_no_call(program, failure, server, new_server):
    name, address, (happens, remaining) = program.row.name, Address(server), FAILURES[failure]
    if failure == "silence" and name in STAY_AT_A_SILENT_SERVER:
        return

    def fate():
        fate = STARTER.submit(happens, server, address, new_server).result()
        if failure == "failover" and name in STAY_AT_A_REPLICA:
            # Do what Sentinel would do.
            server(re.search("`(CLIENT KILL [A-Za-z ]*)`", PAGE)[1])
        return fate

    address.fates("CL.THROTTLE", None, fate)
    program.environment["REDIS_TIMEOUT"] = 2 if failure == "silence" else 60
    said = drive(program, UNTIL_DECIDED[name], address) if name in UNTIL_DECIDED else program.output(address)
    assert "did not decide" in said and [reply[2] for reply in replies(said)] == remaining, said


@programs("phpredis")
def test_a_php_server_follows_a_failover_with_its_next_request(program, server, new_server):
    program.row = program.row._replace(words="php -S 127.0.0.1:$HTTP_PORT php_redis.php")
    program.start(server)
    assert len(replies(program.get("/").body)) == 4
    fail_over(server, program.address, new_server)
    assert len(replies(program.get("/").body)) == 4


AT_ONCE = {
    "redis_py": """from concurrent.futures import ThreadPoolExecutor
print(*ThreadPoolExecutor(200).map(lambda _: throttle("user123", 2, 1, 60), range(200)))""",
    "redis_asyncio": """async def calls():
    client = redis.asyncio.Redis.from_url(URL, **OPTIONS)
    print(*await asyncio.gather(*(throttle(client, "user123", 2, 1, 60) for _ in range(200))))
asyncio.run(calls())""",
    "redis_rb": """calls = 200.times.map { Thread.new { Fiber.new { throttle("user123", 2, 1, 60) }.resume } }
calls.each { |call| p call.value }""",
    "redigo": """done := make(chan []int64)
for i := 0; i < 200; i++ { go func() { reply, _ := throttle("user123", 2, 1, 60, 1); done <- reply }() }
for i := 0; i < 200; i++ { fmt.Println(<-done) }""",
}
AT_ONCE |= dict.fromkeys(("node_redis", "ioredis"), """
const calls = Array.from({ length: 200 }, () => throttle('user123', 2, 1, 60));
console.log(JSON.stringify(await Promise.all(calls)));""")
CONNECTIONS = {"node_redis": 1, "ioredis": 1, "redis_rb": 20}


@programs(*AT_ONCE)
def test_of_200_concurrent_calls_three_pass_and_all_are_decided(program, server):
    address = Address(server)
    # Delay the replies until all calls have been sent.
    address.fates("CL.THROTTLE", *200 * ["late"])
    said = drive(program, AT_ONCE[program.row.name], address, REDIS_TIMEOUT=60)
    limited = [reply[0] for reply in replies(said)]
    assert limited.count(0) == 3 and len(limited) == 200
    assert address.accepted <= CONNECTIONS.get(program.row.name, 200)


@programs("node_redis")
def test_node_redis_keeps_an_idle_connection_and_gives_up_a_silent_one_with_1000_pending_calls(program, server):
    address = Address(server)
    address.fates("CL.THROTTLE", "lost")
    drive(program, """
await sleep(6000); // The program's socketTimeout is five seconds.
const reconnected = new Promise((resolve) => client.once('ready', resolve));
await Promise.allSettled(Array.from({ length: 1000 }, () => throttle('user123', 2, 1, 60)));
setInterval(() => throttle('user123', 2, 1, 60).catch(() => {}), 500); // These calls are not sent.
await reconnected;
await throttle('user123', 2, 1, 60);""", address, REDIS_TIMEOUT=1)
    assert address.accepted == 2


@programs("node_redis")
def test_node_redis_reads_a_reply_that_has_arrived_while_the_event_loop_was_busy(program, server):
    said = drive(program, """const call = throttle('user123', 2, 1, 60);
await new Promise(setImmediate); // The call is sent.
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);
console.log(await call);""", server, REDIS_TIMEOUT=1)
    assert replies(said) == [[0, 3, 2, -1, 60]]


@pytest.mark.skipif(IS_DEBIAN, reason="Node.js 18 cannot require an ES module")
@programs("node_redis", "ioredis")
def test_a_commonjs_file_can_require_a_program(program, server):
    said = run(program, "node user.cjs", f"""const {{ client, throttle }} = require('./{program.row.name}.mjs');
client.once('ready', () => throttle('user123', 2, 1, 60).then(console.log).then(process.exit));""", server)
    assert replies(said) == [[0, 3, 2, -1, 60]]


@pytest.mark.skipif(IS_DEBIAN, reason="the lines are those of redis-py 8")
@programs("redis_py")
def test_the_lines_for_sentinel_find_the_primary_with_passwords(program, server, request, tmp_path):
    server("ACL SETUSER limits on >secret ~* +@all")
    server("CONFIG SET requirepass secret")
    settings, port = tmp_path / "sentinel.conf", free_port()
    settings.write_text(f"port {port}\nrequirepass sentinels\nsentinel monitor limits 127.0.0.1 {server.port} 1\n"
                        "sentinel auth-pass limits secret\n")
    request.addfinalizer(subprocess.Popen([*WITH_THE_TEST, "KILL", "redis-server", settings, "--sentinel"]).kill)
    wait_for("Sentinel listens", lambda: not subprocess.call(["redis-cli", "-p", str(port), "PING"]))
    text = lines("sentinel import", ("10.0.0.1\", 26379", f"127.0.0.1\", {port}"), ("for Sentinel", "sentinels"))
    assert replies(drive(program, text + "print(throttle('user123', 2, 1, 60))", server)) == [[0, 3, 2, -1, 60]]


# Programs that make a call in a cluster. LINE stands for the library's line in docs/clients.md.
CLUSTER = {
    "redis_py": ("$PYTHON driver.py", """import redis, redis_py
LINE
print(redis_py.throttle("user123", 2, 1, 60))"""),
    "node_redis": ("node driver.cjs", """const defaults = { username: 'limiter', password: 'secret' };
const cluster = require('redis').createCluster({ rootNodes: [{ url: process.env.REDIS_URL }], defaults });
cluster.on('error', () => {});
const key = 'user123';
cluster.connect().then(() => LINE).then(console.log).then(process.exit);"""),
    "ioredis": ("node driver.cjs", """const redisOptions = { username: 'limiter', password: 'secret' };
const { Cluster } = require('ioredis');
const cluster = new Cluster([process.env.REDIS_URL], { redisOptions, clusterRetryStrategy: null });
cluster.on('error', () => {});
const key = 'user123';
LINE.then(console.log).then(process.exit);"""),
    "phpredis": ("php driver.php", """<?php
$cluster = new RedisCluster(null, [explode('@', getenv('REDIS_URL'))[1]], 60, 60, false, ['limiter', 'secret']);
$key = 'user123';
echo json_encode(LINE);"""),
}


@pytest.fixture
def cluster(new_server):
    """Two nodes, of which the second one has all slots, and its address."""
    first, second = [new_server("--cluster-enabled", "yes") for _ in range(2)]
    address, bus = Address(second), second.words[second.words.index("--cluster-port") + 1]
    second("CLUSTER ADDSLOTSRANGE 0 16383")
    second(f"CONFIG SET cluster-announce-port {address.port}")
    first(f"CLUSTER MEET 127.0.0.1 {address.port} {bus}")
    for node in first, second:
        wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    return first, second, address


def call_in(cluster, program, permissions):
    for node in cluster[:2]:
        node(f"ACL SETUSER limiter reset {permissions}")
    words, text = CLUSTER[program.row.name]
    # Create no node_modules, so that `require` finds the packages in NODE_PATH, where Debian's come first.
    program.row = program.row._replace(edits="")
    (line,) = re.findall(rf"    (.*?)  (?:#|//) {program.row.name.replace('_', '-')}\b", PAGE)
    return replies(run(program, words, text.replace("LINE", line), cluster[0], "limiter:secret@"))


@programs(*CLUSTER)
def test_the_lines_for_a_cluster_work_with_the_permissions_on_the_page_and_not_with_fewer(program, cluster):
    more = re.search(rf"^\* {program.row.name.replace('_', '-')}: `(.*)`$", OPERATING, re.M)[1]
    with pytest.raises(AssertionError):
        call_in(cluster, program, LIMITER)
    assert call_in(cluster, program, f"{LIMITER} {more}") == [[0, 3, 2, -1, 60]]


@pytest.mark.skipif(IS_DEBIAN, reason="redis-py 4.3.4 repeats a call in a cluster, whatever its settings")
@programs("redis_py", REDIS_TIMEOUT=2)
def test_a_call_in_a_cluster_that_gets_no_answer_takes_its_token_once(program, cluster):
    cluster[2].fates("CL.THROTTLE", "lost")
    with pytest.raises(AssertionError, match="Timeout"):
        call_in(cluster, program, "on >secret ~* +@all")
    assert cluster[1]("CL.LOOK user123 2 1 60")[2] == 2


@programs("redis_py")
def test_the_lines_of_an_applications_tests_start_a_server(program):
    port, module = ("7000", free_port()), ("/usr/lib/redis/modules/libredis_cell.so", library())
    Path(program.folder, "conftest.py").write_text(lines("import os, subprocess", port, module))
    no_server = SimpleNamespace(port=0)
    assert "1 passed" in run(program, "$PYTHON -m pytest test_limits.py", """from redis_py import throttle
def test_the_fourth_attempt_is_refused():
    assert [throttle("login:alice", 2, 1, 60)[0] for _ in range(4)] == [0, 0, 0, 1]
""", no_server)
