"""Calendar quotas: when the day, week and month end in a time zone, and a client for calendar_quota.lua.

To run this file: redis-cli -x FUNCTION LOAD REPLACE < calendar_quota.lua, and then
[REDIS_URL=redis://…] python3 calendar_quota.py
"""

import os
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import redis


def periods(zone, now=None):
    """Returns the current day, week and month. For each, returns its name and its end, in seconds since 1970."""
    today = datetime.fromtimestamp(now, zone).date() if now is not None else datetime.now(zone).date()
    year, week, weekday = today.isocalendar()
    next_month = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
    return [
        (today.isoformat(), midnight(today + timedelta(days=1), zone)),
        (f"{year}-W{week:02}", midnight(today + timedelta(days=8 - weekday), zone)),
        (f"{today:%Y-%m}", midnight(next_month, zone)),
    ]


def midnight(day, zone):
    # Use a calendar rather than adding 24 hours: with daylight saving time, a day may have 23 or 25 hours.
    return int(datetime.combine(day, time(), zone).timestamp())


class Plan:
    """A plan of 100 a day and 1,000 a month, with at most 10 at once and 10 a second."""

    def __init__(self, client, zone):
        self.client, self.zone = client, zone

    def of(self, user, now=None):
        """Returns the keys and numbers for a call. To refund a call, use its original ones, even on the next day."""
        (day, day_ends), _, (month, month_ends) = periods(self.zone, now)
        # The hash tag in braces keeps the keys on one node of a cluster. It starts with "plan", because a tag that
        # starts with a closing brace counts as empty. surrogatepass allows any name, even one with a lone surrogate.
        keys = [f"{{plan:{user}}}:{end}".encode(errors="surrogatepass") for end in (day, month, "rate")]
        return keys, [100, day_ends, 1000, month_ends, 9, 10, 1]

    def throttle(self, keys, numbers, quantity=1):
        return self.client.fcall("calendar_throttle", len(keys), *keys, quantity, *numbers)


if __name__ == "__main__":
    berlin = ZoneInfo("Europe/Berlin")
    for day in date(2026, 3, 29), date(2026, 10, 25), date(2026, 11, 22):
        seconds = midnight(day + timedelta(days=1), berlin) - midnight(day, berlin)
        print(day, "has", seconds // 3600, "hours")
    # Do not retry: a call that timed out may have taken its tokens.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "socket_timeout": 1, "socket_connect_timeout": 1}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), **once)
    plan = Plan(client, berlin)
    call = plan.of("user123")
    for quantity in 8, 8, -8, 1001:
        limited, *answers = plan.throttle(*call, quantity)
        print(quantity, "limited" if limited else "allowed", [remaining for _, _, remaining, _, _ in answers])
