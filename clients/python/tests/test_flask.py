"""Tests of Flask-Limiter, in Flask's test client."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask, Response, request
from flask_limiter import Limiter
from flask_limiter.commands import cli

from conftest import is_unanswered, seen
from packages import ROOT
from redis_cell.limits import Unanswered


def flask(server, **settings):
    app = Flask(__name__)
    uri = f"redis-cell://127.0.0.1:{server.port}"
    # Keep calls from timing out on a slow machine.
    options = {"socket_timeout": 60}
    settings = {"strategy": "moving-window", "headers_enabled": True, "storage_options": options, **settings}
    return app, Limiter(lambda: request.headers.get("Name", "bob"), app=app, storage_uri=uri, **settings)


def test_a_request_makes_one_call_and_its_headers_know_the_cost(server, calls):
    app, limiter = flask(server)
    app.get("/", endpoint="view")(limiter.limit("3/day", cost=2)(lambda: "Hello"))
    passed, refused = app.test_client().get("/"), app.test_client().get("/")
    assert seen(passed, "Limit", "Remaining") == (200, 3, 1)
    status, wait = seen(refused, "Retry-After")
    assert status == 429 and wait in (28_800, 28_801)
    assert calls("cl.pthrottle") == 2 and calls("cl.plook") == 0


@pytest.mark.parametrize("rate, least", [("2/5 seconds", 3), ("10/second", 1)])
def test_retry_after_is_never_early(server, clock, rate, least):
    """The server's clock stands still. The next token comes back after 2.5 or 0.1 seconds."""
    app, limiter = flask(server)
    app.get("/", endpoint="view")(limiter.limit(rate)(lambda: "Hello"))
    client = app.test_client()
    while client.get("/").status_code == 200:
        pass
    # Flask-Limiter subtracts the machine's time, which does not stand still, so try different fractions of a second.
    for _ in range(20):
        assert seen(client.get("/"), "Retry-After") in ((429, least), (429, least + 1))
        time.sleep(0.06)


def test_a_server_that_dies_while_the_view_runs_does_not_change_the_response(server):
    app, limiter = flask(server)

    @app.get("/")
    @limiter.limit("3/day; 2/hour")
    def view():
        server.kill()
        return "Hello"

    client = app.test_client()
    assert seen(client.get("/"), "Remaining") == (200, 1)
    assert is_unanswered(client.get("/"))


def test_a_request_does_not_see_what_an_earlier_one_of_its_thread_was_told(server):
    """Both requests run in the same thread and context."""
    app, limiter = flask(server, headers_enabled=False)
    app.get("/", endpoint="view")(limiter.limit("3/day")(lambda: "Hello"))
    limits = []

    @app.get("/look")
    def look():
        return str(limiter.limiter.get_window_stats(limits[0].limit, *limits[0].request_args)[1])

    app.after_request(lambda response: limits.append(limiter.current_limit) or response)
    client, other = app.test_client(), app.test_client()
    client.get("/")
    thread = threading.Thread(target=other.get, args=["/"])
    thread.start()
    thread.join()
    assert client.get("/look").text == "1"


def test_a_conditional_limit_asks_before_each_request(server):
    app, limiter = flask(server, headers_enabled=False)
    limit = limiter.limit("3/day", deduct_when=lambda response: response.status_code == 401)
    app.get("/", endpoint="view")(limit(lambda: ("Wrong", 401)))
    # At its second request, each thread remembers a reply that is out of date: the other thread has made a hit since.
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        get = lambda: app.test_client().get("/").status_code
        assert [pool.submit(get).result() for pool in (one, two, one, two, one)] == [401, 401, 401, 429, 429]


def test_of_40_concurrent_guesses_the_limit_are_tried_if_a_right_one_is_refunded(server):
    app, limiter = flask(server, headers_enabled=False)
    tried = []
    # The block of code with this call on the page.
    (refund,) = re.findall(r"```python\n((?:(?!```).)*cost=-1.*?)```", (ROOT / "docs/frameworks.md").read_text(), re.S)

    @app.post("/")
    @limiter.limit("5/hour;6/day")
    def log_in():
        tried.append(request.form["password"])
        if tried[-1] != "right":
            return "Wrong", 401
        exec(refund, {"limiter": limiter})
        return "Welcome"

    post = lambda password: app.test_client().post("/", data={"password": password}).status_code
    assert {post("right") for _ in range(9)} == {200}
    tried.clear()
    with ThreadPoolExecutor(40) as threads:
        assert sorted(threads.map(post, 40 * ["wrong"])) == 5 * [401] + 35 * [429]
    assert len(tried) == 5


def test_while_redis_is_gone_flask_responds_with_503_and_the_limiters_own_settings_work(server):
    routes = {}
    for name, settings in {
        "closed": {}, "fallback": {"in_memory_fallback_enabled": True}, "swallow": {"swallow_errors": True},
        "smaller": {"in_memory_fallback": ["1/day"]},
    }.items():
        app, limiter = flask(server, key_prefix=name, **settings)
        app.get("/", endpoint="view")(limiter.limit("3/day")(lambda: "Hello"))
        assert app.test_client().get("/").status_code == 200
        routes[name] = app.test_client()
    server.kill()
    assert is_unanswered(routes["closed"].get("/"))
    assert [routes["fallback"].get("/").status_code for _ in range(4)] == 3 * [200] + [429]
    assert [routes["swallow"].get("/").status_code for _ in range(4)] == 4 * [200]
    assert [routes["smaller"].get("/").status_code for _ in range(3)][1:] == [429, 429]


def test_an_application_handles_the_error_and_the_refusal_itself(server):
    app, limiter = flask(server, on_breach=lambda limit: Response("Later", 429, {"Cache-Control": "no-store"}))
    app.get("/", endpoint="view")(limiter.limit("1/day")(lambda: "Hello"))
    app.errorhandler(Unanswered)(lambda error: (f"Down: {type(error.__cause__).__name__}", 500))
    client = app.test_client()
    client.get("/")
    assert client.get("/").headers["Cache-Control"] == "no-store"
    server.kill()
    assert client.get("/").text == "Down: ConnectionError"


def test_the_command_line_and_reset(server):
    app, limiter = flask(server)
    app.get("/", endpoint="view")(limiter.limit("1/day")(lambda: "Hello"))
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    said = app.test_cli_runner().invoke(cli, ["config"])
    assert said.exit_code == 0 and "OK" in said.output, said.output
    said = app.test_cli_runner().invoke(cli, ["limits", "--key", "bob"])
    assert said.exit_code == 0 and "1 per 1 day" in said.output, said.output
    with app.test_request_context():
        limiter.reset()
    assert client.get("/").status_code == 200
    said = app.test_cli_runner().invoke(cli, ["clear", "--key", "bob", "-y"])
    assert said.exit_code == 0 and client.get("/").status_code == 200, said.output
