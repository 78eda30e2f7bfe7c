//! Attacks from within the server: on any event, another module deletes, rewrites or throttles the keys of the call
//! that it interrupts. The server must survive, and each reply must have its right shape.

use redis::Value;

use crate::support::callbacks::{HARM, call};
use crate::support::clock::{Clock, MILLISECOND, START};
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
        let now = START + round * 4 * MILLISECOND;
        clock.set(now);
        // Turn off the callbacks while the keys are prepared: with some, the server's own commands crash it.
        run::<()>(&mut connection, "CB.CLEAR").unwrap();
        let mut keys_made = Vec::new();
        for key in &keys[..4] {
            // Delete a value that is not a state: otherwise all calls on it would be refused.
            let length = run::<i64>(&mut connection, &format!("STRLEN {key}"));
            if length != Ok(19) || random.one_in(8) {
                keys_made.push(format!("DEL {key}"));
                if random.one_in(2) {
                    keys_made.push(format!("CL.THROTTLE {key} 9 1 60 3"));
                }
            }
        }
        if random.one_in(4) {
            keys_made.push(format!("SET {} 1 PX 1", random.pick(&keys[..4])));
        }
        if random.one_in(20) {
            keys_made.extend(["DEL b", "SADD b text"].map(String::from));
        }
        let rules = (0..random.below(5)).map(|_| {
            let harm = random.pick(&HARM).replace("KEY", random.pick(&keys));
            format!("CB.DO {} {harm}", random.pick(&events))
        });
        let rules: Vec<_> = rules.collect();
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
        // A failure shows this line of the last round.
        println!("FUZZ_SEED={seed}, round {round}: {keys_made:?}, {rules:?}, {line}");
        for line in &keys_made {
            run::<Value>(&mut connection, line).unwrap();
        }
        // A key that was made for a millisecond has expired.
        clock.set(now + 2 * MILLISECOND);
        for rule in &rules {
            run::<()>(&mut connection, rule).unwrap();
        }
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
