"""Token budgets of an LLM gateway: requests and tokens a minute, for an organisation and for a user.

To run this file: [REDIS_PORT=6379] python3 token_budget.py
"""

import os
import sys
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


class OverBudget(Exception):
    """A budget has too few tokens. Has the seconds to wait, or None if a budget never holds as many."""


class Budget:
    def __init__(self, client, organisation, user):
        self.client = client
        # The hash tag in braces keeps the four on one node of a cluster. A quoted name has no brace, which would end
        # the tag, and no colon, which would make it two names.
        whole = f"{{budget:{quote(organisation, safe='')}}}"
        own = f"{whole}:{quote(user, safe='')}"
        # Key, max_burst, count, period: this many a minute, and as many at once.
        self.requests = [(f"{whole}:requests", 599, 600, 60), (f"{own}:requests", 59, 60, 60)]
        self.tokens = [(f"{whole}:tokens", 99_999, 100_000, 60), (f"{own}:tokens", 19_999, 20_000, 60)]

    def reserve(self, estimate):
        """Takes one request and the estimate from all four, or nothing from any."""
        if estimate < 0:
            raise ValueError("an estimate below zero would give tokens back")
        limits = [(*limit, 1) for limit in self.requests] + [(*limit, estimate) for limit in self.tokens]
        limited, *answers = self.client.execute_command("CL.MTHROTTLE", *(word for limit in limits for word in limit))
        if limited:
            waits = [retry_after for refused, _, _, retry_after, _ in answers if refused]
            raise OverBudget(None if -1 in waits else max(waits))

    def settle(self, estimate, used):
        """Takes the tokens used beyond the estimate, into debt if necessary, or gives the unused ones back."""
        pipeline = self.client.pipeline(transaction=False)
        for limit in self.tokens:
            pipeline.execute_command("CL.CHARGE", *limit, used - estimate)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            # The answer is there: do not lose it. The estimate stays charged.
            print(f"not settled: {error}", file=sys.stderr)


def ask(budget, estimate, model):
    """Returns the model's answer. A call that cannot be made costs nothing; one that breaks off costs its estimate."""
    budget.reserve(estimate)
    used = estimate
    try:
        answer, used = model()
        return answer
    except ConnectionRefusedError:
        # The only ConnectionError that comes before the model has worked; a caller who hangs up is a BrokenPipeError.
        used = 0
        raise
    finally:
        budget.settle(estimate, used)


def failing():
    raise ConnectionRefusedError("the model is gone")


if __name__ == "__main__":
    # A repeated call would take twice, so there are no retries. The listed error closes the connection: after a failover
    # behind one address, it leads to a replica.
    once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)), socket_timeout=1, **once)
    budget = Budget(client, "acme", "alice")
    for estimate, model in [
        (8_000, lambda: ("short", 2_000)),
        (8_000, failing),
        (8_000, lambda: ("long", 24_000)),
        (2_000, lambda: ("never asked", 0)),
        (20_001, lambda: ("never asked", 0)),
    ]:
        try:
            print(ask(budget, estimate, model))
        except OverBudget as error:
            print("over budget, wait", error)
        except ConnectionRefusedError as error:
            print("failed:", error)
