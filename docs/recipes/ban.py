"""A ban after too many: five wrong passwords in five minutes, and an address is kept out for an hour.

As a program: [REDIS_PORT=6379] python3 ban.py
"""

import os

import redis

# Five wrong passwords at once, and one a minute after that.
WRONG = (4, 1, 60)
# What takes an hour to come back.
BAN = 60


def wait(client, address):
    """Seconds for which the address is kept out: 0 if it is not. A look of no tokens is limited by a debt alone."""
    limited, _, _, retry_after, _ = client.execute_command("CL.LOOK", f"wrong:{address}", *WRONG, 0)
    return retry_after if limited else 0


def wrong_password(client, address):
    """Counts it. The sixth is one too many: its debt is that of a single token or less, and it adds the ban."""
    limited, _, _, retry_after, _ = client.execute_command("CL.CHARGE", f"wrong:{address}", *WRONG, 1)
    if limited and retry_after <= WRONG[2] // WRONG[1]:
        client.execute_command("CL.CHARGE", f"wrong:{address}", *WRONG, BAN)


if __name__ == "__main__":
    # A call that is tried again by itself would take again.
    client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)), socket_timeout=1, retry=None)
    for attempt in range(1, 8):
        seconds = wait(client, "192.0.2.7")
        if seconds:
            print(attempt, "kept out for", seconds, "s")
        else:
            print(attempt, "wrong password")
            wrong_password(client, "192.0.2.7")
