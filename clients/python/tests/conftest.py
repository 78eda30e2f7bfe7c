"""Fixtures for tests of the package inside each framework, with the servers and libraries of tests/examples."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3] / "tests/examples")]

import packages  # puts the libraries on the path, before anything imports them
from servers import Address, clock, new_server, server


@pytest.fixture
def address(server):
    """An address that leads to the server over a network that can fail."""
    return Address(server)


@pytest.fixture
def calls(server):
    """Returns how often the server has run a command: calls("cl.plook")."""

    def count(command):
        return server.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    return count


def seen(response, *names):
    """Returns the status, and each header's number or None. "Limit" stands for X-RateLimit-Limit, for example."""
    numbers = (response.headers.get(name) or response.headers.get(f"X-RateLimit-{name}") for name in names)
    return response.status_code, *(number and int(number) for number in numbers)


def is_unanswered(response):
    return seen(response, "Retry-After") == (503, 1) and response.headers["Cache-Control"] == "no-store"
