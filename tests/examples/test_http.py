"""The examples as their frameworks' users know them: headers, methods, addresses, callers, log-ins, locations."""

import subprocess
from ipaddress import ip_network

from applications import APPLICATIONS, FORM, LIMIT, NGINX_EDITS, PYPI_IS_REQUIRED, Row, on, python

FLASK, FASTAPI, DJANGO, EXPRESS, EXPRESS_4, NGINX = APPLICATIONS
UVICORN = "$PYTHON -m uvicorn --port $HTTP_PORT"
GUNICORN = "$PYTHON -m gunicorn --worker-class uvicorn.workers.UvicornWorker --bind 127.0.0.1:$HTTP_PORT"
UNDER_GUNICORN = FASTAPI._replace(
    name="fastapi_gunicorn", check=python("fastapi, gunicorn, limits, uvicorn"),
    words=f"{GUNICORN} --forwarded-allow-ips 127.0.0.1 fastapi_site:app", is_required=PYPI_IS_REQUIRED,
)

# The paths of each site that answer in further ways, and their statuses. A stacked one has two limits.
ANSWERS = {"/missing": 404, "/streamed": 200}
FURTHER = {
    "flask": {"/fails": 500, "/stacked": 200, "/async": 404, "/blueprint/fails": 500},
    "fastapi": {"/fails": 500, "/stacked": 200, "/later": 401, "/inner/fails": 500, "/limited_inner/fails": 500},
    # An exception that REST framework does not know is Django's, and shows no headers.
    "django": {"/throttled": 200},
    "express": {"/fails": 500, "/stacked": 200},
    "express_4": {"/fails": 500, "/stacked": 200},
}


@on([*APPLICATIONS, UNDER_GUNICORN])
def test_whatever_answers_shows_the_headers_of_the_limit_and_a_refusal_is_not_stored(app):
    for path, status in {**ANSWERS, **FURTHER.get(app.row.name, {"/fails": 500})}.items():
        caller = app.caller()
        for expected, remaining in ((status, 2), (status, 1), (status, 0), (429, 0)):
            answer = app.get(path, caller)
            *shown, reset, wait = answer.numbers("Limit", "Remaining", "Reset", "Retry-After")
            assert shown == [expected, LIMIT, remaining] and reset > 0, (path, shown, reset)
            assert bool(wait) == (expected == 429) == (answer.headers["Cache-Control"] == "no-store"), path


@on(APPLICATIONS)
def test_a_preflight_and_a_health_check_are_not_charged(app, server):
    caller = app.caller()
    for _ in range(9):
        preflight = app.get("/streamed", caller, "OPTIONS", Access_Control_Request_Method="GET")
        assert preflight.status == app.get("/health", caller).status == 200
    assert not server(f"KEYS *{caller}")
    charged = [app.get("/streamed", caller, method).status for method in ("OPTIONS", "OPTIONS", "GET", "OPTIONS")]
    assert charged == [200, 200, 200, 429]


def charged(app, server, path="/", status=200, **headers):
    """Returns the callers whose limits a request with these headers is charged to: networks and names."""
    server("FLUSHALL")
    assert app.get(path, **headers).status == status, headers
    callers = [key.split(":", 1)[1].removeprefix("::ffff:") for key in server("KEYS *")]
    return [caller if "caller" in caller else ip_network(caller) for caller in callers]


# Headers X-Forwarded-For, all but the end of which a caller made up, and the address or network that is limited.
ADDRESSES = {
    "10.0.0.1, 192.0.2.7": "192.0.2.7",
    "::ffff:1.2.3.4": "1.2.3.4",
    "2001:DB8:0001:2:3::4": "2001:db8:1:2::/64",
    "1:0:0:2::9": "1:0:0:2::/64",
}


@on([*APPLICATIONS, UNDER_GUNICORN])
def test_the_address_that_the_own_proxy_adds_is_one_caller(app, server):
    for header, limited in ADDRESSES.items():
        assert charged(app, server, X_Forwarded_For=header) == [ip_network(limited)], header


# Each example as its first lines say, without a proxy.
ALONE = [
    FLASK._replace(name="flask_alone", words="$PYTHON -m flask --app flask_app run --port $HTTP_PORT"),
    FASTAPI._replace(name="fastapi_alone", words=f"{UVICORN} --no-proxy-headers fastapi_app:app"),
    UNDER_GUNICORN._replace(name="gunicorn_alone", words=f"{GUNICORN} --forwarded-allow-ips '' fastapi_app:app"),
    DJANGO._replace(name="django_alone", words="NUM_PROXIES=0 " + DJANGO.words),
    EXPRESS_4._replace(name="express_4_alone", words="PROXY= node $TESTS/express_site.js"),
    NGINX._replace(name="nginx_alone", edits=NGINX_EDITS),
]


@on(ALONE)
def test_an_address_that_a_caller_makes_up_is_not_believed(app, server):
    assert charged(app, server, X_Forwarded_For="192.0.2.7") == [ip_network("127.0.0.1")]


# Python cannot send half a pair of UTF-16, and Express goes on after `throw undefined`.
WRONG = {"flask": "half a letter", "fastapi": "half a letter", "express": "a rejection", "express_4": "a rejection"}


@on([FLASK, FASTAPI, EXPRESS, EXPRESS_4, NGINX])
def test_a_caller_without_a_name_is_an_address_and_an_object_is_an_error(app, server):
    caller = app.caller()
    for name, limited in {"acme": "caller:acme", "7": "caller:7", "": ip_network(caller)}.items():
        assert charged(app, server, "/caller", X_Forwarded_For=caller, X_Api_Key=name) == [limited]
    statuses = {"stranger": 200, "an object": 500, "a list": 500, WRONG.get(app.row.name): 500}
    # In nginx, a caller is a text.
    for name, status in statuses.items() if app.row is not NGINX else ():
        expected = [ip_network(caller)] if status == 200 else []
        assert charged(app, server, "/caller", status, X_Forwarded_For=caller, X_Api_Key=name) == expected


@on([EXPRESS, EXPRESS_4])
def test_an_answer_that_is_there_already_is_left_alone(app):
    caller = app.caller()
    answers = [app.get("/answered", caller) for _ in range(LIMIT + 1)]
    assert [(answer.numbers("Limit"), answer.body) for answer in answers] == [((200, None), "ab")] * (LIMIT + 1)


# 10 a second and 1,000 a day.
@on([DJANGO, EXPRESS, EXPRESS_4, NGINX])
def test_two_quotas_limit_by_the_one_that_decides(app, server):
    path, names = "/" if app.row is DJANGO else "/items", ("Limit", "Remaining")
    visit = lambda: app.get(path, X_Api_Key="secret-of-acme").numbers(*names)
    server("FLUSHALL")
    assert visit() == (200, 10, 9)
    # A state with all tokens of the second, and one token of the day.
    (key,), now = server("KEYS *"), int(server("TIME")[0])
    day = now + 999 * 86400 // 1000
    server(f"SET {key} {now}000000000{day}000000000 EXAT {day}")
    assert [visit(), visit()] == [(200, 1000, 0), (429, 1000, 0)]


@on([DJANGO])
def test_django_an_unset_number_of_proxies_is_an_error(app, server, start):
    assert start(app.row, server, NUM_PROXIES="").get("/").status == 500


@on([DJANGO])
def test_django_a_user_without_a_number_is_an_address(app, server):
    for key, limited in {"saved": "api_user:7", "unsaved": "api_address:192.0.2.7"}.items():
        server("FLUSHALL")
        assert app.get("/", "192.0.2.7", X_Api_Key=key).status == 200
        assert server("KEYS *") == [limited]


@on([DJANGO])
def test_django_shows_a_refusal_by_its_own_means(app):
    caller = app.caller()
    for path, text, accept in ("/", "throttled", "*/*"), ("/", "<html", "text/html"), ("/throttled", "Not now", "*/*"):
        answers = [app.get(path, caller, Accept=accept) for _ in range(LIMIT + 1)]
        *_, wait = answers[-1].numbers("Retry-After")
        assert answers[-1].status == 429 and text in answers[-1].body
        # An exception handler reads it as `exc.wait`.
        assert float(answers[-1].headers["X-Wait"]) == wait > 0


@on([DJANGO])
def test_django_a_log_in_charges_two_limits_and_a_right_password_gives_back_its_own(app, server):
    def log_in(password, path="/login"):
        return app.get(path, "192.0.2.1", "POST", f"username=%20ALICE&password={password}", Content_Type=FORM).status

    server("FLUSHALL")
    assert [log_in("correct+horse") for _ in range(5)] == [200] * 5
    assert [log_in("guess") for _ in range(4)] == [200, 200, 200, 429]
    assert server("CL.LOOK login_account:alice 2 1 86400")[2] == 0
    assert server("CL.LOOK login_address:192.0.2.1 19 60 3600")[2] == 17
    server("FLUSHALL")
    # A limit that is no log-in's keeps its charge, and the second of two throttles charges nothing after a refusal.
    assert [log_in("correct+horse", "/both") for _ in range(4)] == [200, 200, 200, 429]
    assert server("KEYS *") == ["api_address:192.0.2.1"]


@on([DJANGO])
def test_django_a_log_in_is_charged_by_its_name_and_a_body_that_is_none_is_refused(app, server):
    def post(body, kind="application/json"):
        return app.get("/login", app.caller(), "POST", body, Content_Type=kind).status

    for method in "OPTIONS", "GET", "HEAD":
        assert [app.get("/login", "192.0.2.1", method).status for _ in range(30)] == [200] * 30
    bodies = ("{", "application/json"), ("[" * 100_000, "application/json"), ("x", "text/strange"), ("x", "multipart/x")
    assert not {post(*body) for body in bodies} & {200, 429, 503}
    assert not server("KEYS login*192.0.2.1")
    # A serializer makes texts of numbers. A form without a name is one without an account.
    for names in ("49151234", '" 49151234"'), ("0", '"0"'), ("null", '""', '" "'), ('"\\uff41lice"', '"ALICE"'):
        statuses = [post('{"username": %s}' % name) for name in (*names, *names, *names)[:LIMIT + 1]]
        assert statuses == [200, 200, 200, 429], names


TEST_CLIENT = Row(
    "test_client", python("limits; from starlette.testclient import TestClient; TestClient(None, client=None)"),
    "$PYTHON $TESTS/fastapi_client.py", "fastapi_app.py", is_required=PYPI_IS_REQUIRED,
)


@on([TEST_CLIENT], "program")
def test_fastapi_limits_a_websocket_and_has_a_connection_for_each_event_loop(program, server):
    assert program.output(server.port).split() == ["2", "open", "1", "open", "0", "open", "0"]
    assert server("CL.LOOK hello:127.0.0.1 2 1 86400")[2] == 0, "Redis has decided each call"


# Locations, and the tokens that a request takes: one that leads to another location is charged by each that checks.
LOCATIONS = {
    **{"passes": 1, "satisfies": 1, "asks_another": 1, "tries_files": 2, "has_an_error_page": 2},
    **{"returns": 0, "rewrites": 0},
}


@on([NGINX])
def test_nginx_charges_each_location_that_answers(app, server):
    taken = {}
    for how in LOCATIONS:
        caller = app.caller()
        assert app.get(f"/site/{how}", caller).status == 200, how
        taken[how] = sum(LIMIT - server(f"CL.LOOK {key} 2 1 86400")[2] for key in server(f"KEYS *{caller}"))
    assert taken == LOCATIONS


@on([NGINX])
def test_nginx_limits_a_log_in_in_any_case_and_nobody_by_a_unix_socket(app, server):
    server("FLUSHALL")
    assert app.get("/LogIn/", "192.0.2.7", "POST").status == 200
    assert server("KEYS *") == ["nginx_login:192.0.2.7"]
    command = ["curl", "-so", "/dev/null", "-w", "%{http_code}", "--unix-socket", f"{app.own.name}/front", "http://x/"]
    assert subprocess.check_output(command, text=True) == "500"
    assert server("DBSIZE") == 1


@on([NGINX])
def test_nginx_and_an_application_behind_it_limit_the_same_caller_by_two_names(app, server, start):
    behind = start(EXPRESS_4, server)
    application = "nginx.conf", "server unix:application", f"server 127.0.0.1:{behind.http_port}"
    front = start(NGINX._replace(edits=(*NGINX_EDITS, application)), server)
    server("FLUSHALL")
    assert front.get("/", X_Forwarded_For="192.0.2.7").status == 200
    assert {*server("KEYS *")} == {"hello:127.0.0.1", "nginx_hello:127.0.0.1"}
