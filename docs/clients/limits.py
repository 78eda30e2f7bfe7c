"""The parts that the examples in Python share: a limit, its share, refused callers, headers and addresses."""

import ipaddress
import itertools
import logging
import operator
import os
import threading
import time
from array import array
from collections import OrderedDict

import redis

URL = f"redis://127.0.0.1:{os.environ.get('REDIS_PORT', 6379)}"
# The longest time, in seconds, that a call waits for a free connection, for a new one, and for the reply.
TIMEOUT = float(os.environ.get("TIMEOUT", 0.1))
# The processes, on all machines, that divide a limit among them while Redis does not answer.
PROCESSES = int(os.environ.get("PROCESSES", 1))
SECOND = 10**9
# The decision on a call that Redis does not answer, where that call must not pass.
CLOSED = 503, {"Retry-After": "1"}, "closed"


def settings(url):
    """Returns a pool's settings: a call waits for a free connection, a new one and the reply, TIMEOUT each at most."""
    times = {"timeout": TIMEOUT, "socket_timeout": TIMEOUT}
    if not url.startswith("unix:"):
        times["socket_connect_timeout"] = TIMEOUT
    if redis.VERSION >= (5,):
        # A new connection has nothing to say before the call. With protocol 3, redis-py 8.1 with asyncio does not
        # notice that the server has closed a connection.
        times["protocol"] = 2
        times |= {"driver_info": None} if redis.VERSION >= (8,) else {"lib_name": None, "lib_version": None}
    # The listed error closes the connection: after a failover behind one address, it leads to a replica.
    return {"max_connections": 20, "retry_on_error": [redis.ReadOnlyError], **times}


class Limit:
    """A limit on each caller: its name, and one quota or several of max_burst, count and a period in seconds.

    A call that Redis does not answer is decided by this process's share of the limit; if `fail` is "closed", as for a
    log-in, it is refused. With `remember`, the process itself refuses a refused caller until it may be allowed,
    for that many seconds at most: a refund, a deleted key or another plan counts only after that.
    """

    def __init__(self, name, *quotas, fail="share", remember=0):
        if fail not in ("share", "closed") or not 1 <= len(quotas) <= 8:
            raise ValueError(f'{name}: fail is "share" or "closed", and there are 1 to 8 quotas')
        for max_burst, count, period in quotas:
            numbers = [operator.index(number) for number in (max_burst, count, period)]
            # All tokens have to be back within 136 years.
            too_long = max(max_burst + 1, count) * period > count * 2**32
            if max_burst < -1 or not 0 < count <= period * SECOND or too_long:
                raise ValueError(f"{name}: {numbers} is no quota")
        # Milliseconds, if they count: a wait of 100 ms would be remembered as none.
        self.command, self.unit = ("CL.PTHROTTLE", 1000) if remember else ("CL.THROTTLE", 1)
        self.name, self.quotas = name, [(max_burst, count, period * self.unit) for max_burst, count, period in quotas]
        self.limit = min(max_burst + 1 for max_burst, _, _ in quotas)
        self.share = Share(quotas, PROCESSES) if fail == "share" else None
        self.refused = Refused(remember * SECOND) if remember else None

    def words(self, caller, quantity=1):
        """Returns a command's words after its name; a negative quantity gives back."""
        first, *others = self.quotas
        # Half of a surrogate pair is in no key.
        key = f"{self.name}:{caller}".encode(errors="replace")
        return key, *first, quantity, *itertools.chain(*others)

    def known(self, caller, quantity):
        """Returns the decision on a call that need not be made: the process remembers that it would be refused."""
        if not 0 <= operator.index(quantity) < 2**63:
            raise ValueError("a quantity is from 0 to 2^63 - 1: a negative one would give tokens back")
        wait = self.refused.wait((caller, quantity), time.monotonic_ns()) if self.refused else 0
        return (429, {"Retry-After": seconds(wait, SECOND)}, "limited") if wait else None

    def decide(self, reply, caller, quantity, asked):
        """Returns the status and the headers to answer a request with, and how the call ended.

        `reply` is Redis's to a call that was made at the moment `asked`, or None.
        """
        if reply is None:
            return self.decide_alone(caller, quantity)
        limited, limit, remaining, retry_after, reset_after, *deciding = reply
        headers = dict(zip(HEADERS, map(str, (limit, remaining, seconds(reset_after, self.unit), *deciding))))
        if not limited:
            return 200, headers, "allowed"
        # A wait of -1 never ends: the call asks for more than the limit, which may be 0.
        if retry_after < 0:
            return 413 if limit else 403, headers, "limited"
        if self.refused:
            # Redis has rounded the wait up to a millisecond.
            self.refused.add((caller, quantity), asked, (retry_after - 1) * SECOND // self.unit)
        return 429, {**headers, "Retry-After": seconds(retry_after, self.unit)}, "limited"

    def decide_alone(self, caller, quantity):
        if not self.share:
            return CLOSED
        if quantity > self.limit:
            return 413 if self.limit else 403, {}, "share"
        # The share never has so many tokens. Redis may have them when it is back.
        if quantity > self.share.most:
            return 503, {"Retry-After": "1"}, "share"
        wait = self.share.take(str(caller), quantity, time.monotonic_ns())
        return (429, {"Retry-After": seconds(wait, SECOND)}, "share") if wait else (200, {}, "share")


class Share:
    """This process's part of a limit: what it may pass by itself while Redis does not answer.

    A key's moment, at which all its tokens are back, is the earliest of its places in four rows (a count-min sketch). A
    key that shares all its places with others may be refused for them, but no key gets more than its share.
    """

    ROWS, BITS = 4, 14

    def __init__(self, quotas, processes):
        self.parts, self.lock = [], threading.Lock()
        for max_burst, count, period in quotas:
            step = -(-period * SECOND * processes // count)
            tokens = max((max_burst + 1) // processes, 1) if max_burst >= 0 else 0
            rows = [array("q", bytes(8 << self.BITS)) for _ in range(self.ROWS)]
            self.parts.append((step, min(tokens * step, 2**62), rows))
        self.most = min(burst // step for step, burst, _ in self.parts)

    def take(self, key, quantity, now):
        """Takes the tokens of all quotas, and returns 0; or takes none, and returns the nanoseconds to wait."""
        # Each row has bits of its own: rows with the same bits would collide together.
        hashed = hash(key)
        places = [hashed >> self.BITS * row & (1 << self.BITS) - 1 for row in range(self.ROWS)]
        with self.lock:
            earliest = (min(row[place] for row, place in zip(rows, places)) for _, _, rows in self.parts)
            moments = [max(now, moment) + quantity * step for moment, (step, _, _) in zip(earliest, self.parts)]
            wait = max(0, *(moment - burst - now for moment, (_, burst, _) in zip(moments, self.parts)))
            if not wait:
                for moment, (_, _, rows) in zip(moments, self.parts):
                    for row, place in zip(rows, places):
                        row[place] = max(row[place], moment)
            return wait


class Refused:
    """The last refused calls: when each may be allowed, and how long that counts. Of too many, the oldest goes."""

    MOST = 10_000

    def __init__(self, longest):
        self.longest, self.calls, self.lock = longest, OrderedDict(), threading.Lock()

    def wait(self, call, now):
        """Returns the nanoseconds until the call may be allowed; 0 if the process does not know."""
        with self.lock:
            allowed, end = self.calls.get(call, (0, 0))
            return allowed - now if now < end else 0

    def add(self, call, now, wait):
        with self.lock:
            self.calls[call] = now + wait, now + min(wait, self.longest)
            self.calls.move_to_end(call)
            if len(self.calls) > self.MOST:
                self.calls.popitem(last=False)


def decide_together(reply):
    """Returns the decision of CL.MTHROTTLE, which takes from all its limits or from none; without a reply, refuses."""
    if reply is None:
        return CLOSED
    limited, *rows = reply
    if not limited:
        return 200, {}, "allowed"
    # The wait of a limit that allows the call is -1, as is one that never ends.
    waits = [retry_after for limited, _, _, retry_after, _ in rows if limited]
    if -1 in waits:
        return 403, {}, "limited"
    return 429, {"Retry-After": str(max(waits))}, "limited"


def seconds(time, unit):
    """Rounds up."""
    return str(-(-time // unit))


HEADERS = [f"X-RateLimit-{name}" for name in ("Limit", "Remaining", "Reset", "Quota")]


def show(headers, in_response):
    """Adds a decision's headers to a response. Of several limits, the response shows the one with fewer remaining."""
    remaining, shown = (int(some.get(HEADERS[1], 2**63)) for some in (headers, in_response))
    if "Retry-After" in in_response or "Retry-After" not in headers and shown <= remaining:
        return
    for name in HEADERS:
        if name in in_response:
            del in_response[name]
    in_response.update(headers)


reported = {}


def report(error):
    """Logs why Redis did not decide, each kind of error at most every ten seconds."""
    kind, now = type(error), time.monotonic()
    if now >= reported.get(kind, 0):
        reported[kind] = now + 10
        logging.getLogger("limits").error("Redis does not decide: %s: %s", kind.__name__, error)


# A NAT64 gateway puts a caller's IPv4 address into the last 32 bits of an address in this network.
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def parse(word):
    """Returns the address in a word, which may have a port, or None. That of ::ffff:192.0.2.1 is 192.0.2.1."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


# Your own proxies, as "192.0.2.1,2001:db8::/48". One that connects by a Unix socket is "unix".
PROXIES = os.environ.get("PROXY", "").split(",")
NETWORKS = [ipaddress.ip_network(parse(word) or word) for word in PROXIES if word not in ("", "unix")]


def is_proxy(caller):
    return caller in PROXIES if isinstance(caller, str) else any(caller in network for network in NETWORKS)


def limited_address(peer, forwarded):
    """Returns the address by which to limit a request from `peer` with these X-Forwarded-For headers."""
    caller, words = parse(peer or "") or peer or "unix", ",".join(forwarded).split(",")
    # Each proxy adds the address that it sees. The caller may have invented the words before that.
    while words and is_proxy(caller) and (before := parse(words.pop().strip())):
        caller = before
    if isinstance(caller, str) or caller.version == 4:
        return str(caller)
    if caller in NAT64:
        return str(ipaddress.IPv4Address(int(caller) % 2**32))
    # A customer has 2^64 addresses of IPv6, or more.
    return str(ipaddress.ip_network((int(caller), 64), strict=False))
