//! The state is a native string, and all that the server does with strings works on it.

use std::thread::sleep;
use std::time::Duration;

use crate::support::{Server, command, now, run, throttle};

const SECOND: i64 = 1_000_000_000;

#[test]
fn the_key_holds_the_tat_and_expires_with_it() {
    let server = Server::start();
    let mut connection = server.connect();
    let before = now();
    throttle(&mut connection, "key 15 30 60 3");
    let after = now();
    let tat: i64 = run(&mut connection, "GET key").unwrap();
    assert!((before + 6 * SECOND..=after + 6 * SECOND).contains(&tat));
    assert_eq!(run::<String>(&mut connection, "TYPE key").unwrap(), "string");
    let ttl: i64 = run(&mut connection, "PTTL key").unwrap();
    // The server's clock may have moved on since, but not past the TAT's millisecond.
    assert!(ttl <= 6_001 && now() + ttl * 1_000_000 >= tat, "{ttl}");
    assert_eq!(run::<i64>(&mut connection, "TTL key").unwrap(), 6);
}

#[test]
fn the_key_expires_at_the_tats_millisecond_rounded_up() {
    let server = Server::start();
    let mut connection = server.connect();
    // One token leaks in a nanosecond: rounded down, such a key would be gone at once.
    for rate in ["7 1", "1000 1", "1000000 1", "999999937 1"] {
        for call in 0..50 {
            let key = format!("{{{rate}}}{call}").replace(' ', "/");
            // Both within one millisecond of the server's clock, mostly: PTTL then tells the time of expiry.
            let (tat, seconds, microseconds, ttl): (Option<i64>, i64, i64, i64) = {
                let mut pipeline = redis::pipe();
                pipeline.atomic().cmd("CL.THROTTLE").arg(&key).arg(1000);
                rate.split(' ').for_each(|word| {
                    pipeline.arg(word);
                });
                pipeline.ignore().cmd("GET").arg(&key).cmd("TIME").cmd("PTTL").arg(&key);
                let (tat, (seconds, microseconds), ttl): (Option<i64>, (i64, i64), i64) =
                    pipeline.query(&mut connection).unwrap();
                (tat, seconds, microseconds, ttl)
            };
            let Some(tat) = tat else { continue };
            if ttl > 0 {
                let expires_at = seconds * 1_000 + microseconds / 1_000 + ttl;
                let rounded_up = (tat + 999_999) / 1_000_000;
                assert!((rounded_up - 1..=rounded_up + 1).contains(&expires_at), "{expires_at} for {tat}");
            }
        }
    }
}

#[test]
fn an_empty_funnel_costs_no_memory() {
    let server = Server::start();
    let mut connection = server.connect();
    // In one go, as it takes the funnel just 100 ms to empty.
    let ([limited, ..], keys): ([i64; 5], i64) = redis::pipe()
        .atomic()
        .add_command(command("CL.THROTTLE key 4 50 1 5"))
        .cmd("DBSIZE")
        .query(&mut connection)
        .unwrap();
    assert_eq!((limited, keys), (0, 1));
    sleep(Duration::from_millis(102));
    assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap());
    assert_eq!(throttle(&mut connection, "key 4 50 1 0"), [0, 5, 5, -1, 0]);
}

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
fn a_key_written_by_redis_cell_is_read_whatever_its_ttl() {
    let server = Server::start();
    let mut connection = server.connect();
    for expiry in ["", "EX 1000", "PX 50000", "KEEPTTL"] {
        let tat = now() + 120 * SECOND;
        run::<()>(&mut connection, &format!("SET key {tat} {expiry}")).unwrap();
        assert_eq!(throttle(&mut connection, "key 4 1 60 0"), [0, 5, 3, -1, 120], "{expiry}");
        assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 2, -1, 180], "{expiry}");
        let stored: i64 = run(&mut connection, "GET key").unwrap();
        assert_eq!(stored, tat + 60 * SECOND);
        assert_eq!(run::<i64>(&mut connection, "TTL key").unwrap(), 180);
    }
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
        assert!((0..SECOND).contains(&(now() + 60 * SECOND - tat.parse::<i64>().unwrap())));
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
    assert_eq!(run::<i64>(&mut connection, "TTL key").unwrap(), 100);
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
