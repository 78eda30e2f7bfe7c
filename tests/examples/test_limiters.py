"""The storages for limiters: the burst, the wait and outages. What only one limiter needs is tested in clients/."""

from signal import SIGCONT, SIGSTOP

from applications import (
    DJANGO, DJANGO_VALKEY, EXPRESS, EXPRESS_IOREDIS, FASTIFY, FLASK, FLASK_VALKEY, HONO, LIMIT, LIMITERS, NEST,
    NEST_IOREDIS, NGINX, SLOWAPI, on,
)
from servers import Server, wait_for

# How many requests of a caller pass during an outage. Limiters that are not listed here have no fallback.
FALLBACKS = {FLASK: LIMIT, FLASK_VALKEY: LIMIT, SLOWAPI: LIMIT, NGINX: LIMIT}
FALLBACKS |= {EXPRESS: 2 * LIMIT, EXPRESS_IOREDIS: 2 * LIMIT, HONO: 2 * LIMIT}
# Sites with node-redis, which stays connected to a server that is demoted or hangs (see docs/clients.md).
WITH_NODE_REDIS = EXPRESS, HONO, FASTIFY, NEST


@on(LIMITERS)
def test_of_200_concurrent_requests_the_burst_passes(app, server):
    # The server replies only after all requests have been sent.
    server.process.send_signal(SIGSTOP)
    assert app.passed(200, app.caller(), True, sent=lambda: server.process.send_signal(SIGCONT)) == LIMIT
    # In Node.js, all calls share one connection. nginx's two workers have at most 20 each.
    if app.row.words.startswith("node") or app.row is NGINX:
        assert app.address.accepted <= (40 if app.row is NGINX else 1)


@on(LIMITERS)
def test_a_request_passes_exactly_when_retry_after_said_it_would(app, clock):
    caller = app.caller()
    *passed, refused = [app.log_in(caller=caller).numbers("Remaining", "Retry-After") for _ in range(4)]
    # Django REST framework sends no Remaining header.
    expected = [None, None, None] if app.row in (DJANGO, DJANGO_VALKEY) else [2, 1, 0]
    assert [numbers[:2] for numbers in passed] == [(200, remaining) for remaining in expected]
    # Of three tokens a day, the first one is back after eight hours. nginx's limit is one a day.
    wait = 86_400 if app.row is NGINX else 28_800
    # With Flask-Limiter and slowapi, the wait is up to a second longer.
    assert refused[0] == 429 and refused[2] - wait in ((0, 1) if app.row in (FLASK, FLASK_VALKEY, SLOWAPI) else (0,))
    clock.set(clock.now + (wait - 1) * 10**9)
    assert app.passed(1, caller, closed=True) == 0
    clock.set(clock.now + 10**9)
    assert app.passed(2, caller, closed=True) == 1


# How each failure begins, and the command that ends it. Without a command, the address leads to a new server instead.
FAILURES = {
    "crash": (Server.kill, None),
    "hang": (lambda server: server.process.send_signal(SIGSTOP), None),
    "replica": (lambda server: server("REPLICAOF 127.0.0.1 1"), None),
    "permission": (lambda server: server("ACL SETUSER default -cl.throttle -cl.pthrottle"),
                   "ACL SETUSER default +cl.throttle +cl.pthrottle"),
    # Close the connections, because an open one would stay logged in.
    "password": (lambda server: (server("CONFIG SET requirepass secret"), server("CLIENT KILL TYPE normal")),
                 "ACL SETUSER default nopass"),
}


@on(LIMITERS, REDIS_TIMEOUT=1)
def test_without_an_answer_failing_closed_refuses_all_and_a_fallback_keeps_its_limit(app, server, new_server):
    limits = [True, False] if app.row in FALLBACKS else [True]
    decides = lambda closed: server("FLUSHALL") and app.passed(1, app.caller(), closed) and server("DBSIZE")
    all_decide = lambda: all(map(decides, limits))
    for failure, (begin, end) in FAILURES.items():
        # Wait, because each limiter checks at its own pace whether Redis is back.
        wait_for(f"Redis decides before the failure {failure}", all_decide)
        begin(server)
        wait = None if app.row in (NEST, NEST_IOREDIS) else 1
        assert app.log_in(caller=app.caller()).numbers("Retry-After") == (503, wait), failure
        assert app.passed(10, app.caller(), closed=True) == 0, failure
        if app.row in FALLBACKS:
            # Flask-Limiter and slowapi detect the failure with one request. Requests that arrive meanwhile get 503.
            wait_for(f"the fallback decides after the failure {failure}", lambda: app.passed(1, app.caller()))
            assert app.passed(10, app.caller()) == FALLBACKS[app.row], failure
        if end:
            server(end)
        else:
            if app.row in WITH_NODE_REDIS:
                server.kill()  # closes the connections
            server = app.address.server = new_server()
    wait_for("Redis decides again", all_decide)


@on([EXPRESS, HONO])
def test_requests_that_redis_refused_do_not_count_in_the_fallback(app, clock):
    caller = app.caller()
    assert [app.get(caller=caller).status for _ in range(9)] == 3 * [200] + 6 * [429]
    clock.set(clock.now + 28_800 * 10**9)
    assert [app.get(caller=caller).status for _ in range(2)] == [200, 429]


@on([DJANGO])
def test_django_has_a_limit_for_each_throttle_in_the_settings(app, server):
    assert [app.get("/user", "192.0.2.7", "POST").status for _ in range(4)] == 3 * [200] + [429]
    assert sorted(server("KEYS *")) == ["throttle_anon_192.0.2.7/3/86400", "throttle_user_192.0.2.7/4/86400"]
