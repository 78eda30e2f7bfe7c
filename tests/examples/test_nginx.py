"""The example for nginx: whom it limits, what a refusal says, and that it leaves other sites alone."""

from ipaddress import ip_network

import pytest

from applications import NGINX, on


@on([NGINX])
def test_each_response_has_the_headers_and_a_refusal_is_not_cached(app):
    caller = app.caller()
    for expected, remaining in (404, 2), (404, 1), (404, 0), (429, 0):
        answer = app.get("/missing", caller)
        *shown, reset, wait = answer.numbers("Limit", "Remaining", "Reset", "Retry-After")
        assert shown == [expected, 3, remaining] and reset > 0
        assert bool(wait) == (expected == 429) == (answer.headers["Cache-Control"] == "no-store")


@on([NGINX])
def test_headers_of_the_applications_own_limiter_are_replaced_only_in_a_limited_location(app):
    names = "X-RateLimit-Limit", "X-RateLimit-Remaining"
    for host, expected in ("localhost", [["3"], ["2"]]), ("site", [["77"], ["66"]]):
        headers = app.get("/limits", Host=host).headers
        assert [headers.get_all(name) for name in names] == expected


@pytest.mark.parametrize("fate", ["lost", "broken off"])
@on([NGINX], REDIS_TIMEOUT=1)
def test_without_a_reply_a_request_is_refused_and_its_call_is_not_retried(app, server, fate):
    caller, other = app.caller(), app.caller()
    app.address.fates("CL.", fate)
    assert app.get("/login", caller).numbers("Remaining") == (503, None)
    assert server(f"CL.LOOK nginx_login:{caller} 2 1 86400")[2] == 2
    assert app.get("/login", other).numbers("Remaining") == (200, 2)


def charged(app, server, path="/", status=200, **request):
    """Returns the keys of the limiters that this request is charged to."""
    server("FLUSHALL")
    assert app.get(path, **request).status == status, request
    return server("KEYS *")


@on([NGINX])
def test_the_address_that_your_proxy_adds_is_limited_and_passed_to_the_application(app, server):
    # 10.0.0.1 is forged. An IPv4 address in IPv6 notation gets the same key as in IPv4 notation.
    networks = {"10.0.0.1, 192.0.2.7": "192.0.2.7", "::ffff:1.2.3.4": "1.2.3.4", "1:DB8:0:02::9": "1:db8:0:2::/64"}
    for header, limited in networks.items():
        (key,) = charged(app, server, X_Forwarded_For=header)
        assert str(ip_network(key.removeprefix("nginx_hello:"))) == str(ip_network(limited)), header
        # The location /own has a proxy_set_header of its own.
        for path in "/", "/own":
            seen = app.get(path, X_Forwarded_For=header).body
            assert seen.removeprefix("::ffff:") in (limited, "1:db8:0:2::9")


@on([NGINX], PROXY="")
def test_an_address_that_a_caller_forges_is_not_trusted(app, server):
    assert charged(app, server, X_Forwarded_For="192.0.2.7") == ["nginx_hello:127.0.0.1"]
    assert app.get("/", X_Forwarded_For="192.0.2.7").body == "127.0.0.1"


@on([NGINX])
def test_another_site_of_the_same_nginx_is_neither_limited_nor_told_other_addresses(app, server):
    assert charged(app, server, X_Forwarded_For="192.0.2.7", Host="site") == []
    assert app.get("/", X_Forwarded_For="10.0.0.1, 192.0.2.7", Host="site").body == "10.0.0.1, 192.0.2.7"


@on([NGINX])
def test_a_customer_has_two_quotas_on_one_key_and_an_unknown_one_is_limited_by_address(app, server):
    assert charged(app, server, "/items", X_Api_Key="secret-of-acme") == ["items:caller:acme"]
    assert server("STRLEN items:caller:acme") == 38
    for unknown in "SECRET-of-acme", "secret-of-acme2", "":
        assert charged(app, server, "/items", X_Api_Key=unknown) == ["items:127.0.0.1"]
    assert charged(app, server, "/LogIn/", method="POST") == ["nginx_login:127.0.0.1"]


@on([NGINX])
def test_a_check_refuses_to_run_in_the_access_phase(app):
    # In the access phase, a request within its limit would pass `satisfy any`, and skip `deny all`.
    assert app.get("/permitted", Host="site").status == 500


@on([NGINX])
def test_a_location_with_auth_request_is_limited(app):
    assert [app.get("/protected", Host="site").status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("host", ["[::1]", "unix:redis"])
@on([NGINX], "program", PROXY="")
def test_two_servers_are_kept_apart_and_one_may_use_ipv6_or_a_unix_socket(program, server, new_server, host):
    socket = program.folder / "redis"
    other = new_server("--unixsocket", socket, "--bind", "127.0.0.1", "::1")
    program.environment["SECOND"] = f'"{host.replace("redis", str(socket))}", {other.port}, 3600000'
    app = program.start(server)
    for _ in range(3):
        assert app.get("/login").status == app.get("/second", Host="site").status == 200
    assert [answers("CL.LOOK nginx_login:127.0.0.1 2 1 86400")[2] for answers in (server, other)] == [0, 3]
    assert [answers("CL.LOOK second:127.0.0.1 2 1 86400")[2] for answers in (server, other)] == [3, 0]
