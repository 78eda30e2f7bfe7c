"""Express as its users know it: answers and methods of each kind, and proxies of each kind."""

import dataclasses

from applications import LIMIT, named, on

ROUTES = "require('$TESTS/express_routes.js')(app, limited(new Limit(connection, 'site', [[2, 1, 86400]])));"
WORDS = f"""node -e "$(sed "s|const app = express();|& {ROUTES}|" express_app.js)\""""
SITE = [dataclasses.replace(row, name="express_site", words=WORDS) for row in named("express")]
# Headers of two proxies, one of which adds ports, and the address that is limited.
TWO_PROXIES = [
    ("203.0.113.5, 198.51.100.7:4321", "203.0.113.5"),
    ("203.0.113.5:80,198.51.100.7", "203.0.113.5"),
    ("10.0.0.1, 203.0.113.5,  ::ffff:198.51.100.7 ,", "203.0.113.5"),
    ("198.51.100.7, 198.51.100.7", "198.51.100.7"),
    ("unknown, 198.51.100.7", "198.51.100.7"),
    ("64:ff9b:1::1, [::ffff:198.51.100.7]:4321", "64:ff9b:1::/64"),
    ("203.0.113.5", "203.0.113.5"),
    ("", "127.0.0.1"),
]


@on(SITE)
def test_whatever_answers_in_express_shows_the_headers_of_the_limit(app):
    for path, status in ("/fails", 500), ("/missing", 404), ("/moved", 302), ("/streamed", 200):
        caller = app.caller()
        answers = [app.get(path, caller) for _ in range(LIMIT + 1)]
        shown = [(answer.status, answer.number("Remaining")) for answer in answers]
        assert shown == [(status, 2), (status, 1), (status, 0), (429, 0)], path


@on([*SITE, *named("nginx")])
def test_a_head_is_charged_but_no_preflight_and_no_health_check(app, server):
    caller, path = app.caller(), "/" if app.row.name == "nginx" else "/options"
    for _ in range(LIMIT + 1):
        assert app.get(path, caller, "OPTIONS").status == 200
        assert app.get("/metrics" if app.row.name != "nginx" else "/health", caller).status == 200
    assert not server(f"KEYS *{caller}")
    assert [app.get(path, caller, method).status for method in ("HEAD", "GET", "HEAD", "GET")] == [200] * 3 + [429]


@on(named("express", "nginx", "flask"), PROXY="127.0.0.1, 198.51.100.7,")
def test_each_of_two_proxies_may_write_ports(app, server):
    for header, limited in TWO_PROXIES:
        server("FLUSHALL")
        assert app.get("/", **({"X_Forwarded_For": header} if header else {})).status == 200
        assert server("KEYS *")[0].endswith(f"hello:{limited}"), header


@on(named("express"))
def test_express_starts_without_a_proxy_and_behind_a_socket(app, server, start):
    server("FLUSHALL")
    for proxy in "", "unix", " ":
        assert start(app.row, server.port, PROXY=proxy).get("/", X_Forwarded_For="192.0.2.7").status == 200
    assert server("KEYS *") == ["hello:127.0.0.1"]
