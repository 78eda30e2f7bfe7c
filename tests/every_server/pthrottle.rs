//! CL.PTHROTTLE is CL.THROTTLE in milliseconds, on the same state.

use crate::support::clock::{Clock, MILLISECOND, START};
use crate::support::{Server, run, throttle};

fn pthrottle(connection: &mut redis::Connection, arguments: &str) -> [i64; 5] {
    run(connection, &format!("CL.PTHROTTLE {arguments}")).unwrap()
}

#[test]
fn period_and_waits_are_in_milliseconds() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(pthrottle(&mut connection, "key 4 1 600000"), [0, 5, 4, -1, 600_000]);
    // A clock that moves on between the calls shows in milliseconds, as it does not in minutes.
    let [limited, limit, remaining, retry_after, reset_after] = pthrottle(&mut connection, "key 4 1 600000 5");
    assert_eq!((limited, limit, remaining), (1, 5, 4));
    assert!((599_000..=600_000).contains(&retry_after) && retry_after == reset_after);
}

#[test]
fn a_period_below_a_second_limits_and_brings_tokens_back() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(pthrottle(&mut connection, "key 0 1 250"), [0, 1, 0, -1, 250]);
    clock.set(START + 100 * MILLISECOND);
    assert_eq!(pthrottle(&mut connection, "key 0 1 250"), [1, 1, 0, 150, 150]);
    clock.set(START + 250 * MILLISECOND);
    assert_eq!(pthrottle(&mut connection, "key 0 1 250"), [0, 1, 0, -1, 250]);
}

#[test]
fn a_limiter_may_be_driven_by_one_and_looked_at_by_the_other() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(pthrottle(&mut connection, "key 4 1 60000 2")[..3], [0, 5, 3]);
    assert_eq!(throttle(&mut connection, "key 4 1 60 0"), [0, 5, 3, -1, 120]);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 2, -1, 180]);
    assert_eq!(pthrottle(&mut connection, "key 4 1 60000 0")[..3], [0, 5, 2]);
    let state: String = run(&mut connection, "GET key").unwrap();
    assert_eq!(state.len(), 19);
}
