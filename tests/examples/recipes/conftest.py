"""Fixtures for tests of scripts and functions. The server's clock moves only when a test moves it."""

import os
import random
import re
import secrets

import pytest
import redis

from packages import ROOT

DOCS = ROOT / "docs"


class Recipe:
    """A server and its clock. `caller` is the connection through which the recipe is called."""

    def __init__(self, server, clock):
        self.server, self.clock, self.start = server, clock, clock.now
        self.caller = server.client

    def __call__(self, line, *words):
        return self.server(line, *words)

    def at(self, milliseconds):
        """Sets the clock to this number of milliseconds after the start of the test."""
        self.clock.set(self.start + milliseconds * 10**6)

    def ask(self, line, *words):
        return self.caller.execute_command(*line.split(), *words)

    def eval(self, file, line):
        """Runs a script with keys and arguments written as for redis-cli --eval, such as "key other , 9 10 60"."""
        keys, arguments = (part.split() for part in f"{line} , ".split(" , ")[:2])
        return self.ask("EVAL", (DOCS / file).read_text(), len(keys), *keys, *arguments)

    def load(self, file):
        try:
            self("FUNCTION LOAD REPLACE", (DOCS / file).read_text())
        except redis.ResponseError as error:
            if "unknown command" in str(error):
                pytest.skip("this server does not support functions")
            raise

    def restrict(self, file):
        """Restricts the caller to the permissions that are listed at the top of the file."""
        (words,) = re.findall(r"^-- Permissions: (.*(?:\n-- \+.*)*)", (DOCS / file).read_text(), re.M)
        self("ACL SETUSER app reset on nopass ~*", *re.findall(r"\+\S+", words))
        self.caller = redis.Redis(port=self.server.port, username="app", password="x", decode_responses=True)

    def everything(self):
        """Returns each key with a checksum of its value and its time to live. Leaves out keys that are in their last
        millisecond, because these may expire between two calls."""
        checksum = "return {KEYS[1], redis.sha1hex(redis.call('DUMP', KEYS[1])), redis.call('PTTL', KEYS[1])}"
        keys = [self("EVAL", checksum, 1, key) for key in sorted(self("KEYS *"))]
        return [key for key in keys if key[2] not in (-2, 0)]

    def refuses(self, error, call, *words):
        """Fails unless the call raises this error and changes nothing."""
        before = self.everything()
        with pytest.raises(redis.RedisError, match=error):
            call(*words)
        assert self.everything() == before, words


@pytest.fixture
def recipe(new_server, clock):
    return Recipe(new_server(environment=clock.environment), clock)


@pytest.fixture
def chance():
    """A random number generator. Set the variable SEED to reproduce an earlier run."""
    seed = os.environ.get("SEED") or secrets.token_hex(4)
    print(f"SEED={seed}")
    return random.Random(seed)
