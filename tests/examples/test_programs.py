"""The programs in docs/clients and the lines in docs/clients.md, in the situations that their users meet."""

import contextlib
import functools
import re
import socket
import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from applications import PHP_IS_REQUIRED, Row, node, on, python
from packages import IS_DEBIAN, ROOT
from servers import WITH_THE_TEST, Address, free_port, library, wait_for

PAGE = (ROOT / "docs/clients.md").read_text()
# An ES module finds packages in this folder, and not with NODE_PATH.
MODULES = "ln -sfn ${NODE_PATH##*:} node_modules"
PROGRAMS = {row.name: row for row in (
    Row("redis_py", python("redis"), "$PYTHON redis_py.py"),
    Row("redis_asyncio", python("redis"), "$PYTHON redis_asyncio.py"),
    Row("node_redis", node("redis"), "node node_redis.mjs", MODULES),
    Row("ioredis", node("ioredis"), "node ioredis.mjs", MODULES),
    Row("phpredis", "php -r 'new Redis();'", "php php_redis.php", is_required=PHP_IS_REQUIRED),
    Row("redis_rb", "ruby -e 'require \"redis\"; require \"connection_pool\"'", "ruby redis_rb.rb"),
    # scripts/test does not install Go, which is large.
    Row("redigo", "go list github.com/gomodule/redigo/redis", "go run redigo.go", is_required=False),
    Row("redis_rs", "cargo --version",
        f"${{REDIS_RS:-cargo run --quiet --profile test --manifest-path {ROOT}/Cargo.toml --example redis_rs}}"),
)}
# redis_rs is compiled without TLS, which would need OpenSSL.
WITH_TLS = [name for name in PROGRAMS if name != "redis_rs"]
UNDECIDED = "did not decide"


def programs(*names, **environment):
    """Parametrizes a test with these programs, or with all."""
    return on([PROGRAMS[name] for name in names or PROGRAMS], "program", **environment)


def replies(said):
    """Returns the replies that a program has printed, five integers each."""
    return [[*map(int, five.split())] for five in re.findall(r"-?\d+(?: -?\d+){4}", re.sub(r"[][, ]+", " ", said))]


def drive(program, text, port=0, **environment):
    """Runs a text that uses the program, in the same language. Go runs its function `init` before the program."""
    command, file = program.row.words.rsplit(" ", 1)
    driver = f"driver{Path(file).suffix}"
    Path(program.folder, driver).write_text(text)
    words = f"{command} {file} {driver}" if command == "go run" else f"{command} {driver}"
    program.row = program.row._replace(words=words)
    return program.output(port, **environment)


def lines(words, *replaced):
    """Returns the page's block of code with these words, with addresses and paths of the test in place of its own."""
    (block,) = [block for block in re.findall(r"\n\n((?:(?:    .*)?\n)+)", PAGE) if words in block]
    block = textwrap.dedent(block)
    for old, new in replaced:
        assert old in block
        block = block.replace(old, str(new))
    return block


@programs()
def test_a_program_makes_four_calls_and_prints_what_the_page_shows(program, server):
    shown = replies(lines("[0, 3, 2, -1, 60]"))
    assert len(shown) == 4 and replies(program.output(server.port)) == shown


# What the server is told, the user in the URL, and what the program says.
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
    said = program.output(REDIS_URL=f"redis://{user}127.0.0.1:{server.port}")
    assert not replies(said) and said.count(UNDECIDED) == 4 and re.search(why, said), said


@programs()
def test_an_error_that_begins_with_err_is_a_mistake_and_no_outage(program, server):
    server("SET user123 7")
    with pytest.raises(AssertionError, match="the key holds no rate limiter state") as raised:
        program.output(server.port)
    assert UNDECIDED not in str(raised.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
@programs()
def test_a_program_waits_for_a_late_server_as_long_as_its_timeout_says(program, scheme, new_server, tmp_path):
    if scheme == "rediss" and program.row.name not in WITH_TLS:
        return
    key = ("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -addext subjectAltName=IP:127.0.0.1 -out "
           f"{tmp_path}/ca -keyout {tmp_path}/key")
    subprocess.run(key.split(), check=True, capture_output=True)
    tls = free_port()
    server = new_server("--tls-port", tls, "--tls-auth-clients", "no", "--tls-cert-file", tmp_path / "ca",
                        "--tls-key-file", tmp_path / "key", "--tls-ca-cert-file", tmp_path / "ca")
    address = Address(SimpleNamespace(port=tls if scheme == "rediss" else server.port))
    environment = {"REDIS_URL": f"{scheme}://127.0.0.1:{address.port}", "SSL_CERT_FILE": tmp_path / "ca",
                   "NODE_EXTRA_CA_CERTS": tmp_path / "ca"}
    address.fates("", *99 * ["late"])
    said = program.output(**environment, REDIS_TIMEOUT=0.1)
    assert not replies(said) and said.count(UNDECIDED) == 4, said
    server("DEL user123")
    address.fates("", *99 * ["late"])
    assert len(replies(program.output(**environment, REDIS_TIMEOUT=60))) == 4


@programs("redigo", REDIS_TIMEOUT=0.1)
def test_go_waits_for_a_silent_tls_server_no_longer_than_its_timeout(program):
    """Its default is ten seconds: this test would time out."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}"
        said = drive(program, """package main
import "fmt"
func init() {
	for i := 0; i < 95; i++ { _, err := throttle("user123", 2, 1, 60, 1); fmt.Println("did not decide:", err) }
}
""", REDIS_URL=url)
    assert said.count(UNDECIDED) == 99


@programs(REDIS_TIMEOUT=60)
def test_a_program_needs_only_the_permissions_that_the_page_gives(program, server):
    (user,) = re.findall("ACL SETUSER (.*) on >secret ~limit:\\* (.*)", (ROOT / "docs/operating.md").read_text())
    server(f"ACL SETUSER {user[0]} on >secret ~user123 {user[1]}")
    assert len(replies(program.output(REDIS_URL=f"redis://{user[0]}:secret@127.0.0.1:{server.port}"))) == 4


@programs()
def test_a_program_uses_the_database_in_its_url_or_none(program, server):
    url = f"127.0.0.1:{server.port}/3"
    assert len(replies(program.output(REDIS_URL=f"redis://{url}"))) == 4
    server("ACL SETUSER limits on >secret ~* +@all -select")
    with contextlib.suppress(AssertionError):  # redis-rs says that an argument is wrong.
        program.output(REDIS_URL=f"redis://limits:secret@{url}", REDIS_TIMEOUT=1)
    assert server("INFO keyspace").keys() == {"db3"}


# These programs need longer than their four calls, because they reconnect in the background or after ten seconds.
LATER = {"redigo": """package main
import ("fmt"; "os"; "time")
func init() {
	for decided := 0; decided < 3; time.Sleep(20 * time.Millisecond) {
		reply, err := throttle("user123", 2, 1, 60, 1)
		if err == nil { decided++; fmt.Println(reply) } else { fmt.Println("did not decide:", err) }
	}
	os.Exit(0)
}
"""}
LATER |= dict.fromkeys(("node_redis", "ioredis"), """import * as program from './PROGRAM.mjs';
for (let decided = 0; decided < 3;) {
  await new Promise((resolve) => setTimeout(resolve, 20));
  await program.throttle('user123', 2, 1, 60).then(
    (reply) => { decided += 1; console.log(reply); }, (error) => console.log(`did not decide: ${error}`));
}
process.exit();
""")
# A server ends with the thread that started it.
STARTER = ThreadPoolExecutor(1)


def calls(program, address, second_call, timeout=60):
    """Makes calls, of which the second one meets a failure. Returns the replies that the program got."""
    def fates():
        yield None
        yield STARTER.submit(second_call).result()

    address.command, address.coming = b"CL.THROTTLE", fates()
    name = program.row.name
    make = functools.partial(drive, program, LATER[name].replace("PROGRAM", name)) if name in LATER else program.output
    said = make(port=address.port, REDIS_TIMEOUT=timeout)
    assert UNDECIDED in said, said
    return replies(said)


@programs()
def test_a_program_survives_a_restart(program, server):
    def restart():
        server.kill()
        server.restart()

    assert [reply[2] for reply in calls(program, Address(server), restart)][-2:] == [2, 1]


# A call without a reply has taken its token. The program neither repeats it nor waits for the connection again.
@programs()
def test_a_broken_connection_is_opened_again_and_no_call_is_repeated(program, server):
    assert [reply[0] for reply in calls(program, Address(server), lambda: "broken off")] == [0, 0, 1]


# The page says what these two do.
SILENT = [name for name in PROGRAMS if name not in ("node_redis", "redis_rs")]


@programs(*SILENT)
def test_a_silent_connection_is_given_up_and_no_call_is_repeated(program, server):
    assert [reply[0] for reply in calls(program, Address(server), lambda: "lost", timeout=0.5)] == [0, 0, 1]


# These libraries stay connected to a server that has become a replica.
STAYING = "node_redis", "redis_rb", "redis_rs"


@programs()
def test_a_program_survives_a_failover(program, server, new_server):
    replica, address = new_server("--replicaof", f"127.0.0.1 {server.port}"), Address(server)

    def fail_over():
        wait_for("the replica has the call", lambda: replica("EXISTS user123"))
        replica("REPLICAOF NO ONE")
        address.server = replica
        server(f"REPLICAOF 127.0.0.1 {replica.port}")
        if program.row.name in STAYING:
            # Sentinel does so, too.
            (command,) = re.findall("`(CLIENT KILL [A-Za-z ]*)`", PAGE)
            server(command)

    assert [reply[2] for reply in calls(program, address, fail_over)] == [2, 1, 0]


@programs("node_redis")
def test_node_redis_gives_up_a_silent_connection_when_1000_calls_are_pending(program, server):
    address = Address(server)
    address.fates("CL.THROTTLE", "lost")
    drive(program, """import { once } from 'node:events';
import { client, throttle } from './node_redis.mjs';
await once(client, 'ready');
const reconnects = new Promise((resolve) => client.once('ready', () => resolve(true)));
await Promise.allSettled(Array.from({ length: 1000 }, () => throttle('user123', 2, 1, 60)));
// A call each half second, which is not sent.
const nextCall = () => new Promise((resolve) => setTimeout(resolve, 500)).then(() => throttle('user123', 2, 1, 60));
while (await Promise.race([reconnects, nextCall().catch(() => {})]) !== true);
console.log(await throttle('user123', 2, 1, 60));
process.exit();
""", address.port, REDIS_TIMEOUT=1)
    assert address.accepted == 2


AT_ONCE = {
    "redis_py": """from concurrent.futures import ThreadPoolExecutor
from redis_py import throttle
with ThreadPoolExecutor(200) as threads:
    print(*threads.map(lambda _: throttle("user123", 2, 1, 60), range(200)))
""",
    "redis_asyncio": """import asyncio, redis.asyncio, redis_asyncio as program
async def main():
    client = redis.asyncio.Redis.from_url(program.URL, **program.OPTIONS)
    print(*await asyncio.gather(*(program.throttle(client, "user123", 2, 1, 60) for _ in range(200))))
asyncio.run(main())
""",
    "redis_rb": """require "./redis_rb"
puts 200.times.map { Thread.new { throttle("user123", 2, 1, 60) } }.map { |thread| thread.value.inspect }
""",
    "redigo": """package main
import ("fmt"; "os")
func init() {
	done := make(chan bool)
	for i := 0; i < 200; i++ { go func() { fmt.Println(throttle("user123", 2, 1, 60, 1)); done <- true }() }
	for i := 0; i < 200; i++ { <-done }
	os.Exit(0)
}
"""}
AT_ONCE |= dict.fromkeys(("node_redis", "ioredis"), """import { once } from 'node:events';
import { client, throttle } from './PROGRAM.mjs';
await once(client, 'ready');
const calls = Array.from({ length: 200 }, () => throttle('user123', 2, 1, 60));
console.log(JSON.stringify(await Promise.all(calls)));
process.exit();
""")


@programs(*AT_ONCE)
def test_of_200_concurrent_calls_three_pass_and_all_are_decided(program, server):
    address, name = Address(server), program.row.name
    # Each call waits until the others have been sent.
    address.fates("CL.THROTTLE", *200 * ["late"])
    said = drive(program, AT_ONCE[name].replace("PROGRAM", name), address.port, REDIS_TIMEOUT=60)
    limited = [reply[0] for reply in replies(said)]
    assert limited.count(0) == 3 and len(limited) == 200


@programs("redis_rb")
def test_rubys_threads_and_fibers_share_20_connections(program, server):
    address = Address(server)
    said = drive(program, """require "./redis_rb"
ask = proc { p throttle("user123", 2, 1, 60) }
50.times { Fiber.new(&ask).resume }
50.times.map { Thread.new(&ask) }.each(&:join)
""", address.port, REDIS_TIMEOUT=60)
    assert len(replies(said)) == 100 and address.accepted <= 20


@programs("node_redis")
def test_node_redis_keeps_an_idle_connection(program, server):
    address = Address(server)
    drive(program, """import './node_redis.mjs';
setTimeout(process.exit, 8000);""", address.port)
    assert address.accepted == 1


@programs("node_redis")
def test_node_redis_reads_a_reply_that_has_arrived_while_the_event_loop_was_busy(program, server):
    address = Address(server)
    address.fates("CL.THROTTLE", "late")
    said = drive(program, """import { once } from 'node:events';
import { execFileSync } from 'node:child_process';
import { setImmediate as turn } from 'node:timers/promises';
import { client, throttle } from './node_redis.mjs';
await once(client, 'ready');
const call = throttle('user123', 2, 1, 60);
await turn();
await turn();
// The call has been sent. Its reply arrives after the timeout, and before this ends.
execFileSync('sleep', ['4']);
console.log(await call);
process.exit();
""", address.port, REDIS_TIMEOUT=0.5)
    assert replies(said) == [[0, 3, 2, -1, 60]]


@programs("node_redis", "ioredis")
def test_a_program_can_be_imported_and_required(program, server):
    """With `require`, Node.js 22 and newer load an ES module."""
    name = program.row.name
    Path(program.folder, "package.json").write_text('{"type": "commonjs"}')
    use = """const call = () => program.throttle('user123', 2, 1, 60).then(console.log).then(process.exit);
program.client.once('ready', call);"""
    for text in (f"import * as program from './{name}.mjs';\n{use}",
                 f"const load = process.features.require_module ? require : (file) => import(file);\n"
                 f"Promise.resolve(load('./{name}.mjs')).then((program) => {{ {use} }});"):
        kind = "mjs" if text.startswith("import") else "cjs"
        Path(program.folder, f"user.{kind}").write_text(text)
        program.row = program.row._replace(words=f"node user.{kind}")
        assert len(replies(program.output(server.port))) == 1


@programs("phpredis")
def test_a_php_server_follows_a_failover_with_its_next_request(program, server, new_server):
    program.row = program.row._replace(words="php -S 127.0.0.1:$HTTP_PORT php_redis.php")
    replica = new_server("--replicaof", f"127.0.0.1 {server.port}")
    program.start(server)
    assert len(replies(program.get("/").body)) == 4
    wait_for("the replica has the calls", lambda: replica("EXISTS user123"))
    replica("REPLICAOF NO ONE")
    program.address.server = replica
    server(f"REPLICAOF 127.0.0.1 {replica.port}")
    assert len(replies(program.get("/").body)) == 4


@programs("redis_py")
def test_python_raises_what_is_the_callers_mistake(program, server):
    said = drive(program, """import redis, redis_py
WRONG = [(2, 0, 60), (2, 1, 60, 1, 9), (2, 1, None), (2, 1, 60, 1.5), (10**30, 1, 60)]
for numbers in WRONG:
    try:
        print(redis_py.throttle("user123", *numbers))
    except redis.RedisError as error:
        print(redis_py.is_mistake(error))
try:
    redis_py.throttle("user123", 2, 1, 60, 10**5000)
except ValueError:
    print("no RedisError")
""", server.port)
    assert said.split("\n") == 5 * ["True"] + ["no RedisError", ""]


@pytest.mark.skipif(IS_DEBIAN, reason="the lines are those of redis-py 8")
@programs("redis_py")
def test_the_lines_for_sentinel_find_the_primary_with_passwords(program, server, request, tmp_path):
    server("ACL SETUSER limits on >secret ~* +@all")
    server("CONFIG SET requirepass secret")
    settings, port = tmp_path / "sentinel.conf", free_port()
    settings.write_text(f"port {port}\nrequirepass sentinels\nsentinel monitor limits 127.0.0.1 {server.port} 1\n"
                        "sentinel auth-pass limits secret\n")
    request.addfinalizer(subprocess.Popen([*WITH_THE_TEST, "KILL", "redis-server", settings, "--sentinel"]).kill)
    sentinel = redis.Redis(port=port, password="sentinels")
    wait_for("Sentinel knows the primary", lambda: answers(sentinel.sentinel_master, "limits"))
    text = lines("sentinel import", ("10.0.0.1\", 26379", f"127.0.0.1\", {port}"), ("for Sentinel", "sentinels"))
    text += 'print(redis_py.throttle("user123", 2, 1, 60))'
    assert replies(drive(program, text)) == [[0, 3, 2, -1, 60]]


def answers(ask, *words):
    with contextlib.suppress(redis.RedisError):
        return ask(*words)


CLUSTER = {
    "redis_py": "import redis, redis_py\nLINE\nprint(redis_py.throttle('user123', 2, 1, 60))",
    "node_redis": """import { createCluster } from 'redis';
const cluster = createCluster({ rootNodes: [{ url: process.env.REDIS_URL }] });
await cluster.connect();
const key = 'user123';
console.log(await LINE);
process.exit();""",
    "ioredis": """import { Cluster } from 'ioredis';
const cluster = new Cluster([process.env.REDIS_URL]);
const key = 'user123';
console.log(await LINE);
process.exit();""",
    "phpredis": """<?php
$cluster = new RedisCluster(null, [substr(getenv('REDIS_URL'), 8)]);
$key = 'user123';
echo json_encode(LINE);""",
}


@pytest.mark.skipif(IS_DEBIAN, reason="redis-py 4.3.4 repeats a call in a cluster, whatever its settings")
@programs(*CLUSTER)
def test_the_lines_for_a_cluster_find_the_keys_node(program, new_server):
    """The first node has no slots."""
    nodes = first, second = [new_server("--cluster-enabled", "yes") for _ in range(2)]
    second("CLUSTER ADDSLOTSRANGE 0 16383")
    bus = second.words[second.words.index("--cluster-port") + 1]
    first(f"CLUSTER MEET 127.0.0.1 {second.port} {bus}")
    wait_for("the cluster is up", lambda: all("cluster_state:ok" in str(node("CLUSTER INFO")) for node in nodes))
    mark = {"redis_py": "# redis-py", "node_redis": "// node-redis", "ioredis": "// ioredis", "phpredis": "// phpredis"}
    (line,) = [line for line in lines("RedisCluster").splitlines() if mark[program.row.name] in line]
    text = CLUSTER[program.row.name].replace("LINE", re.split(" +(?://|#) ", line)[0])
    said = drive(program, text, first.port)
    assert replies(said) == [[0, 3, 2, -1, 60]], said


@pytest.mark.skipif(IS_DEBIAN, reason="redis-py 4.3.4 repeats a call in a cluster, whatever its settings")
@programs("redis_py", REDIS_TIMEOUT=2)
def test_a_call_in_a_cluster_that_gets_no_answer_takes_its_token_once(program, new_server):
    """The node announces the port of a proxy, which loses the reply."""
    node = new_server("--cluster-enabled", "yes")
    node("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_for("the cluster is up", lambda: "cluster_state:ok" in str(node("CLUSTER INFO")))
    address = Address(node)
    address.fates("CL.THROTTLE", "lost")
    node(f"CONFIG SET cluster-announce-port {address.port}")
    (line,) = [line for line in lines("RedisCluster").splitlines() if "# redis-py" in line]
    text = f"import redis, redis_py\n{line}\ntry:\n  redis_py.throttle('user123', 2, 1, 60)\nexcept redis.RedisError:\n  pass"
    drive(program, text, address.port)
    assert node("CL.LOOK user123 2 1 60")[2] == 2


@programs("redis_py")
def test_the_lines_of_an_applications_tests_start_a_server(program):
    port, module = ("7000", free_port()), ("/usr/lib/redis/modules/libredis_cell.so", library())
    Path(program.folder, "conftest.py").write_text(lines("import os, subprocess", port, module))
    Path(program.folder, "test_limits.py").write_text("""from redis_py import throttle
def test_the_fourth_attempt_is_refused():
    assert [throttle("login:alice", 2, 1, 60)[0] for _ in range(4)] == [0, 0, 0, 1]
""")
    program.row = program.row._replace(words="$PYTHON -m pytest test_limits.py")
    assert "1 passed" in program.output()
