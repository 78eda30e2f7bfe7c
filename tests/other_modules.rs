//! Other modules run code of their own when a key expires and when something is announced: whatever they do to the keys of
//! a call, the server stays up, and the reply is what the rule says of what each key held when it was read.

use redis::{Connection, Value};

use crate::support::callbacks::{HARM, call, expire, harm_to, start};
use crate::support::expected::{NOT_A_STATE, WRONG_TYPE, in_group, integers, limited_and_groups};
use crate::support::needs::needs;
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, run, snapshot, throttle};

/// Nothing but a limiter, and a key that has expired: when the server finds out, another module does this to the limiter.
fn limiter_and_expired_key(connection: &mut Connection, harm: &str) {
    run::<()>(connection, "FLUSHALL").unwrap();
    run::<()>(connection, "CB.CLEAR").unwrap();
    throttle(connection, "limiter 4 1 60 2");
    expire(connection, "expired");
    run::<()>(connection, &format!("CB.DO expired {}", harm_to("limiter", harm))).unwrap();
}

#[test]
fn a_key_that_expires_may_take_the_keys_with_it_that_its_call_has_read() {
    let (server, mut connection) = start(&[]);
    for harm in HARM {
        limiter_and_expired_key(&mut connection, harm);
        // The callback comes when the second is read, or else when it is written: too late for what was decided.
        let reply = call(&server, &mut connection, "CL.MTHROTTLE limiter 4 1 60 1 expired 4 1 60 1");
        let reply = limited_and_groups(&reply.unwrap()).unwrap();
        assert_eq!(reply, (false, vec![[0, 5, 2, -1, 180], [0, 5, 4, -1, 60]]), "{harm}");
        assert_eq!(run::<i64>(&mut connection, "CB.COUNT expired").unwrap(), 1);
        // What was decided is written whole, over whatever is there by then.
        assert_eq!(throttle(&mut connection, "limiter 4 1 60 0")[..3], [0, 5, 2], "{harm}");
    }
}

#[test]
fn a_key_that_expires_may_take_the_keys_with_it_that_its_call_has_yet_to_read() {
    let (server, mut connection) = start(&[]);
    for harm in HARM {
        limiter_and_expired_key(&mut connection, harm);
        let reply = call(&server, &mut connection, "CL.MTHROTTLE expired 4 1 60 1 limiter 4 1 60 1");
        let gone = [0, 5, 4, -1, 60];
        let limiters = match harm {
            "DEL" | "CB.DELETE" | "UNLINK" => vec![gone],
            "CL.THROTTLE KEY 4 1 60" => vec![[0, 5, 1, -1, 240]],
            // The machine may be so slow that it has.
            "PEXPIRE KEY 1" => vec![[0, 5, 2, -1, 180], gone],
            _ => {
                assert_eq!(reply, Err(in_group(2, NOT_A_STATE.into())), "{harm}");
                continue;
            }
        };
        let reply = limited_and_groups(&reply.unwrap()).unwrap();
        assert!(
            limiters.into_iter().any(|limiter| reply == (false, vec![[0, 5, 4, -1, 60], limiter])),
            "{harm}: {reply:?}"
        );
    }
}

/// The call has read a key that is not there, and finds one where it writes.
#[test]
fn a_key_that_expires_may_be_there_again_at_once() {
    let (server, mut connection) = start(&[]);
    let replica = Server::start();
    replicate(&replica, &server);
    let again = ["SET KEY text", "CB.SET KEY text", "HSET KEY field text", "CL.THROTTLE KEY 4 1 60"];
    for harm in again.into_iter().chain(HARM.into_iter().filter(|harm| harm.starts_with("SET KEY x"))) {
        for line in ["CL.THROTTLE one 4 1 60 2", "CL.MTHROTTLE two 4 1 60 2 one 4 1 60 2"] {
            run::<()>(&mut connection, "FLUSHALL").unwrap();
            run::<()>(&mut connection, "CB.CLEAR").unwrap();
            expire(&mut connection, "one");
            run::<()>(&mut connection, &format!("CB.DO expired {}", harm_to("one", harm))).unwrap();
            let reply = call(&server, &mut connection, line);
            assert_eq!(run::<i64>(&mut connection, "CB.COUNT expired").unwrap(), 1);
            // Redis 6.2 looks again before it says that there is no key.
            let refusals = [NOT_A_STATE, WRONG_TYPE].map(|refusal| [refusal.to_string(), in_group(2, refusal.into())]);
            if reply.as_ref().is_err_and(|error| refusals.as_flattened().contains(error)) {
                continue;
            }
            reply.unwrap();
            // What was decided is written whole: of five, two are taken, or on Redis 6.2 three, by both calls.
            let held = throttle(&mut connection, "one 4 1 60 0");
            assert!(matches!(held[..3], [0, 5, 2 | 3]), "{harm}, {line}: {held:?}");
            catch_up(&replica, &server);
            assert_eq!(snapshot(&mut replica.connect()), snapshot(&mut connection), "{harm}, {line}");
        }
    }
}

#[test]
fn whoever_is_told_of_a_call_may_delete_or_rewrite_its_keys() {
    let (server, mut connection) = start(&["--notify-keyspace-events", "Ed"]);
    for event in ["cl.throttle", "cl.limited"] {
        for harm in HARM {
            for (quantity, left) in [(1, [0, 5, 2, -1, 180]), (4, [1, 5, 3, 60, 120])] {
                let ready = |connection: &mut Connection| {
                    run::<()>(connection, "CB.CLEAR").unwrap();
                    for key in ["one", "two", "three"] {
                        run::<()>(connection, &format!("DEL {key}")).unwrap();
                        throttle(connection, &format!("{key} 4 1 60 2"));
                    }
                    for key in ["%", "one", "two", "three"] {
                        let rule = format!("CB.DO {event} {}", harm_to(key, harm));
                        run::<()>(connection, &rule).unwrap();
                    }
                };
                ready(&mut connection);
                let line = format!("CL.THROTTLE one 4 1 60 {quantity}");
                let reply = call(&server, &mut connection, &line).unwrap();
                assert_eq!(integers(&reply), Some(left), "{event} {harm}");

                ready(&mut connection);
                let groups = ["one", "two", "three"].map(|key| format!("{key} 4 1 60 {quantity}"));
                let line = format!("CL.MTHROTTLE {}", groups.join(" "));
                let reply = call(&server, &mut connection, &line).unwrap();
                let expected = (left[0] == 1, vec![left; 3]);
                assert_eq!(limited_and_groups(&reply), Some(expected), "{event} {harm}");
            }
        }
    }
}

/// `new` comes from within the call that makes the key a string. A callback that deletes the key
/// there ends every server, and on Redis 8 one that rewrites it, as they do at the server's own `SET key value PX 1000`.
#[test]
fn whoever_is_told_of_a_new_key_may_let_it_expire() {
    needs!("an event for a new key, Redis 7");
    let (server, mut connection) = start(&[]);
    // Not at once, however slow the server: that would be DEL.
    run::<()>(&mut connection, "CB.DO new PEXPIRE % 1000").unwrap();
    let reply = call(&server, &mut connection, "CL.THROTTLE one 4 1 60").unwrap();
    assert_eq!(integers(&reply), Some([0, 5, 4, -1, 60]));
    assert_eq!(run::<i64>(&mut connection, "CB.COUNT new").unwrap(), 1);
    run::<()>(&mut connection, "FLUSHALL").unwrap();
    let line = "CL.MTHROTTLE one 4 1 60 1 two 4 1 60 1";
    let reply = call(&server, &mut connection, line).unwrap();
    let expected = (false, vec![[0, 5, 4, -1, 60]; 2]);
    assert_eq!(limited_and_groups(&reply), Some(expected));
}

#[test]
fn modules_are_told_of_every_call_where_the_setting_has_the_class() {
    for (flags, told) in [("", [0, 0]), ("d", [2, 3]), ("Ed", [2, 3]), ("KEA", [2, 3])] {
        let (_server, mut connection) = start(&["--notify-keyspace-events", flags]);
        for line in [
            "CL.THROTTLE one 0 1 60",
            "CL.THROTTLE one 0 1 60",
            "CL.PTHROTTLE two 0 1 60000",
            "CL.MTHROTTLE two 0 1 60 1 one 0 1 60 1 three 0 1 60 1",
        ] {
            run::<Value>(&mut connection, line).unwrap();
        }
        let mut count = |event: &str| -> i64 { run(&mut connection, &format!("CB.COUNT {event}")).unwrap() };
        assert_eq!([count("cl.throttle"), count("cl.limited")], told, "{flags:?}");
    }
}
