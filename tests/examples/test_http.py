"""The examples as their frameworks' users know them: headers, methods, addresses, callers, log-ins, locations."""

import re
import subprocess
from ipaddress import ip_network

from applications import APPLICATIONS, FORM, LIMIT, NGINX_EDITS, PYPI_IS_REQUIRED, on, python
from packages import ROOT

FLASK, FASTAPI, DJANGO, EXPRESS, EXPRESS_4, NGINX = APPLICATIONS
WORKER = "$PYTHON -m gunicorn --worker-class uvicorn.workers.UvicornWorker --bind 127.0.0.1:$HTTP_PORT"
GUNICORN = FASTAPI._replace(
    name="gunicorn", check=python("fastapi, gunicorn, limits, uvicorn"),
    words=f"{WORKER} --forwarded-allow-ips 127.0.0.1 fastapi_site:app", is_required=PYPI_IS_REQUIRED,
)


@on(APPLICATIONS)
def test_whatever_answers_shows_the_headers_of_the_limit_and_a_refusal_is_not_stored(app):
    # In the frameworks, /both has two limits: the last that is charged is shown.
    for path, status in {"/fails": 500, "/missing": 404, "/both": 200}.items():
        caller = app.caller()
        for expected, remaining in ((status, 2), (status, 1), (status, 0), (429, 0)):
            answer = app.get(path, caller)
            *shown, reset, wait = answer.numbers("Limit", "Remaining", "Reset", "Retry-After")
            assert shown == [expected, LIMIT, remaining] and reset > 0, (path, shown, reset)
            assert bool(wait) == (expected == 429) == (answer.headers["Cache-Control"] == "no-store"), path


@on(APPLICATIONS)
def test_a_preflight_is_not_charged(app):
    caller = app.caller()
    preflight = app.get("/both", caller, "OPTIONS", Access_Control_Request_Method="GET")
    assert preflight.numbers("Remaining") == (200, None)
    assert app.get("/both", caller, "OPTIONS").numbers("Remaining") == (200, 2)


def charged(app, server, path="/", status=200, **request):
    """Returns the keys to which this request is charged."""
    server("FLUSHALL")
    assert app.get(path, **request).status == status, request
    return server("KEYS *")


@on([*APPLICATIONS, GUNICORN])
def test_the_address_that_the_own_proxy_adds_is_one_caller(app, server):
    # A caller made up 10.0.0.1.
    networks = {"10.0.0.1, 192.0.2.7": "192.0.2.7", "::ffff:1.2.3.4": "1.2.3.4", "1:DB8:0:02::9": "1:db8:0:2::/64"}
    for header, limited in networks.items():
        (key,) = charged(app, server, X_Forwarded_For=header)
        # In nginx, an address of IPv4 may have this prefix, and one of IPv6 zeros.
        assert ip_network(key.split(":", 1)[1].removeprefix("::ffff:")) == ip_network(limited), header


OWN_PORT = (("express_app.js", "8080", "$HTTP_PORT"),)
# Examples as their first lines say, without a proxy.
ALONE = [
    FLASK._replace(name="flask_alone", words="$PYTHON -m flask --app flask_app run --port $HTTP_PORT"),
    GUNICORN._replace(name="gunicorn_alone", words=f"{WORKER} --forwarded-allow-ips '' fastapi_app:app"),
    DJANGO._replace(name="django_alone", words="NUM_PROXIES=0 " + DJANGO.words),
    EXPRESS._replace(name="express_alone", words="node express_app.js", edits=OWN_PORT),
    NGINX._replace(name="nginx_alone", edits=NGINX_EDITS),
]


@on(ALONE)
def test_an_address_that_a_caller_makes_up_is_not_believed(app, server):
    (key,) = charged(app, server, X_Forwarded_For="192.0.2.7")
    assert key.endswith(":127.0.0.1")


@on([FLASK, FASTAPI, EXPRESS, EXPRESS_4])
def test_a_caller_without_a_name_is_an_address_and_an_object_is_an_error(app, server):
    address = app.caller()
    for name, limited in {"acme": "caller:acme", "7": "caller:7", "": address, "stranger": address}.items():
        assert charged(app, server, "/caller", X_Forwarded_For=address, X_Api_Key=name) == [f"site:{limited}"]
    for name, sender in {"an object": address, "an error": address, "": "no address"}.items():
        assert charged(app, server, "/caller", 500, X_Forwarded_For=sender, X_Api_Key=name) == [], name


@on([DJANGO, EXPRESS, EXPRESS_4, NGINX])
def test_a_customer_has_two_quotas_on_one_key_and_who_is_none_is_an_address(app, server):
    path, address = "/" if app.row is DJANGO else "/items", app.caller()
    (key,) = charged(app, server, path, X_Api_Key="secret-of-acme")
    # Each quota has 19 digits.
    assert key.endswith(":acme") and server(f"STRLEN {key}") == 38
    assert app.get(path, X_Api_Key="secret-of-acme").numbers("Limit") == (200, 10)
    (key,) = charged(app, server, path, X_Api_Key="unknown", X_Forwarded_For=address)
    assert key.endswith(f":{address}")


@on([EXPRESS, EXPRESS_4])
def test_an_answer_that_is_there_already_is_left_alone(app):
    answers = [app.get("/answered", "192.0.2.7") for _ in range(LIMIT + 1)]
    assert {(answer.numbers("Limit"), answer.body) for answer in answers} == {((200, None), "ab")}


@on([DJANGO])
def test_django_an_unset_number_of_proxies_is_an_error(app, server, start):
    assert start(app.row, server, NUM_PROXIES="null").get("/").status == 500


@on([DJANGO])
def test_django_calls_a_views_own_throttled_with_the_wait(app):
    caller = app.caller()
    *_, refusal = [app.get("/throttled", caller) for _ in range(LIMIT + 1)]
    status, wait = refusal.numbers("Retry-After")
    assert status == 429 and f"Not now. Expected available in {wait} second" in refusal.body


@on([DJANGO])
def test_django_a_log_in_charges_two_limits_and_a_right_password_gives_back_its_own(app, server):
    def log_in(password, path="/login"):
        return app.get(path, "192.0.2.1", "POST", f"username=alice&password={password}", Content_Type=FORM).status

    server("FLUSHALL")
    assert [log_in("correct+horse") for _ in range(5)] == [200] * 5
    assert [log_in("guess") for _ in range(4)] == [200, 200, 200, 429]
    assert server("CL.LOOK login_account:alice 2 1 86400")[2] == 0
    # A token comes back each minute.
    assert server("CL.LOOK login_address:192.0.2.1 19 60 3600")[2] in (17, 18)
    server("FLUSHALL")
    # A limit that is no log-in's keeps its charge, and the second of two throttles charges nothing after a refusal.
    assert [log_in("correct+horse", "/both") for _ in range(4)] == [200, 200, 200, 429]
    assert server("KEYS *") == ["api_address:192.0.2.1"]


@on([DJANGO])
def test_django_a_log_in_is_charged_by_the_name_that_finds_the_account(app, server):
    for method in "OPTIONS", "GET", "HEAD":
        assert charged(app, server, "/login", method=method) == []
    # A serializer makes texts of numbers. A body without a name is one without an account.
    names = {r'{"username": " \uff21LICE"}': "alice", '{"username": 0}': "0", '{"username": null}': "", "[]": ""}
    for body, name in names.items():
        keys = charged(app, server, "/login", method="POST", body=body, Content_Type="application/json")
        assert {*keys} == {f"login_account:{name}", "login_address:127.0.0.1"}, body


TEST_CLIENT = FASTAPI._replace(
    name="test_client", words="$PYTHON $TESTS/fastapi_site.py", is_required=PYPI_IS_REQUIRED,
    check=python("limits; from starlette.testclient import TestClient; TestClient(None, client=None)"),
)


@on([TEST_CLIENT], "program")
def test_fastapi_limits_a_websocket_and_has_a_connection_for_each_event_loop(program, server):
    assert program.output(server.port) == "open\n" * LIMIT


@on([NGINX])
def test_nginx_charges_the_location_that_answers_and_each_limited_one_that_leads_to_it(app, server):
    for how, remaining in {"passes": 2, "returns": 3, "tries_files": 1}.items():
        caller = app.caller()
        assert app.get(f"/site/{how}", caller).status == 200, how
        assert server(f"CL.LOOK nginx_site:{caller} 2 1 86400")[2] == remaining, how


@on([NGINX])
def test_nginx_limits_a_log_in_in_any_case_and_tells_the_application_the_caller(app, server):
    assert charged(app, server, "/LogIn/", method="POST") == ["nginx_login:127.0.0.1"]
    assert app.get(X_Forwarded_For="10.0.0.1, 192.0.2.7").body == "192.0.2.7"


@on([NGINX])
def test_nginx_limits_nobody_by_a_unix_socket(app, server):
    call = "curl", "-so", "/dev/null", "-w", "%{http_code}", "--unix-socket", f"{app.own.name}/front", "http://x/"
    server("FLUSHALL")
    assert subprocess.check_output(call, text=True) == "500" and server("DBSIZE") == 0


def test_nginx_tells_a_limited_client_of_grpc_that_a_resource_is_exhausted(start, server):
    section = re.search(r"^\* For gRPC, .*?^$", (ROOT / "docs/clients.md").read_text(), re.M | re.S)[0]
    error_page, *answer = re.findall(r"`([^`]*;)`", section)
    limited = f"""
        location /grpc {{
            rewrite_by_lua_block {{ check("grpc", {{ 0, 1, 86400 }}) }}
            {error_page}
            grpc_pass grpc://127.0.0.1:1;
        }}
        location @limited {{ {" ".join(answer)} }}
        location = /health"""
    grpc = ("nginx.conf", "backlog=1024;", "http2;"), ("nginx.conf", "\n        location = /health", limited)
    app = start(NGINX._replace(edits=(*NGINX_EDITS, *grpc)), server)
    url = f"http://127.0.0.1:{app.http_port}/grpc"
    call = "curl", "-s", "--http2-prior-knowledge", "-i", "-X", "POST", "-H", "Content-Type: application/grpc", url
    first, second = (subprocess.run(call, stdout=subprocess.PIPE, text=True).stdout for _ in range(2))
    assert "grpc-status" not in first
    assert "grpc-status: 8\n" in second and "content-type: application/grpc\n" in second
