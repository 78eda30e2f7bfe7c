"""Fixtures for tests of the package in each framework. The servers and libraries are those of tests/examples."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3] / "tests/examples")]

import packages  # adds the libraries to sys.path, and so must come before they are imported
from servers import Address, clock, new_server, server


@pytest.fixture
def address(server):
    """An address that leads to the server through a network whose failures the test controls."""
    return Address(server)


@pytest.fixture
def calls(server):
    """Returns a function that counts how often the server has run a command: calls("cl.plook")."""

    def count(command):
        return server.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    return count


def seen(response, *names):
    """Returns the status and these headers' numbers, or None if they are missing. "Limit" means X-RateLimit-Limit."""
    numbers = (response.headers.get(name) or response.headers.get(f"X-RateLimit-{name}") for name in names)
    return response.status_code, *(number and int(number) for number in numbers)


def is_unanswered(response):
    return seen(response, "Retry-After") == (503, 1) and response.headers["Cache-Control"] == "no-store"
