"""The example for nginx: what it passes and refuses, whom it limits, and that no location or server loses a limit."""

import re
import subprocess
from ipaddress import ip_address, ip_network
from signal import SIGCONT, SIGSTOP

import pytest

from applications import Row, on
from packages import ROOT
from servers import Server, wait_for

# second.lua calls another server.
WORDS = (
    """sh -c 'sed "s/PORT/$HTTP_PORT/" $TESTS/nginx_site.conf >site.conf && """
    """sed "s|TIMEOUT = .*|TIMEOUT = ${SECOND:-}|" throttle.lua >second.lua && """
    """exec nginx -p $OWN -c $OWN/site.conf -g "daemon off;"'"""
)
# The page's example comes last, as a server of its own.
EXAMPLE = re.search(r"```nginx\n(.*?)```", (ROOT / "docs/nginx.md").read_text(), re.S)[1]
END = """86400 }) }
        proxy_pass http://application;
    }
}
"""
EDITS = (
    ("nginx.conf", "127.0.0.1:8080", "unix:front; listen 127.0.0.1:$HTTP_PORT"),
    ("nginx.conf", "127.0.0.1:8081", "unix:application"),
    ("nginx.conf", "/etc/nginx/?.lua", "$OWN/?.lua"),
    ("nginx.conf", END, END + EXAMPLE.replace("8080;", "$HTTP_PORT; server_name page;")),
    ("throttle.lua", "6379, 100", "$REDIS_AT, 1000 * $REDIS_TIMEOUT"),
)
NGINX = Row("nginx", "ls /usr/lib/nginx/modules/ngx_http_lua_module.so /usr/share/lua/5.1/nginx/redis.lua", WORDS,
            "nginx.conf throttle.lua", EDITS)
PROXIED = NGINX._replace(name="proxied", edits=(
    *EDITS, ("nginx.conf", "# set_real_ip_from 192.0.2.1;", "set_real_ip_from 127.0.0.1;")))


def statuses(app, times, path="/", sent=lambda: None, **headers):
    """Makes requests at once, and returns their statuses in order."""
    return sorted(answer.status for answer in app.get(path, times=times, sent=sent, **headers))


@on([PROXIED])
def test_each_answer_has_the_headers_and_a_refusal_is_not_stored(app):
    for path, status in {"/": 200, "/missing": 404}.items():
        caller = app.caller()
        for expected, remaining in ((status, 2), (status, 1), (status, 0), (429, 0)):
            answer = app.get(path, caller)
            *shown, reset, wait = answer.numbers("Limit", "Remaining", "Reset", "Retry-After")
            assert shown == [expected, 3, remaining] and reset > 0, (path, shown, reset)
            assert bool(wait) == (expected == 429) == (answer.headers["Cache-Control"] == "no-store"), path


@on([PROXIED])
def test_of_200_requests_at_once_three_pass_with_at_most_20_connections_a_worker(app, server):
    before = app.address.accepted
    for path in "/", "/login":
        # The server replies to none before all have been sent.
        server.process.send_signal(SIGSTOP)
        sent = lambda: server.process.send_signal(SIGCONT)
        assert statuses(app, 200, path, sent, X_Forwarded_For=app.caller()) == 3 * [200] + 197 * [429]
    assert app.address.accepted - before <= 40


# How each failure begins. In a hang, the address leads to another server later, and old connections stay silent.
FAILURES = {
    "crash": Server.kill,
    "hang": lambda server: server.process.send_signal(SIGSTOP),
    "replica": lambda server: server("REPLICAOF 127.0.0.1 1"),
    "permission": lambda server: server("ACL SETUSER default -cl.throttle"),
    "password": lambda server: (server("CONFIG SET requirepass secret"), server("CLIENT KILL TYPE normal")),
}


@pytest.mark.parametrize("failure", FAILURES)
@on([PROXIED], REDIS_TIMEOUT=1)
def test_in_a_failure_no_log_in_passes_and_elsewhere_the_fallback(app, server, new_server, failure):
    FAILURES[failure](server)
    assert app.get("/login", app.caller()).numbers("Limit", "Retry-After") == (503, None, 1)
    # A second server, whose locations have a proxy_set_header and whose own limit_req passes all.
    for headers in {}, {"Host": "site"}:
        caller = app.caller()
        assert statuses(app, 20, X_Forwarded_For=caller, **headers) == 3 * [200] + 17 * [429]
        refusal = app.get("/", caller, **headers)
        assert 0 < refusal.numbers("Retry-After")[1] <= 60 and refusal.headers["Cache-Control"] == "no-store"
    app.address.server = new_server()
    wait_for("Redis decides again", lambda: app.get("/login", app.caller()).status == 200)
    caller = app.caller()
    assert statuses(app, 20, X_Forwarded_For=caller) == 3 * [200] + 17 * [429]


@pytest.mark.parametrize("fate", ["lost", "broken off", b"*4\r\n:0\r\n:3\r\n:2\r\n:-1\r\n", b"*5\r\n" + 5 * b"$1\r\n0\r\n",
                                  b":0\r\n", b"*-1\r\n", b"\0\r\n"])
@on([PROXIED], REDIS_TIMEOUT=1)
def test_a_call_without_a_right_reply_is_refused_and_not_repeated(app, server, fate):
    caller, other = app.caller(), app.caller()
    app.address.fates("CL.", fate)
    assert app.get("/login", caller).numbers("Remaining") == (503, None)
    taken = server(f"CL.LOOK nginx_login:{caller} 2 1 86400")[2]
    assert taken == (3 if isinstance(fate, bytes) else 2)
    assert app.get("/login", other).numbers("Remaining") == (200, 2)


def charged(app, server, path="/", status=200, **request):
    """Returns the keys to which this request is charged."""
    server("FLUSHALL")
    assert app.get(path, **request).status == status, request
    return server("KEYS *")


@on([PROXIED])
def test_the_address_that_the_own_proxy_adds_is_the_caller_and_what_the_application_sees(app, server):
    # The caller made up 10.0.0.1.
    networks = {"10.0.0.1, 192.0.2.7": "192.0.2.7", "::ffff:1.2.3.4": "1.2.3.4", "1:DB8:0:02::9": "1:db8:0:2::/64"}
    for header, limited in networks.items():
        (key,) = charged(app, server, X_Forwarded_For=header)
        assert ip_network(key.split(":", 1)[1].removeprefix("::ffff:")) == ip_network(limited), header
        # The location of this server has a proxy_set_header of its own.
        (seen,) = app.get("/", X_Forwarded_For=header, Host="site").body.split()
        assert seen.removeprefix("::ffff:") in (header.split(", ")[-1].lower().removeprefix("::ffff:"), "1:db8:0:2::9")


@on([NGINX])
def test_an_address_that_a_caller_makes_up_is_not_trusted_and_a_unix_socket_is_an_error(app, server):
    assert charged(app, server, X_Forwarded_For="192.0.2.7") == ["nginx_hello:127.0.0.1"]
    assert app.get("/", X_Forwarded_For="192.0.2.7").body == "127.0.0.1"
    call = "curl", "-so", "/dev/null", "-w", "%{http_code}", "--unix-socket", f"{app.own.name}/front", "http://x/"
    server("FLUSHALL")
    assert subprocess.check_output(call, text=True) == "500" and server("DBSIZE") == 0


@on([PROXIED])
def test_a_customer_has_two_quotas_on_one_key_and_an_unknown_one_is_an_address(app, server):
    assert charged(app, server, "/items", Host="page", X_Api_Key="secret-of-acme") == ["items:caller:acme"]
    # Each quota has 19 digits.
    assert server("STRLEN items:caller:acme") == 38
    for unknown in "SECRET-of-acme", "secret-of-acme2", "":
        assert charged(app, server, "/items", Host="page", X_Api_Key=unknown) == ["items:127.0.0.1"]
    assert charged(app, server, "/LogIn/", method="POST") == ["nginx_login:127.0.0.1"]


@on([PROXIED])
def test_a_check_charges_each_location_that_leads_to_it_and_refuses_to_run_in_the_access_phase(app, server):
    for path, remaining in {"/": 2, "/returns": 3, "/tries_files": 1}.items():
        caller = app.caller()
        assert app.get(path, caller, Host="site").status == 200
        assert server(f"CL.LOOK site:{caller} 2 1 86400")[2] == remaining, path
    # There, `satisfy any` would let a request pass that has no other permission.
    assert app.get("/permitted", Host="site").status == 500


@pytest.mark.parametrize("host", ["[::1]", "unix:/redis"])
def test_two_servers_are_two_and_one_may_have_an_address_of_ipv6_or_a_unix_socket(start, server, new_server, host):
    other = new_server("--unixsocket", "redis", "--bind", "127.0.0.1", "::1")
    at = host.replace("/redis", f"{other.folder.name}/redis")
    app = start(NGINX, server, SECOND=f'"{at}", {other.port}, 3600000')
    for _ in range(3):
        assert app.get("/login").status == app.get("/second", Host="site").status == 200
    assert [answers("CL.LOOK nginx_login:127.0.0.1 2 1 86400")[2] for answers in (server, other)] == [0, 3]
    assert [answers("CL.LOOK second:127.0.0.1 2 1 86400")[2] for answers in (server, other)] == [3, 0]
