"""Tests of docs/recipes/ban.lua: the wrong password that uses up the last token starts a ban, longer each time."""

import pytest
import redis

KEYS = "wrong banned offences , "
# Five wrong passwords are allowed at once, and then one a minute. An offence is forgotten after a day. MINUTE and DAY
# are in milliseconds, and the lengths of the bans are in seconds.
MINUTE, DAY, BANS = 60_000, 86_400_000, (60, 600, 3600)
CALL = KEYS + "4 1 60 86400 60 600 3600"


@pytest.fixture
def ban(recipe):
    recipe.restrict("recipes/ban.lua")
    return lambda words=CALL: recipe.eval("recipes/ban.lua", words)


def test_a_ban_grows_with_each_offence_and_is_not_extended_while_it_lasts(recipe, ban, chance):
    now = wrong_full = offences_full = banned = 0
    bans = set()
    for _ in range(2_000):
        if chance.random() < 0.3:
            now += chance.choice((0, 0, 0, 1, chance.randrange(MINUTE), chance.randrange(DAY)))
        if chance.random() < 0.1:
            now = max(now, banned + chance.choice((-1, 1)))
        # Skip the last millisecond of a ban, because server versions differ in whether the key still exists then.
        now += now == banned
        recipe.at(now)
        wrong_full, offences_full = max(wrong_full, now), max(offences_full, now)
        if now < banned:
            expected = banned - now
        else:
            if wrong_full + MINUTE <= now + 5 * MINUTE:
                wrong_full += MINUTE
            # A token for another wrong password is left, so no ban starts.
            if wrong_full + MINUTE <= now + 5 * MINUTE:
                expected = banned = 0
            else:
                offence = min((offences_full - now + DAY - 1) // DAY, 2)
                if offences_full + DAY <= now + 3 * DAY:
                    offences_full += DAY
                expected = 1000 * BANS[offence]
                banned = now + expected
                bans.add(BANS[offence])
        assert ban() == expected, now
    assert bans == {*BANS}


def test_a_wrong_password_that_gets_an_error_is_not_counted(recipe, ban):
    # Use up all tokens but one, so that the next wrong password starts a ban.
    recipe("CL.THROTTLE wrong 4 1 60 4")
    for words, error in {
        KEYS + "4 1 60 86400": "wrong number of arguments",
        KEYS + "4 1 60 86400 60 nan": "ban 2 must be a whole number of seconds, of at most 8 digits",
        KEYS + "4 1 60 86400 100000000": "ban 1 ",
        KEYS + "4 1 60 0 60 600": "the time .* must be",
        KEYS + "4 0 60 86400 60": "count must be 1 or more",
    }.items():
        recipe.refuses(error, ban, words)
    assert ban(KEYS + "4 1 60 99999999 99999999") == 99_999_999_000
    assert recipe("TTL banned") == 99_999_999
    # The error keeps its code, READONLY, which tells clients that a failover has made the server a replica.
    recipe("FLUSHALL")
    recipe("REPLICAOF 127.0.0.1 1")
    with pytest.raises(redis.ReadOnlyError):
        ban()
