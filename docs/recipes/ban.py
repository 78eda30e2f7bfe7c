"""A ban after too many attempts. Five wrong passwords ban a caller for five minutes, then thirty, then an hour.

To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=1] python3 ban.py
"""

import os
import sys
from pathlib import Path

import redis


class KeptOut(Exception):
    """The caller has no attempts left. The argument is the seconds until the next one."""


class Door:
    # max_burst, count, period: five attempts at once, and one a minute after that.
    ATTEMPTS = (4, 1, 60)
    # The lengths of the first ban, the second, and all later ones, and when a ban is forgiven, in seconds. During the
    # first ban, all five attempts come back, so a caller may mistype again.
    BANS, FORGIVEN = (300, 1800, 3600), 86400

    def __init__(self, client, kind):
        """`kind` is what is banned, such as "account" or "address", so that an account may be named like an address."""
        if ":" in kind:
            raise ValueError(f"{kind}: a kind must not contain a colon, which ends it in a key")
        self.client, self.kind = client, kind
        self.script = client.register_script(Path(__file__).with_name("ban.lua").read_text())

    def attempt(self, who):
        """Charges an attempt, before the password is checked."""
        keys = [self.key(name, who) for name in ("attempts", "banned", "offences")]
        wait = self.script(keys, [*self.ATTEMPTS, self.FORGIVEN, *self.BANS])
        if wait:
            raise KeptOut(-(-wait // 1000))

    def succeeded(self, who):
        """Refunds the attempt after the right password."""
        try:
            self.client.execute_command("CL.THROTTLE", self.key("attempts", who), *self.ATTEMPTS, -1)
        except redis.RedisError as error:
            # The password is right, even if the attempt stays charged.
            print(f"not given back: {error}", file=sys.stderr)

    def key(self, name, who):
        # The hash tag in braces keeps the keys on one node of a cluster. A tag that began with a closing brace would be
        # empty. A name may contain a lone surrogate.
        return f"{name}:{{{self.kind}:{who}}}".encode(errors="surrogatepass")


def log_in(door, name, password):
    door.attempt(name)
    right = password == "correct horse"
    if right:
        door.succeeded(name)
    return right


if __name__ == "__main__":
    # No retries: a call that timed out may have taken its tokens. READONLY, as after a failover, closes the connection.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    timeout = float(os.environ.get("REDIS_TIMEOUT") or 1)
    times = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379", **times, **once)
    door = Door(client, "account")
    for password in ["correct horse", "123456", "qwerty", "secret", "dragon", "monkey", "correct horse"]:
        try:
            print(password, "is", "right" if log_in(door, "alice", password) else "wrong")
        except KeptOut as error:
            print(password, "is not tried: kept out for", error, "s")
