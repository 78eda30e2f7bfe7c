//! The state, a native string: every command of the server for strings works on it. Its expiry is in clock.rs.

use crate::support::{Server, now, run, throttle};

const SECOND: i64 = 1_000_000_000;

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
fn a_dumped_limiter_goes_on_where_it_was_when_restored() {
    let server = Server::start();
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 60 2");
    let tat: String = run(&mut connection, "GET key").unwrap();
    let ttl: i64 = run(&mut connection, "PTTL key").unwrap();
    let dump: Vec<u8> = run(&mut connection, "DUMP key").unwrap();
    redis::cmd("RESTORE").arg("copy").arg(ttl).arg(dump).exec(&mut connection).unwrap();
    assert_eq!(run::<String>(&mut connection, "GET copy").unwrap(), tat);
    assert_eq!(throttle(&mut connection, "copy 4 1 60"), [0, 5, 2, -1, 180]);
    run::<()>(&mut connection, "RENAME copy moved").unwrap();
    assert_eq!(throttle(&mut connection, "moved 4 1 60"), [0, 5, 1, -1, 240]);
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

#[test]
fn a_tat_beyond_the_tolerance_limits_even_a_look_and_is_left_alone() {
    let server = Server::start();
    let mut connection = server.connect();
    run::<()>(&mut connection, "SET key 9223372036854775807 EX 100").unwrap();
    let [limited, limit, remaining, retry_after, reset_after] = throttle(&mut connection, "key 4 1 60 0");
    assert_eq!((limited, limit, remaining), (1, 5, 0));
    assert!(retry_after > 7_000_000_000 && reset_after == retry_after + 300);
    assert_eq!(run::<String>(&mut connection, "GET key").unwrap(), "9223372036854775807");
    assert!((90..=100).contains(&run::<i64>(&mut connection, "TTL key").unwrap()));
}

#[test]
fn keys_are_bytes() {
    let server = Server::start();
    let mut connection = server.connect();
    let keys: [&[u8]; 5] = [b"", b"\0", b"a\0b", b"\xff\xfe\xc0", &[b'k'; 100_000]];
    for key in keys {
        let mut call = redis::cmd("CL.THROTTLE");
        call.arg(key).arg(4).arg(1).arg(60);
        assert_eq!(call.query::<[i64; 5]>(&mut connection).unwrap(), [0, 5, 4, -1, 60]);
        assert_eq!(call.query::<[i64; 5]>(&mut connection).unwrap(), [0, 5, 3, -1, 120]);
    }
    assert_eq!(run::<usize>(&mut connection, "DBSIZE").unwrap(), keys.len());
}
