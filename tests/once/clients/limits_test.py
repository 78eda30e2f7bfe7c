"""Tests of limits.py. Those that need Redis find it at REDIS_PORT."""

import hashlib
import itertools
import math
import os
import random
import tracemalloc
import unittest

import limits
import redis_py
from limits import HEADERS, SECOND, Call, Limit, Share, decide_together, show

DAY = 86400


def digest(key):
    return hashlib.sha256(str(key).encode()).digest()


class Numbers(unittest.TestCase):
    def test_a_wrong_quota_is_refused_where_the_limit_is_made(self):
        below = (-2, 1, 60), (9, 0, 60), (9, 10, 0), (9, -1, 60)
        for quota in *below, (0.5, 1, 1), ("9", 1, 1), (9, 10**10, 1), (0, 1, 2**33), (True, 1, 1), (9, 1):
            with self.assertRaises((ValueError, TypeError), msg=quota):
                Limit("hello", quota)
            with self.assertRaises((ValueError, TypeError), msg=quota):
                Limit("hello", (9, 10, 1), quota)
        for wrong in dict(fail="open"), dict(fail="close"), dict(remember=-1), dict(remember=0.5), dict(remember=True):
            with self.assertRaises(ValueError):
                Limit("hello", (9, 10, 1), **wrong)
        for name in "login:account", ":", b"login", None:
            with self.assertRaises(ValueError):
                Limit(name, (9, 10, 1))
        for quotas in [], [(9, 10, 1)] * 9:
            with self.assertRaises(ValueError):
                Limit("hello", *quotas)

    def test_the_server_takes_every_quota_that_a_limit_takes(self):
        client = redis_py.connect()
        for quota in (-1, 1, 2**32), (0, 2**32, 2**32), (0, SECOND, 1), (0, 1, 2**32), (2**32 - 1, 1, 1):
            self.assertEqual(len(client.execute_command("CL.THROTTLE", *Limit(str(quota), quota).words("a"))), 5)

    def test_a_quantity_is_a_number_of_tokens(self):
        for quantity in -1, 2**63, 1.5, math.nan, "1", True, None:
            with self.assertRaises((ValueError, TypeError)):
                redis_py.throttle(None, Limit("hello", (9, 10, 1)), "a", quantity)


class Decisions(unittest.TestCase):
    def test_a_quantity_above_the_limit_is_413_and_a_closed_plan_403_without_a_wait(self):
        open_plan, closed_plan = Limit("open", (2, 1, 60)), Limit("closed plan", (-1, 1, 60))
        for port in os.environ["REDIS_PORT"], 1:
            client = redis_py.connect(f"redis://127.0.0.1:{port}")
            for limit, quantity, expected in (open_plan, 4, 413), (closed_plan, 1, 403):
                status, headers, _ = redis_py.throttle(client, limit, "a", quantity)
                self.assertEqual((status, "Retry-After" in headers), (expected, False))

    def test_a_quantity_that_a_share_never_has_is_503_without_redis(self):
        client, limit = redis_py.connect("redis://127.0.0.1:1"), Limit("half", (2, 1, 60), (3, 1, 60))
        limit.share = Share([(2, 1, 60), (3, 1, 60)], 2)
        self.assertEqual(redis_py.throttle(client, limit, "a", 2), (503, {"Retry-After": "1"}, "share"))
        self.assertEqual(redis_py.throttle(client, limit, "a"), (200, {}, "share"))

    def test_the_wait_of_several_limits_is_that_of_the_limited_ones(self):
        allowed, waiting, never = [0, 5, 4, -1, 60], [1, 5, 0, 180, 900], [1, 0, 0, -1, 0]
        for rows, expected in (
            ([allowed, waiting], (429, {"Retry-After": "180"}, "limited")),
            ([waiting, never], (403, {}, "limited")),
            ([never, allowed], (403, {}, "limited")),
        ):
            self.assertEqual(decide_together([1, *rows]), expected)
        self.assertEqual(decide_together([0, allowed, allowed])[0], 200)
        self.assertEqual(decide_together(None)[0], 503)

    def test_all_headers_are_of_the_limit_with_fewer_remaining(self):
        headers = lambda *values: dict(zip(HEADERS, values))
        few, many, two_quotas = headers("5", "1", "60"), headers("9", "8", "10"), headers("9", "3", "10", "2")
        for limits in itertools.permutations([few, many, two_quotas, {}]):
            shown = {"Content-Type": "text/plain"}
            for limit in limits:
                show((200, limit, "allowed"), shown)
            self.assertEqual(shown, {"Content-Type": "text/plain", **few})
        show((413, many, "limited"), shown)
        self.assertEqual(shown, {"Content-Type": "text/plain", **many})

    def test_a_reply_that_is_not_five_integers_or_six_is_no_answer(self):
        one, two = Limit("one", (2, 1, 60)), Limit("two", (2, 1, 60), (9, 1, 60))
        right, deciding = [0, 3, 2, -1, 60], [0, 3, 2, -1, 60, 1]
        for limit, reply, other in (one, right, deciding), (two, deciding, right):
            self.assertEqual(Call(limit, "a", 1).decide(reply)[2], "allowed")
            for word in False, None, "0", b"0", 0.0, [0], 2**63:
                self.assertEqual(Call(limit, str(word), 1).decide([word, *reply[1:]])[2], "share")
            for number, wrong in enumerate((other, [], [*reply, 0, 0], [reply], tuple(reply), "OK", 0, None, {})):
                self.assertEqual(Call(limit, number, 1).decide(wrong)[2], "share")
                if limit == one:
                    self.assertEqual([decide_together(reply)[0] for reply in (wrong, [0, wrong])], [503, 503], wrong)
            self.assertEqual(decide_together([False, right])[0], 503)

    def test_milliseconds_are_rounded_up_to_seconds(self):
        client, limit = redis_py.connect(), Limit("ms", (0, 2, 3), remember=60)
        self.assertEqual(redis_py.throttle(client, limit, "a")[1]["X-RateLimit-Reset"], "2")
        self.assertEqual(redis_py.throttle(client, limit, "a")[1]["Retry-After"], "2")

    def test_any_name_makes_a_key(self):
        status, _, how = redis_py.throttle(redis_py.connect(), Limit("login", (2, 1, 60)), "\ud800\0 \U0001f600")
        self.assertEqual((status, how), (200, "allowed"))


class Addresses(unittest.TestCase):
    def proxies(self, text):
        limits.PROXY = text.replace(",", " ").split()
        words = [word for word in limits.PROXY if word != "unix"]
        limits.NETWORKS = [limits.ipaddress.ip_network(limits.parse(word) or word) for word in words]

    def test_the_last_address_that_a_proxy_has_added_counts(self):
        self.proxies("192.0.2.1, 198.51.100.0/24,unix,")
        for peer, forwarded, limited in (
            ("192.0.2.1", [], "192.0.2.1"),
            ("2001:db8:1:2:3::4", [], "2001:db8:1:2::/64"),
            ("192.0.2.1", ["10.0.0.1, 203.0.113.7"], "203.0.113.7"),
            ("192.0.2.1", ["10.0.0.1", "203.0.113.7"], "203.0.113.7"),
            ("::ffff:192.0.2.1", ["203.0.113.7:5678"], "203.0.113.7"),
            (None, ["[2001:db8:1:2:3::4]:80"], "2001:db8:1:2::/64"),
            ("192.0.2.1", ["fe80::1%eth0"], "fe80::/64"),
            # Behind two proxies, and behind any of a network.
            ("192.0.2.1", ["10.0.0.1, 203.0.113.7, 198.51.100.5"], "203.0.113.7"),
            ("198.51.100.9", ["203.0.113.7, 198.51.100.5, 192.0.2.1"], "203.0.113.7"),
            # An empty word is none.
            ("192.0.2.1", ["203.0.113.7,", ", "], "203.0.113.7"),
            # The peer is not a proxy.
            ("192.0.2.2", ["203.0.113.7"], "192.0.2.2"),
            ("testclient", ["203.0.113.7"], "testclient"),
            # The proxy's word is not an address.
            *(("192.0.2.1", [f"203.0.113.7{word}"], "192.0.2.1") for word in (", unknown", ", [", ", 1.2.3")),
        ):
            self.assertEqual(limits.limited_address(peer, forwarded), limited, (peer, forwarded))

    def test_a_proxy_without_an_address_is_an_error(self):
        with self.assertRaises(ValueError):
            self.proxies("proxy.example")


class Shares(unittest.TestCase):
    def test_no_key_gets_more_than_its_share(self):
        """300,000 takes against the exact rule. Of 2,000 keys, few are refused for the takes of others."""
        chance, beyond, wrongly, allowed = random.Random(1), 0, 0, 0
        for quota, processes, keys in ((2, 1, 60), 1, 2_000), ((99, 100, 60), 3, 2_000), ((9, 1000, 1), 2, 50_000):
            share, exact, now = Share([quota], processes), {}, 0
            (step, burst, *_), = share.parts
            for _ in range(100_000):
                now += chance.randrange(2 * quota[2] * SECOND // quota[1] // keys + 2)
                key, quantity = str(int(keys * chance.random() ** 2)), chance.choice([0, 1, 1, 1, 2])
                moment = max(now, exact.get(key, 0)) + quantity * step
                if share.take(digest(key), quantity, now):
                    wrongly += keys == 2_000 and moment - burst <= now
                else:
                    beyond += moment - burst > now
                    allowed += 1
                    exact[key] = moment
        self.assertEqual(beyond, 0)
        self.assertGreater(allowed, 25_000)
        self.assertEqual(wrongly, 0)

    def test_65536_callers_who_use_all_refuse_no_other(self):
        share = Share([(2, 1, DAY)], 1)
        self.assertTrue(all(share.take(digest(number), 3, 0) == 0 for number in range(65_536 + 1_000)))

    def test_a_share_is_a_part_of_the_limit_and_of_no_tokens_none(self):
        parts = (8, 1, 9), (8, 2, 4), (8, 9, 1), (8, 100, 1), (0, 2, 1), (-1, 1, 0), (-1, 9, 0)
        for max_burst, processes, tokens in parts:
            share = Share([(max_burst, 1, DAY)], processes)
            taken = sum(share.take(digest("key"), 1, 0) == 0 for _ in range(100))
            self.assertEqual(taken, tokens, (max_burst, processes))
        share = Share([(0, 7, 10)], 3)
        # One comes back each ceil(3 * 10 s / 7).
        self.assertEqual([share.take(digest("key"), 1, now) for now in (0, 4285714285, 4285714286)], [0, 1, 0])

    def test_several_quotas_give_all_or_none(self):
        share = Share([(9, 1, DAY), (2, 1, DAY)], 1)
        refused = [share.take(digest("key"), quantity, 0) > 0 for quantity in (4, 3, 1)]
        self.assertEqual(refused, [True, False, True])
        (step, _, _, moments), _ = share.parts
        self.assertEqual(max(moments), 3 * step)

    def test_the_memory_is_the_same_after_100_000_long_names(self):
        limit, sizes = Limit("long", (2, 1, DAY), remember=60), []
        tracemalloc.start()
        for number in range(100_000):
            if number in (20_000, 99_999):
                sizes.append(tracemalloc.get_traced_memory()[0])
            call = Call(limit, f"{number:1000}", 1)
            call.decide_alone()
            call.decide([1, 3, 0, 60_000, 60_000])
        tracemalloc.stop()
        self.assertEqual(len(limit.refused), 10_000)
        # A name has a thousand bytes.
        self.assertLess(sizes[0], 10_000 * 500)
        self.assertLess(sizes[1] - sizes[0], 100_000)


class RefusedCallers(unittest.TestCase):
    def test_a_refused_caller_is_refused_without_a_call_and_no_longer_than_by_the_server(self):
        client, server = redis_py.connect(), redis_py.connect()
        limit = Limit("remembered", (0, 10, 1), remember=60)
        counts = {200: 0, 429: 0}
        while counts[200] < 20:
            look = server.execute_command("CL.PLOOK", limit.words("a")[0], 0, 10, 1000)
            status, _, _ = redis_py.throttle(client, limit, "a")
            counts[status] += 1
            self.assertFalse(look[0] == 0 and status == 429, "the server would have allowed the call")
        stats = {name.lower(): stat["calls"] for name, stat in server.info("commandstats").items()}
        self.assertGreater(counts[429], stats["cmdstat_cl.pthrottle"])

    def test_it_counts_from_before_the_call_and_has_an_end_and_a_size(self):
        limit = Limit("end", (0, 1, DAY), remember=10)

        def known(now, caller="a"):
            call = Call(limit, caller, 1)
            call.asked = now
            return call.known()

        def refuse(wait, caller="a"):
            call = Call(limit, caller, 1)
            call.asked = 100
            call.decide([1, 1, 0, wait, 0])

        refuse(2)
        waits = [known(now) for now in (100, 100 + SECOND // 1000 - 1, 100 + SECOND // 1000)]
        self.assertEqual(waits, [(429, {"Retry-After": "1"}, "limited")] * 2 + [None])
        refuse(60_001)
        waits = [known(100 + seconds * SECOND) for seconds in (0, 9, 10)]
        self.assertEqual([wait and wait[1]["Retry-After"] for wait in waits], ["60", "51", None])
        for number in range(10_000):
            refuse(2, number)
        self.assertEqual((known(100), len(limit.refused)), (None, 10_000))
        self.assertIsNotNone(known(100, 0))

    def test_another_quantity_is_another_call_and_by_default_nothing_is_remembered(self):
        client = redis_py.connect()
        limit = Limit("quantities", (2, 1, DAY), remember=60)
        statuses = [redis_py.throttle(client, limit, "a", quantity)[0] for quantity in (2, 2, 1)]
        self.assertEqual(statuses, [200, 429, 200])
        without = Limit("off", (0, 1, DAY))
        self.assertEqual([redis_py.throttle(client, without, "a")[0] for _ in range(2)], [200, 429])
        self.assertEqual(len(without.refused), 0)

    def test_a_deleted_key_counts_after_the_end(self):
        client, limit = redis_py.connect(), Limit("deleted", (0, 1, DAY), remember=1)
        statuses = [redis_py.throttle(client, limit, "a")[0] for _ in range(2)]
        client.delete("deleted:a")
        self.assertEqual([*statuses, redis_py.throttle(client, limit, "a")[0]], [200, 429, 429])
        limits.time.sleep(1)
        self.assertEqual(redis_py.throttle(client, limit, "a")[0], 200)


if __name__ == "__main__":
    unittest.main()
