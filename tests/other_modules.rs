//! Other modules run code of their own when a key expires and when something is announced: whatever they do to the keys of
//! a call, the server stays up, and the reply is what the rule says of what each key held when it was read.

use redis::{Connection, Value};

use crate::support::callbacks::start;
use crate::support::expected::{NOT_A_STATE, WRONG_TYPE, error_text, in_group, integers, limited_and_groups};
use crate::support::needs::needs;
use crate::support::random::Random;
use crate::support::{Server, run, setting, throttle};

/// What a callback may do to a key.
const HARM: [&str; 8] = [
    "DEL",
    "CB.DELETE",
    "UNLINK",
    "SET KEY text",
    // Too long for a string that is kept within its object.
    "SET KEY xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "APPEND KEY xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "PEXPIRE KEY 1",
    "CL.THROTTLE KEY 4 1 60",
];

/// As a command on this key.
fn harm_to(key: &str, harm: &str) -> String {
    match harm.contains("KEY") {
        true => harm.replace("KEY", key),
        false => format!("{harm} {key}"),
    }
}

/// The reply, or the error's text; the server is gone if there is neither.
fn call(server: &Server, connection: &mut Connection, line: &str) -> Result<Value, String> {
    // An error within a reply is one of the values.
    let reply = connection.send_packed_command(&crate::support::command(line).get_packed_command());
    match reply.and_then(|()| connection.recv_response()) {
        Ok(Value::ServerError(error)) => Err(error_text(&error)),
        Ok(value) => Ok(value),
        Err(error) if error.kind() == redis::ErrorKind::Io => {
            panic!("{line}: {error}\n{}", server.log())
        }
        Err(error) => Err(format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())),
    }
}

fn expire(connection: &mut Connection, key: &str) {
    run::<()>(connection, &format!("SET {key} 1 PX 1")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
}

#[test]
fn a_key_that_expires_may_take_the_keys_with_it_that_its_call_has_read() {
    let (server, mut connection) = start(&[]);
    for harm in HARM {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        run::<()>(&mut connection, "CB.CLEAR").unwrap();
        throttle(&mut connection, "read 4 1 60 2");
        expire(&mut connection, "expired");
        run::<()>(&mut connection, &format!("CB.DO expired {}", harm_to("read", harm))).unwrap();
        // The callback comes when the second is read, or else when it is written: too late for what was decided.
        let reply = call(&server, &mut connection, "CL.MTHROTTLE read 4 1 60 1 expired 4 1 60 1");
        let reply = limited_and_groups(&reply.unwrap()).unwrap();
        assert_eq!(reply, (false, vec![[0, 5, 2, -1, 180], [0, 5, 4, -1, 60]]), "{harm}");
        assert_eq!(run::<i64>(&mut connection, "CB.COUNT expired").unwrap(), 1);
    }
}

#[test]
fn a_key_that_expires_may_take_the_keys_with_it_that_its_call_has_yet_to_read() {
    let (server, mut connection) = start(&[]);
    for harm in HARM {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        run::<()>(&mut connection, "CB.CLEAR").unwrap();
        throttle(&mut connection, "unread 4 1 60 2");
        expire(&mut connection, "expired");
        run::<()>(&mut connection, &format!("CB.DO expired {}", harm_to("unread", harm))).unwrap();
        let reply = call(&server, &mut connection, "CL.MTHROTTLE expired 4 1 60 1 unread 4 1 60 1");
        let unread = match harm {
            "DEL" | "CB.DELETE" | "UNLINK" => [0, 5, 4, -1, 60],
            "CL.THROTTLE KEY 4 1 60" => [0, 5, 1, -1, 240],
            "PEXPIRE KEY 1" => [0, 5, 2, -1, 180],
            _ => {
                assert_eq!(reply, Err(in_group(2, NOT_A_STATE.into())), "{harm}");
                continue;
            }
        };
        let reply = limited_and_groups(&reply.unwrap()).unwrap();
        assert_eq!(reply, (false, vec![[0, 5, 4, -1, 60], unread]), "{harm}");
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
    needs("an event for a new key (Redis 7)");
    let (server, mut connection) = start(&[]);
    for key in ["%", "one", "two"] {
        run::<()>(&mut connection, &format!("CB.DO new PEXPIRE {key} 1")).unwrap();
    }
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

/// `FUZZ_SEED` chooses another run.
#[test]
fn random_callbacks_end_no_server_and_no_reply_is_out_of_shape() {
    let seed = setting("FUZZ_SEED", 1);
    let mut random = Random::new(seed);
    let (server, mut connection) = start(&[]);
    let keys = ["a", "b", "c", "d", "%"];
    let events = ["expired", "cl.throttle", "cl.limited", "set", "del", "expire"];
    for _ in 0..setting("FUZZ_CALLS", 200_000) / 50 {
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
