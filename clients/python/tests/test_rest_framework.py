"""Tests of the throttles for Django REST framework, with its own test requests."""

import django
import pytest
import redis
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of the tests", CACHES={"default": {
        "BACKEND": "django.core.cache.backends.dummy.DummyCache"}},
    REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None,
                    "DEFAULT_THROTTLE_RATES": {"anon": "3/day", "user": "4/day", "login": "2/hour", "zero": "0/day"}},
)
django.setup()

from django.test import override_settings
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from conftest import is_unanswered, seen
from redis_cell.rest_framework import (
    AnonRateThrottle, ScopedRateThrottle, SimpleRateThrottle, UserRateThrottle,
)


@pytest.fixture(autouse=True)
def client(request):
    """If the test uses the fixture `server`, sets REDIS_CELL to a client of that server."""
    with override_settings():
        if "server" in request.fixturenames:
            settings.REDIS_CELL = redis.Redis(port=request.getfixturevalue("server").port, socket_timeout=5)
        yield


def get(*throttles, scope=None, ip="192.0.2.1"):
    class View(APIView):
        throttle_classes, throttle_scope = throttles, scope

        def get(self, request):
            return Response("Hello")

    return View.as_view()(APIRequestFactory().get("/", REMOTE_ADDR=ip))


def of_rate(rate, base=AnonRateThrottle):
    return type("OfRate", (base,), {"rate": rate})


def statuses(times, *arguments, **named):
    return [get(*arguments, **named).status_code for _ in range(times)]


def test_each_class_limits_as_rest_frameworks_does(server):
    assert statuses(4, AnonRateThrottle) == 3 * [200] + [429]
    assert statuses(5, UserRateThrottle) == 4 * [200] + [429]
    assert statuses(3, ScopedRateThrottle, scope="login") == [200, 200, 429]
    assert statuses(5, ScopedRateThrottle) == 5 * [200]
    assert statuses(4, AnonRateThrottle, ip="192.0.2.2") == 3 * [200] + [429]


def test_a_refusal_has_the_wait_and_is_not_stored(server):
    assert "Cache-Control" not in get(of_rate("1/day"))
    refused = get(of_rate("1/day"))
    assert seen(refused, "Retry-After") == (429, 86400) and refused["Cache-Control"] == "no-store"
    # With a rate of 0, a refused request has no Retry-After header, because it can never pass.
    assert seen(get(of_rate("0/day")), "Retry-After") == (429, None)


def test_a_class_with_its_own_rate_and_an_inherited_scope_shares_nothing(server, clock):
    assert statuses(3, AnonRateThrottle) == 3 * [200]
    assert statuses(61, of_rate("60/minute")) == 60 * [200] + [429]


def test_a_changed_rate_starts_full_and_old_processes_go_on(server, clock):
    assert statuses(101, of_rate("100/day")) == 100 * [200] + [429]
    assert statuses(101, of_rate("100/minute")) == 100 * [200] + [429]
    for _ in range(30):
        assert statuses(1, of_rate("60/hour")) == statuses(1, of_rate("60/minute")) == [200]


def test_success_and_failure_are_called(server):
    called = []

    class Throttle(AnonRateThrottle):
        rate = "1/day"

        def throttle_success(self):
            called.append(f"success of {self.key}")
            assert self.now <= self.timer()
            return super().throttle_success()

        def throttle_failure(self):
            called.append(f"failure, {self.wait()}")
            return super().throttle_failure()

    assert statuses(2, Throttle) == [200, 429]
    assert called == ["success of throttle_anon_192.0.2.1", "failure, 86400"]


def test_keys_may_have_a_lone_surrogate_and_be_none(server):
    class Throttle(SimpleRateThrottle):
        rate, name = "1/day", "\ud800"

        def get_cache_key(self, request, view):
            return self.name

    assert statuses(2, Throttle) == [200, 429]
    Throttle.name = None
    assert statuses(2, Throttle) == [200, 200]


@pytest.mark.parametrize("outage", ["kill", "REPLICAOF 127.0.0.1 1", "ACL SETUSER default -cl.throttle"])
def test_while_redis_does_not_answer_the_response_is_503(server, outage):
    server.kill() if outage == "kill" else server(outage)
    assert is_unanswered(get(AnonRateThrottle))


def test_mistakes_are_no_outage(server):
    server("SET throttle_anon_192.0.2.1/3/86400 3")
    with pytest.raises(redis.ResponseError, match="rate limiter"):
        get(AnonRateThrottle)


def test_without_the_setting_the_error_names_it():
    with pytest.raises(AttributeError, match="REDIS_CELL"):
        get(AnonRateThrottle)


def test_with_valkey_py(server):
    valkey = pytest.importorskip("valkey")
    settings.REDIS_CELL = valkey.Valkey(port=server.port)
    assert statuses(4, AnonRateThrottle) == 3 * [200] + [429]
    server.kill()
    assert is_unanswered(get(AnonRateThrottle))


def test_half_the_rate_is_a_hard_cap(server, clock):
    start, passed = clock.now, []
    for second in range(0, 121, 2):
        clock.set(start + second * 10**9)
        passed += [second] * statuses(3, of_rate("30/minute")).count(200)
    assert sum(second < 60 for second in passed) <= 60 and sum(60 <= second < 120 for second in passed) >= 29
