"""docs/recipes/ban.lua: a ban after too many attempts, longer with each offence."""

import math

import pytest
import redis

KEYS = "attempts banned offences , "
# Five attempts and one a minute; an offence is forgotten after a day; the bans.
MINUTE, DAY, BANS = 60_000, 86_400_000, (60, 600, 3600)
CALL = KEYS + "4 1 60 86400 60 600 3600"


@pytest.fixture
def ban(recipe):
    recipe.restrict("recipes/ban.lua")
    return lambda words=CALL: recipe.eval("recipes/ban.lua", words)


def test_a_ban_grows_with_each_offence_and_lasts_until_an_attempt_is_back(recipe, ban, chance):
    now = attempts_full = offences_full = banned = 0
    bans = set()
    for _ in range(2_000):
        if chance.random() < 0.3:
            now += chance.choice((0, 0, 0, 1, chance.randrange(MINUTE), chance.randrange(DAY)))
        if chance.random() < 0.1:
            now = max(now, banned + chance.choice((-1, 1)))
        # In the last millisecond of a key, servers differ.
        now += now == banned
        recipe.at(now)
        attempts_full, offences_full = max(attempts_full, now), max(offences_full, now)
        if now < banned:
            expected = banned - now
        elif attempts_full + MINUTE <= now + 5 * MINUTE:
            attempts_full, banned, expected = attempts_full + MINUTE, 0, 0
        else:
            offence = min((offences_full - now + DAY - 1) // DAY, 2)
            if offences_full + DAY <= now + 3 * DAY:
                offences_full += DAY
            wait = math.ceil((attempts_full - now - 4 * MINUTE) / 1000)
            expected = 1000 * max(BANS[offence], wait)
            banned = now + expected
            bans.add(BANS[offence])
        assert ban() == expected, now
    assert bans == {*BANS}
    assert [ban("other keys here , 0 1 86400 86400 3600") for _ in range(2)] == [0, DAY]


def test_a_ban_that_cannot_be_set_charges_neither_an_attempt_nor_an_offence(recipe, ban):
    # The caller has no attempt left: the next one begins a ban.
    recipe("CL.THROTTLE attempts 4 1 60 5")
    for words, error in {
        KEYS + "4 1 60 86400": "wrong number of arguments",
        KEYS + "4 1 60 86400 60 nan": "ban 2 must be a whole number of seconds, from 1 to 6000000000",
        KEYS + "4 1 60 86400 6000000001": "ban 1 ",
        KEYS + "4 1 60 6000000000 60 600": "the time .* from 1 to 3000000000",
        "attempts attempts offences , 4 1 60 86400 60": "need a key each",
    }.items():
        recipe.refuses(error, ban, words)
    recipe("ACL SETUSER app -set")
    recipe.refuses("permission|can't run", ban)
    recipe("ACL SETUSER app +set")
    # Redis 7.2 writes this number of a script as 6e+12.
    assert ban(KEYS + "4 1 60 86400 6000000000") == 6 * 10**12
    assert recipe("TTL banned") == 6 * 10**9
    # A client tells from the error's code that a failover has made its server a replica.
    recipe("FLUSHALL")
    recipe("REPLICAOF 127.0.0.1 1")
    with pytest.raises(redis.ReadOnlyError):
        ban()
