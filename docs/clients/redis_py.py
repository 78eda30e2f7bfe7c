"""Rate limiting with redis-py.

To run this file, beside limits.py: [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=share] python3 redis_py.py
"""

import os

from redis import BlockingConnectionPool, Redis
from redis.retry import Retry

from limits import URL, Call, Limit, report, settings


def connect(url=URL):
    """Returns a client for all threads of a process."""
    return Redis(connection_pool=BlockingConnectionPool.from_url(url, **settings(url, Retry)))


def ask(client, *words):
    """Returns Redis's reply, or None. Whatever goes wrong is one case: Redis did not decide."""
    try:
        return client.execute_command(*words)
    except Exception as error:
        report(error)
        return None


def throttle(client, limit, caller, quantity=1):
    """Returns the status and the headers to answer a request with, and how the call ended."""
    call = Call(limit, caller, quantity)
    return call.known() or call.decide(ask(client, *call.words))


if __name__ == "__main__":
    client = connect()
    # Three at once and one a minute; the last call asks for four.
    limit = Limit("example", (2, 1, 60), fail=os.environ.get("FAIL", "share"))
    for quantity in 1, 1, 1, 1, 4:
        status, headers, _ = throttle(client, limit, "user123", quantity)
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))
