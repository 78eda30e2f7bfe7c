//! Attacks from within the server: on any event, another module deletes, rewrites or throttles the keys of the call
//! that it interrupts. The server must survive, and each reply must have its right shape.

use redis::{Connection, FromRedisValue, Value};

use crate::support::callbacks::{HARM, call, harm_to};
use crate::support::clock::{Clock, START};
use crate::support::expected::{NOT_A_STATE, WRONG_TYPE};
use crate::support::needs::assert_key_sizes;
use crate::support::random::Random;
use crate::support::{compiled, run, setting};

#[test]
fn random_callbacks_end_no_server_and_no_reply_is_out_of_shape() {
    let seed = setting("FUZZ_SEED", 1);
    let mut random = Random::new(seed);
    // Without the setting, redis-cell announces nothing, and the rules on its own events never run.
    let settings = ["--loadmodule", compiled("callbacks"), "--notify-keyspace-events", "Ad"];
    let (clock, server, mut connection) = Clock::start_with(START, &settings);
    assert_key_sizes(&mut connection);
    let keys = ["a", "b", "c", "d", "%"];
    let events = ["expired", "cl.throttle", "cl.limited", "set", "del", "expire"];
    for round in 0..setting("FUZZ_CALLS", 20_000) as i64 / 50 {
        let mut sent = Sent { seed, lines: Vec::new() };
        sent.at(&clock, START + round * 4_000_000);
        // Turn off the callbacks while the keys are prepared: with some, the server's own commands crash it.
        sent.run::<()>(&mut connection, "CB.CLEAR");
        for key in &keys[..4] {
            // Delete a value that is not a state: otherwise all calls on it would be refused.
            let length = run::<i64>(&mut connection, &format!("STRLEN {key}"));
            if length != Ok(19) || random.one_in(8) {
                sent.run::<()>(&mut connection, &format!("DEL {key}"));
                if random.one_in(2) {
                    sent.run::<Value>(&mut connection, &format!("CL.THROTTLE {key} 9 1 60 3"));
                }
            }
        }
        if random.one_in(4) {
            sent.run::<()>(&mut connection, &format!("SET {} 1 PX 1", random.pick(&keys[..4])));
            sent.at(&clock, START + round * 4_000_000 + 2_000_000);
        }
        if random.one_in(20) {
            sent.lines.push("SADD b text".to_string());
            let _ = run::<Value>(&mut connection, "SADD b text");
        }
        for _ in 0..random.below(5) {
            let rule = harm_to(random.pick(&keys), random.pick(&HARM));
            sent.run::<()>(&mut connection, &format!("CB.DO {} {rule}", random.pick(&events)));
        }
        let mut group = |key: usize| format!("{} 9 1 60 {}", keys[key], random.below(4));
        let [a, b, c, d] = [0, 1, 2, 3].map(&mut group);
        let line = match random.below(5) {
            0 => format!("CL.THROTTLE {a}"),
            1 => format!("CL.PTHROTTLE {b}"),
            // A look on a primary deletes an expired key, as GET does, and a callback may then write the key.
            4 => format!("CL.LOOK {a}"),
            2 => format!("CL.MTHROTTLE {c} {a} {d} {b}"),
            _ => format!("CL.MTHROTTLE {b} {d}"),
        };
        sent.lines.push(line.clone());
        match call(&server, &mut connection, &line) {
            Ok(Value::Array(items)) if line.starts_with("CL.M") => {
                assert!(matches!(items[0], Value::Int(0 | 1)) && items[1..].iter().all(is_five_integers), "{items:?}");
            }
            Ok(reply) => assert!(is_five_integers(&reply), "{reply:?}"),
            Err(error) => assert!(error.starts_with(NOT_A_STATE) || error.starts_with(WRONG_TYPE), "{error}"),
        }
    }
}

fn is_five_integers(reply: &Value) -> bool {
    redis::from_redis_value_ref::<[i64; 5]>(reply).is_ok()
}

/// The moments and the commands of a round. They are printed if it fails.
struct Sent {
    seed: u64,
    lines: Vec<String>,
}

impl Sent {
    fn at(&mut self, clock: &Clock, nanos: i64) {
        self.lines.push(format!("# at {nanos} ns"));
        clock.set(nanos);
    }

    fn run<T: FromRedisValue>(&mut self, connection: &mut Connection, line: &str) {
        self.lines.push(line.to_string());
        run::<T>(connection, line).unwrap();
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("FUZZ_SEED={}, the last round:\n{}", self.seed, self.lines.join("\n"));
        }
    }
}
