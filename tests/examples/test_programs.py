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

from applications import Row, node, on, python
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
    Row("phpredis", "php -r 'new Redis();'", "php php_redis.php"),
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
    program.row = program.row._replace(words=f"{command} {file} {driver}" if command == "go run" else f"{command} {driver}")
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
    """In these programs, the timeout applies to TLS as well."""
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


@programs()
def test_a_program_uses_the_database_in_its_url_or_none(program, server):
    url = f"127.0.0.1:{server.port}/3"
    assert len(replies(program.output(REDIS_URL=f"redis://{url}"))) == 4
    server("ACL SETUSER limits on >secret ~* +@all -select")
    said = program.output(REDIS_URL=f"redis://limits:secret@{url}", REDIS_TIMEOUT=1)
    assert not replies(said) and said.count(UNDECIDED) == 4, said
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
