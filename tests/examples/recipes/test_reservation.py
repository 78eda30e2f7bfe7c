"""Tests of docs/budgets/reservation.lua: a call is reserved and settled only once, and an error changes nothing."""

import pytest

PLACES = 4
# The quota that all users share, and the quotas of three users. The time for a token is not a whole number of
# nanoseconds.
LIMITERS = "2010 2011 60", "2013 2014 2", "10054 20011 60", "1021 20011 3600"
OLD = "4 {a}:old {a}:calls {a}:requests {a}:tokens"
NEW = "reserve 4 {a}:new {a}:calls {a}:requests {a}:tokens 30000 2 59 60 60 1 19999 20000 60 5"


@pytest.fixture
def ask(recipe):
    recipe.load("budgets/reservation.lua")
    recipe.restrict("budgets/reservation.lua")
    recipe.at(0)
    return lambda line: recipe.ask(f"{'FCALL_RO' if line.startswith('reservations') else 'FCALL'} {line}")


class Model:
    """A second implementation of the functions. Where a function should call a limiter, the model calls its twin."""

    def __init__(self, recipe):
        # For each call, a tuple: its arguments, whether it is settled, the end of its lease, and when it is forgotten.
        self.recipe, self.now, self.calls = recipe, 0, {}

    def held(self):
        return [held for _, settled, held, _ in self.calls.values() if not settled and held > self.now]

    def reserve(self, number, user, lease, estimate):
        terms, settled, held, _ = self.calls.get(number, (None, False, 0, 0))
        if terms:
            return ("this call is settled" if settled
                    else "with different arguments" if terms != (user, lease, estimate)
                    else "the lease of this call has ended" if held <= self.now else 0)
        if len(self.held()) >= PLACES:
            return [0, -(-(min(self.held()) - self.now) // 1_000)]
        twins = f"{{a}}:twin0 {LIMITERS[0]} {estimate} {{a}}:twin{user} {LIMITERS[user]} {estimate}"
        limited, *rows = self.recipe(f"CL.MTHROTTLE {twins}")
        if limited:
            waits = [row[3] if row[0] else 0 for row in rows]
            return [1 + (waits[0] < waits[1]), max(waits)]
        self.calls[number] = (user, lease, estimate), False, self.now + lease, self.now + 10 * lease
        return 0

    def renew(self, number, lease):
        terms, settled, held, _ = self.calls.get(number, (None, True, 0, 0))
        if settled or held <= self.now:
            return 0
        self.calls[number] = terms, False, self.now + lease, self.now + 10 * lease
        return 1

    def settle(self, number, used):
        if number not in self.calls:
            self.calls[number] = (0, 0, 0), True, 0, self.now + 60_000
            return 0
        terms, settled, held, known = self.calls[number]
        if settled:
            return 2
        self.calls[number] = terms, True, held, known
        for limiter in 0, terms[0]:
            self.recipe(f"CL.CHARGE {{a}}:twin{limiter} {LIMITERS[limiter]} {used - terms[2]}")
        return 1


def test_calls_behave_as_a_model_says_in_whatever_order_they_are_retried(recipe, ask, chance):
    model, terms, seen = Model(recipe), [], {}
    for _ in range(2_500):
        pause = 100_000 if chance.random() < 0.0025 else chance.randrange(14_000) if chance.random() < 0.05 else 0
        model.now += chance.randrange(100) + pause
        model.calls = {number: call for number, call in model.calls.items() if call[3] >= model.now}
        recipe.at(model.now)
        new = not terms or chance.random() < 1 / 3
        if new:
            lease = 20 + chance.randrange(chance.choice((180, 30_000)))
            terms.append([chance.randrange(1, 4), lease, chance.randrange(200)])
        number = len(terms) - 1 - (0 if new else chance.randrange(min(len(terms), 16)))
        # Sometimes change the estimate, which is an error if the call has already been reserved.
        terms[number][2] += chance.random() < 0.2
        user, lease, estimate = terms[number]
        keys, used = f"{{a}}:call-{number} {{a}}:calls {{a}}:0 {{a}}:{user}", chance.randrange(2 * estimate + 1)
        name = "reserve" if new else chance.choice(("reserve", "renew", "settle", "settle"))
        if name == "reserve":
            line = f"{keys} {lease} {PLACES} {LIMITERS[0]} {estimate} {LIMITERS[user]} {estimate}"
            expected = model.reserve(number, user, lease, estimate)
        elif name == "renew":
            line, expected = f"{{a}}:call-{number} {{a}}:calls {lease}", model.renew(number, lease)
        else:
            line, expected = f"{keys} {used} {used}", model.settle(number, used)
        seen.setdefault(name, set()).add(expected if isinstance(expected, str | int) else expected[0] and "limited")
        line = f"{name} {2 if name == 'renew' else 4} {line}"
        if isinstance(expected, str):
            recipe.refuses(expected, ask, line)
        else:
            assert ask(line) == expected, (model.now, line)
        states = recipe("MGET", *(f"{{a}}:{key}{limiter}" for limiter in range(4) for key in ("", "twin")))
        # In its last millisecond, a key may or may not exist, so treat all TATs up to that time as equal.
        states = [max(int(state or 0), recipe.clock.now + 10**6) for state in states]
        assert states[::2] == states[1::2], (model.now, line)
        assert ask("reservations 1 {a}:calls") == len(model.held()), (model.now, line)
    refusals = {"this call is settled", "with different arguments", "the lease of this call has ended"}
    assert seen == {"reserve": {0, "limited"} | refusals, "renew": {0, 1}, "settle": {0, 1, 2}}
    recipe.at(model.now + 366 * 86_400_000)
    assert recipe("KEYS *") == []


def test_a_call_without_slots_is_reserved_and_settled(ask):
    for line, expected in (
        ("reserve 2 c limiter 1000 9 10 60 10", 0),
        ("reserve 2 d limiter 1000 9 10 60 1", [1, 6]),
        ("reserve 3 d other limiter 1000 9 10 60 11 9 10 60 1", [1, -1]),
        ("settle 2 c limiter 9", 1),
        # Without string.format, Redis 7.2 would send this number from a script as 1e+09.
        ("reserve 2 f large 1000 1999999999 2000000000 60 1000000000", 0),
    ):
        assert ask(line) == expected, line


def test_a_call_that_fails_changes_nothing(recipe, ask):
    two, broken, cut = "3 {a}:two {a}:fast {a}:slow", "3 {a}:half {a}:broken {a}:slow", "3 {a}:cut {a}:full {a}:slow"
    for call in (
        f"{OLD} 30000 2 59 60 60 1 19999 20000 60 500",
        f"{two} 90000 9 10 600 5 9 1 86400 5",
        f"{broken} 90000 9 10 600 5 9 1 86400 1",
        # The five tokens of the limiter {a}:full are back within a second.
        f"{cut} 90000 9 10 1 5 9 1 86400 1",
    ):
        assert ask(f"reserve {call}") == 0
    recipe("SET {a}:broken x")
    # If the functions did not check first, each of these missing permissions would stop a call halfway.
    settle, renew = f"settle {OLD} 0 600", "renew 2 {a}:old {a}:calls 1000"
    for right, lines in {
        "set": (NEW, "reserve 2 {a}:one {a}:tokens 30000 19999 20000 60 5", settle), "zadd": (NEW, renew),
        "pexpire": (NEW, renew), "cl.charge": (settle,), "zrem": (settle,),
    }.items():
        recipe(f"ACL SETUSER app -{right}")
        for line in lines:
            recipe.refuses("permission|can't run", ask, line)
        recipe(f"ACL SETUSER app +{right}")
    # After the lease of the old call has ended, a new call could take the old call's slot.
    recipe.at(30_000)
    for old, new, error in (
        ("60 5", "60", "wrong number of arguments"),
        ("60 5", "60 -5", "limiter 2 must have its own key, and an estimate"),  # a refund
        ("60 5", "60 9999999999999999", "limiter 2 must have its own key, and an estimate"),
        ("calls", "new", "the call must have its own key"),
    ):
        recipe.refuses(error, ask, NEW.replace(old, new, 1))
    for line, error in {
        f"settle {OLD} 1 -1": r"the used amount must be a whole number of at most 15 digits \(limiter 2\)",
        # The first limiter gets a refund, but the second one cannot be charged.
        f"settle {two} 0 1000000": "quantity: the tokens would not be back",
        # A refund to a full limiter changes nothing, so it could not be undone by a charge.
        f"settle {cut} 0 1000000": "quantity: the tokens would not be back",
        f"settle {broken} 0 0": "the key holds no rate limiter",
    }.items():
        recipe.refuses(error, ask, line)


def test_a_call_is_settled_only_with_the_keys_of_its_reservation(recipe, ask):
    assert recipe.ask("FCALL reserve 2 call", "x y", *"30000 9 10 60 5".split()) == 0
    # If the functions joined keys with spaces, some of these lists would look like the original one.
    for keys in ("x",), ("x", "y"), ("x y of 9 10 60 5",), ("x y", "x"):
        settle = f"FCALL settle {1 + len(keys)} call"
        recipe.refuses("reserved with different arguments", recipe.ask, settle, *keys, *(9 for _ in keys))
    assert recipe.ask("FCALL settle 2 call", "x y", 9) == 1


def test_at_maxmemory_calls_are_settled_and_none_is_reserved(recipe, ask):
    """Otherwise, slots would stay taken until their leases end, and unused tokens would not be given back."""
    ask(NEW)
    recipe("CONFIG SET maxmemory 1")
    for call in "renew 2 {a}:new {a}:calls 60000", "settle 4 {a}:new {a}:calls {a}:requests {a}:tokens 1 600":
        assert ask(call) == 1
    assert ask("reservations 1 {a}:calls") == 0
    recipe.refuses("maxmemory", ask, NEW)
