//! The state, a native string: every command of the server for strings works on it. Its expiry is in clock.rs.

use crate::support::clock::SECOND;
use crate::support::{Server, now, run, throttle};

#[test]
fn deleting_the_key_resets_the_limiter() {
    let server = Server::start();
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 60 5");
    assert_eq!(throttle(&mut connection, "key 4 1 60")[0], 1);
    run::<()>(&mut connection, "DEL key").unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);
}

#[test]
fn a_state_with_zeros_in_front_is_rewritten_whole() {
    let server = Server::start();
    let mut connection = server.connect();
    for old in ["0000000000000000000", "0000000000000000001", "0999999999999999999"] {
        run::<()>(&mut connection, &format!("SET key {old}")).unwrap();
        assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60], "{old}");
        let tat: String = run(&mut connection, "GET key").unwrap();
        assert_eq!(tat.len(), 19);
        // The bound leaves ten seconds to a slow machine.
        assert!((0..10 * SECOND).contains(&(now() + 60 * SECOND - tat.parse::<i64>().unwrap())));
    }
}
