"""A ban after five wrong passwords. The first ban lasts five minutes, the second thirty, and each later one an hour.

To run this file in a folder with ban.lua: [REDIS_URL=redis://…] python3 ban.py
"""

import os
import sys
from pathlib import Path

import redis


class KeptOut(Exception):
    """The caller has no attempts left. The argument is the number of seconds until the next attempt."""


class Door:
    # max_burst, count and period: five wrong passwords at once, and then one a minute.
    WRONG = (4, 1, 60)
    # The lengths of the first ban, of the second, and of all later ones, and the time after which a ban is forgiven, in
    # seconds. The first ban is as long as it takes for all five attempts to come back, so a caller may mistype again.
    BANS, FORGIVEN = (300, 1800, 3600), 86400

    def __init__(self, client, kind):
        """`kind` is what is banned, such as "account" or "address": an account may have the same name as an address."""
        if ":" in kind:
            raise ValueError(f"{kind}: a kind must not contain a colon, which marks its end in a key")
        self.client, self.kind = client, kind
        self.script = client.register_script(Path(__file__).with_name("ban.lua").read_text())

    def attempt(self, who):
        """Takes a token before the password is checked. Of a thousand concurrent guesses, only five are checked."""
        banned = self.client.pttl(self.key("banned", who))
        if banned != -2:
            raise KeptOut(max(-(-banned // 1000), 1))
        limited, _, _, retry_after, _ = self.throttle(who, 1)
        if limited:
            raise KeptOut(retry_after)

    def failed(self, who):
        """Counts a wrong password."""
        keys = [self.key(name, who) for name in ("wrong", "banned", "offences")]
        self.script(keys, [*self.WRONG, self.FORGIVEN, *self.BANS])

    def succeeded(self, who):
        """Refunds the attempt after a right password."""
        try:
            self.throttle(who, -1)
        except redis.RedisError as error:
            # Let the caller in: the password is right, even if the attempt stays charged.
            print(f"The attempt was not refunded: {error}", file=sys.stderr)

    def throttle(self, who, quantity):
        return self.client.execute_command("CL.THROTTLE", self.key("attempts", who), *self.WRONG, quantity)

    def key(self, name, who):
        # The hash tag in braces keeps the keys on one node of a cluster. It starts with the kind, because a tag that
        # starts with a closing brace counts as empty. surrogatepass allows any name, even one with a lone surrogate.
        return f"{name}:{{{self.kind}:{who}}}".encode(errors="surrogatepass")


def log_in(door, name, password):
    door.attempt(name)
    is_right = password == "correct horse"
    (door.succeeded if is_right else door.failed)(name)
    return is_right


if __name__ == "__main__":
    # Do not retry: a call that timed out may have taken its tokens.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "socket_timeout": 1, "socket_connect_timeout": 1}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **once)
    door = Door(client, "account")
    for password in ["correct horse", "123456", "qwerty", "secret", "dragon", "monkey", "correct horse"]:
        try:
            print(password, "is", "right" if log_in(door, "alice", password) else "wrong")
        except KeptOut as error:
            print(password, "is not tried: kept out for", error, "s")
