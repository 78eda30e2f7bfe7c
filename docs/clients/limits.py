"""The parts that the examples in Python share: a limit, its share, refused callers, headers and addresses."""

import hashlib
import ipaddress
import itertools
import logging
import os
import threading
import time
from array import array
from collections import OrderedDict

import redis
from redis.backoff import NoBackoff

URL = f"redis://127.0.0.1:{int(os.environ.get('REDIS_PORT', 6379))}"
# TIMEOUT: the longest time, in seconds, that a call waits for a free connection, for a new one, and for the reply.
# PROCESSES: those, on all machines, that divide a limit among them while Redis does not answer.
try:
    TIMEOUT, PROCESSES = float(os.environ.get("TIMEOUT", 0.1)), int(os.environ.get("PROCESSES", 1))
except ValueError as error:
    raise ValueError(f"TIMEOUT or PROCESSES: {error}") from None
if not 0.001 <= TIMEOUT <= 86400 or PROCESSES < 1:
    raise ValueError(f"TIMEOUT={TIMEOUT} is not from 0.001 to 86400, or PROCESSES={PROCESSES} not 1 or more")
SECOND = 10**9
SALT = os.urandom(16)
# The decision on a call that Redis does not answer, where that call must not pass.
CLOSED = 503, {"Retry-After": "1"}, "closed"


def settings(url, retry):
    """Returns a pool's settings: a call waits for a free connection, a new one and the reply, TIMEOUT each at most."""
    times = {"timeout": TIMEOUT, "socket_timeout": TIMEOUT}
    if not url.startswith("unix:"):
        times["socket_connect_timeout"] = TIMEOUT
    if redis.VERSION >= (5,):
        # A new connection has nothing to say before the call. With protocol 3, redis-py 8.1 with asyncio does not
        # notice that the server has closed a connection.
        times["protocol"] = 2
        times |= {"driver_info": None} if redis.VERSION >= (8,) else {"lib_name": None, "lib_version": None}
    # A repeated call would take twice. The listed error closes the connection: after a failover behind one address, it
    # leads to a replica.
    return {"max_connections": 20, "retry": retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError], **times}


def is_integer(number, least=-(2**63)):
    """Tells whether redis-py sends a number as it is: it refuses a bool, and a number of numpy."""
    return type(number) is int and least <= number < 2**63


class Limit:
    """A limit on each caller: its name, and one quota or several of max_burst, count and a period in seconds.

    A call that Redis does not answer is decided by this process's share of the limit; if `fail` is "closed", as for a
    log-in, it is refused. With `remember`, the process itself refuses a refused caller until it may be allowed,
    for that many seconds at most: a refund, a deleted key or another plan counts only after that.
    """

    def __init__(self, name, *quotas, fail="share", remember=0):
        # A key is "name:caller": with a colon, a name and a caller could have the key of another limit's caller.
        if not isinstance(name, str) or ":" in name or not is_integer(remember, 0):
            raise ValueError(f"{name!r} is to be a text without a colon, and remember={remember!r} an integer")
        if fail not in ("share", "closed") or not 1 <= len(quotas) <= 8:
            raise ValueError(f'{name}: fail is "share" or "closed", and there are 1 to 8 quotas')
        for max_burst, count, period in quotas:
            right = is_integer(max_burst, -1) and is_integer(count, 1) and is_integer(period, 1)
            # All tokens have to be back within 136 years.
            if not right or count > period * SECOND or max(max_burst + 1, count) * period > count * 2**32:
                raise ValueError(f"{name}: {max_burst, count, period} is no quota")
        # Milliseconds, if they count: a wait of 100 ms would be remembered as none.
        self.command, self.unit = ("CL.PTHROTTLE", 1000) if remember else ("CL.THROTTLE", 1)
        self.name, self.quotas = name, [(max_burst, count, period * self.unit) for max_burst, count, period in quotas]
        self.limit = min(max_burst + 1 for max_burst, _, _ in quotas)
        self.share = Share(quotas, PROCESSES) if fail == "share" else None
        # The last refused calls: when each may be allowed, and until when that counts.
        self.remember, self.refused = remember * SECOND, OrderedDict()

    def words(self, caller, quantity=1):
        """Returns a command's words after its name; a negative quantity gives back."""
        # Many objects have one text, such as "None", and others a new text in each process.
        if not isinstance(caller, str) and type(caller) is not int:
            raise TypeError(f"{self.name}: a caller is a text or an integer, and not {caller!r}")
        first, *others = self.quotas
        # Half of a surrogate pair is in no text of UTF-8.
        key = f"{self.name}:{caller}".encode(errors="surrogatepass")
        return key, *first, quantity, *itertools.chain(*others)


class Call:
    """A call of a limit: its words, and the decision on it: a status, headers, and how the call ended."""

    def __init__(self, limit, caller, quantity):
        if not is_integer(quantity, 0):
            raise ValueError("a quantity is an integer from 0 to 2^63 - 1: a negative one would give tokens back")
        self.limit, self.quantity, self.asked = limit, quantity, time.monotonic_ns()
        self.words = limit.command, *limit.words(caller, quantity)
        # A name may be long, and a caller may choose it.
        self.key = hashlib.blake2b(self.words[1], digest_size=16, key=SALT).digest()
        self.call = self.key, quantity

    def known(self):
        """Returns the decision if the call need not be made: the process remembers that it would be refused."""
        allowed, end = self.limit.refused.get(self.call, (0, 0))
        return (429, {"Retry-After": seconds(allowed - self.asked, SECOND)}, "limited") if self.asked < end else None

    def decide(self, reply):
        """Returns the decision by Redis's reply, or by the share if there is none."""
        limit = self.limit
        if not is_reply(reply, 5 if len(limit.quotas) == 1 else 6):
            return self.decide_alone()
        limited, most, remaining, retry_after, reset_after, *deciding = reply
        headers = dict(zip(HEADERS, map(str, (most, remaining, seconds(reset_after, limit.unit), *deciding))))
        if not limited:
            return 200, headers, "allowed"
        # A wait of -1 never ends: the call asks for more than the limit, which may be 0.
        if retry_after < 0:
            return 413 if most else 403, headers, "limited"
        if limit.remember:
            # Redis has rounded the wait up to a millisecond.
            wait = (retry_after - 1) * SECOND // limit.unit
            limit.refused.pop(self.call, None)
            limit.refused[self.call] = self.asked + wait, self.asked + min(wait, limit.remember)
            if len(limit.refused) > 10_000:
                limit.refused.popitem(last=False)
        return 429, {**headers, "Retry-After": seconds(retry_after, limit.unit)}, "limited"

    def decide_alone(self):
        limit, share, quantity = self.limit, self.limit.share, self.quantity
        if not share:
            return CLOSED
        if quantity > limit.limit:
            return 413 if limit.limit else 403, {}, "share"
        # The share never has so many tokens. Redis may have them when it is back.
        if quantity > share.most:
            return 503, {"Retry-After": "1"}, "share"
        wait = share.take(self.key, quantity, time.monotonic_ns())
        return (429, {"Retry-After": seconds(wait, SECOND)}, "share") if wait else (200, {}, "share")


class Share:
    """This process's part of a limit: what it may pass by itself while Redis does not answer.

    A key is in one of 2,048 groups, which has 64 places for keys and for the moment at which all tokens of each are
    back. A key without a place takes that with the earliest moment, and begins there: in a full group, a key may be
    refused for the calls of another, but no key gets more than its share.
    """

    GROUPS, PLACES = 2048, 64

    def __init__(self, quotas, processes):
        self.parts, self.lock = [], threading.Lock()
        for max_burst, count, period in quotas:
            step = -(-period * SECOND * processes // count)
            tokens = max((max_burst + 1) // processes, 1) if max_burst >= 0 else 0
            keys, moments = (array(kind, bytes(8 * self.GROUPS * self.PLACES)) for kind in "Qq")
            self.parts.append((step, min(tokens * step, 2**62), keys, moments))
        self.most = min(burst // step for step, burst, _, _ in self.parts)

    def take(self, key, quantity, now):
        """Takes the tokens of all quotas, and returns 0; or takes none, and returns the nanoseconds to wait."""
        key, wait, found = int.from_bytes(key[:8], "little"), 0, []
        group = slice(first := key % self.GROUPS * self.PLACES, first + self.PLACES)
        with self.lock:
            for step, burst, keys, moments in self.parts:
                here, there = keys[group], moments[group]
                place = here.index(key) if key in here else there.index(min(there))
                moment = max(now, there[place]) + quantity * step
                wait = max(wait, moment - burst - now)
                found.append((first + place, moment))
            if not wait:
                for (place, moment), (_, _, keys, moments) in zip(found, self.parts):
                    keys[place], moments[place] = key, moment
        return wait


def is_reply(reply, length):
    """Tells whether a reply is that many integers. Whatever else a server or a proxy says is no answer."""
    right = isinstance(reply, list) and len(reply) == length and all(map(is_integer, reply))
    if not right and reply is not None:
        report(TypeError(f"a reply that is not {length} integers"))
    return right


def seconds(time, unit):
    """Rounds up."""
    return str(-(-time // unit))


HEADERS = [f"X-RateLimit-{name}" for name in ("Limit", "Remaining", "Reset", "Quota")]


def show(decision, shown):
    """Adds a decision to a request's headers: they become those of the limit that refuses, or has the fewest left."""
    status, headers, _ = decision
    remaining, before = (int(some.get(HEADERS[1], 2**63)) for some in (headers, shown))
    if status != 200 or remaining < before:
        for name in HEADERS:
            shown.pop(name, None)
        shown.update(headers)


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
PROXY = os.environ.get("PROXY", "").replace(",", " ").split()
NETWORKS = [ipaddress.ip_network(parse(word) or word) for word in PROXY if word != "unix"]


def is_proxy(caller):
    return caller in PROXY if isinstance(caller, str) else any(caller in network for network in NETWORKS)


def limited_address(peer, forwarded):
    """Returns the address by which to limit a request from `peer` with these X-Forwarded-For headers."""
    caller, words = parse(peer or "") or peer or "unix", ",".join(forwarded).replace(",", " ").split()
    # Each proxy adds the address that it sees. The caller may have invented the words before that.
    while words and is_proxy(caller) and (before := parse(words.pop())):
        caller = before
    if isinstance(caller, str) or caller.version == 4:
        return str(caller)
    if caller in NAT64:
        return str(ipaddress.IPv4Address(int(caller) % 2**32))
    # A customer has 2^64 addresses of IPv6, or more.
    return str(ipaddress.ip_network((int(caller), 64), strict=False))
