//! CL.TAKE: it takes the tokens that are there, up to the quantity, and says how many.

use crate::support::clock::{Clock, START};
use crate::support::run;

fn take(connection: &mut redis::Connection, arguments: &str) -> [i64; 5] {
    run(connection, &format!("CL.TAKE {arguments}")).unwrap()
}

#[test]
fn the_first_integer_is_how_many_were_taken() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(take(&mut connection, "key 9 1 1 4"), [4, 10, 6, -1, 4]);
    assert_eq!(take(&mut connection, "key 9 1 1 0"), [0, 10, 6, -1, 4], "a look");
    assert_eq!(take(&mut connection, "key 9 1 1 100"), [6, 10, 0, 1, 10]);
    assert_eq!(take(&mut connection, "key 9 1 1 100"), [0, 10, 0, 1, 10]);
    assert_eq!(run::<i64>(&mut connection, "GET key").unwrap(), START + 10_000_000_000);
    // One more token is there.
    clock.set(START + 1_000_000_000);
    assert_eq!(take(&mut connection, "key 9 1 1 100"), [1, 10, 0, 1, 10]);
    clock.set(START + 4_500_000_000);
    assert_eq!(take(&mut connection, "key 9 1 1 100"), [3, 10, 0, 1, 10]);
}

#[test]
fn cl_ptake_counts_in_milliseconds() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(run::<[i64; 5]>(&mut connection, "CL.PTAKE key 4 1 250 9").unwrap(), [5, 5, 0, 250, 1250]);
}
