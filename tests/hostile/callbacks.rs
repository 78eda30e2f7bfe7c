//! Attacks calls from within the server: on any event, another module deletes, rewrites or throttles the keys of the
//! call that it interrupts. No reply may be out of shape.

use redis::Value;

use crate::support::callbacks::{HARM, call, expire, harm_to, start};
use crate::support::expected::{NOT_A_STATE, WRONG_TYPE, integers, limited_and_groups};
use crate::support::random::Random;
use crate::support::{run, setting, throttle};

#[test]
fn random_callbacks_end_no_server_and_no_reply_is_out_of_shape() {
    let seed = setting("FUZZ_SEED", 1);
    let mut random = Random::new(seed);
    let (server, mut connection) = start(&[]);
    let keys = ["a", "b", "c", "d", "%"];
    let events = ["expired", "cl.throttle", "cl.limited", "set", "del", "expire"];
    for _ in 0..setting("FUZZ_CALLS", 20_000) / 50 {
        // Not while the keys are made ready: the server's own commands do not survive all of this.
        run::<()>(&mut connection, "CB.CLEAR").unwrap();
        for key in &keys[..4] {
            // What is no state would only be refused from now on.
            let length = run::<i64>(&mut connection, &format!("STRLEN {key}"));
            if length != Ok(19) || random.one_in(8) {
                run::<()>(&mut connection, &format!("DEL {key}")).unwrap();
                if random.one_in(2) {
                    throttle(&mut connection, &format!("{key} 9 1 60 3"));
                }
            }
        }
        if random.one_in(4) {
            expire(&mut connection, random.pick(&keys[..4]));
        }
        if random.one_in(20) {
            let _ = run::<Value>(&mut connection, "SADD b text");
        }
        for _ in 0..random.below(5) {
            let rule = harm_to(random.pick(&keys), random.pick(&HARM));
            let rule = format!("CB.DO {} {rule}", random.pick(&events));
            run::<()>(&mut connection, &rule).unwrap();
        }
        let mut group = |key: usize| format!("{} 9 1 60 {}", keys[key], random.below(4));
        let [a, b, c, d] = [0, 1, 2, 3].map(&mut group);
        let line = match random.below(4) {
            0 => format!("CL.THROTTLE {a}"),
            1 => format!("CL.PTHROTTLE {b}"),
            2 => format!("CL.MTHROTTLE {c} {a} {d} {b}"),
            _ => format!("CL.MTHROTTLE {b} {d}"),
        };
        let several = line.starts_with("CL.M");
        match call(&server, &mut connection, &line) {
            Ok(reply) if several => {
                assert!(limited_and_groups(&reply).is_some(), "{line}: {reply:?}")
            }
            Ok(reply) => assert!(integers(&reply).is_some(), "{line}: {reply:?}"),
            Err(error) => {
                assert!(error.starts_with(NOT_A_STATE) || error.starts_with(WRONG_TYPE), "seed {seed}, {line}: {error}")
            }
        }
    }
}
