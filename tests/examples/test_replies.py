"""Replies of another shape, as of a proxy, another server or another module: they are no answer."""

import pytest

from applications import APPLICATIONS, PROGRAMS, named, on
from servers import Address, passed_on, saying

NUMBERS = b":0\r\n:3\r\n:2\r\n:-1\r\n:60\r\n"
REPLIES = [
    *(b"*0\r\n", b"*-1\r\n", b"*-7\r\n", b"*x\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"$-7\r\n", b":0\r\n", b":1\r\n"),
    *(b"+OK\r\n", b"-ERR no\r\n", b"-\r\n", b"\r\n", b"\0\r\n", b"$5\r\nabcdefgh\r\n"),
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"*1\r\n:0\r\n",
    b"*4\r\n:0\r\n:3\r\n:2\r\n:-1\r\n",
    b"*6\r\n" + NUMBERS + b":1\r\n",
    b"*5\r\n" + 5 * b"$-1\r\n",
    b"*5\r\n" + NUMBERS.replace(b":", b"+"),
    b"*5\r\n" + b"$1\r\n0\r\n" * 5,
    b"*5\r\n" + b"*1\r\n:0\r\n" * 5,
    b"*1\r\n*5\r\n" + NUMBERS,
    b"*5\r\n" + b"-ERR no\r\n" * 5,
    # RESP3: doubles, no number, booleans, a null, a large number, a map.
    b"*5\r\n" + b",0.5\r\n" * 5,
    b"*5\r\n" + b",nan\r\n" * 5,
    b"*5\r\n" + b"#f\r\n" * 5,
    b"*5\r\n" + b"_\r\n" * 5,
    b"*5\r\n" + b"(99999999999999999999\r\n" * 5,
    b"%2\r\n:0\r\n:3\r\n:2\r\n:-1\r\n",
    b"*1\r\n" * 100_000,
]

# Some replies leave a client waiting for more.
@on(APPLICATIONS, TIMEOUT=0.5)
def test_a_reply_of_another_shape_is_no_answer(app, address, server):
    for reply in REPLIES:
        address.filter = saying(reply)
        for answer in app.calls(3, app.is_alone()):
            assert answer.number("Remaining") is None and answer.status in (200, 429), (reply, answer)
            assert (answer.status == 429) == bool(answer.number("Retry-After")), (reply, answer)
        address.filter = passed_on
        address.break_off()
        app.finds(server)


@on(named("express", "nginx"))
def test_with_several_quotas_a_reply_has_six_integers(app, address):
    address.filter = saying(b"*5\r\n" + NUMBERS)
    assert app.get("/items", app.caller()).number("Limit") is None
    address.filter = saying(b"*6\r\n" + NUMBERS + b":1\r\n")
    assert app.get("/items", app.caller()).number("Quota") == 1


# A program that takes what is missing for 0 would pass each call.
@on(PROGRAMS, fixture="program", TIMEOUT=2, FAIL="closed")
@pytest.mark.parametrize("reply", [b"*0\r\n", b"*4\r\n:0\r\n:3\r\n:2\r\n:-1\r\n", b"*5\r\n" + 5 * b"$-1\r\n"], ids=repr)
def test_a_program_takes_no_reply_of_another_shape(program, server, reply):
    address = Address(server)
    address.filter = saying(reply)
    assert program.output(address.port).count("503 Retry-After: 1\n") == 5
