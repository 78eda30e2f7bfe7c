//! CL.MTHROTTLE decides several limits at once: all of them take, or none.

use redis::{Connection, Value};

use crate::support::aof::{AOF, commands};
use crate::support::clock::{Clock, START};
use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::expected::expiry;
use crate::support::random::Random;
use crate::support::replication::{Monitor, SETTINGS, replicate};
use crate::support::{Server, run, throttle, wait_until};

/// Calls `CL.MTHROTTLE`. Returns whether the call was limited, and the integers of each group.
fn mthrottle(connection: &mut Connection, arguments: &str) -> (bool, Vec<[i64; 5]>) {
    let Value::Array(reply) = run(connection, &format!("CL.MTHROTTLE {arguments}")).unwrap() else { panic!() };
    let limited = redis::from_redis_value_ref(&reply[0]).unwrap();
    (limited, reply[1..].iter().map(|group| redis::from_redis_value_ref(group).unwrap()).collect())
}

fn error(connection: &mut Connection, arguments: &str) -> String {
    let error = run::<Value>(connection, &format!("CL.MTHROTTLE {arguments}")).unwrap_err();
    format!("{} {}", error.code().unwrap(), error.detail().unwrap())
}

#[test]
fn each_limiter_takes_its_quantity_if_all_of_them_allow() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(
        mthrottle(&mut connection, "minute 9 10 60 1 day 999 1000 86400 3"),
        (false, vec![[0, 10, 9, -1, 6], [0, 1000, 997, -1, 260]])
    );
    assert_eq!(throttle(&mut connection, "minute 9 10 60 0")[..3], [0, 10, 9]);
    assert_eq!(throttle(&mut connection, "day 999 1000 86400 0")[..3], [0, 1000, 997]);
}

#[test]
fn a_call_with_a_limited_group_changes_nothing_and_says_which_group() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    throttle(&mut connection, "small 1 1 60 2");
    throttle(&mut connection, "large 9 1 60 3");
    let states =
        |connection: &mut Connection| -> Vec<Option<String>> { run(connection, "MGET large small new").unwrap() };
    let before = states(&mut connection);
    assert_eq!(
        mthrottle(&mut connection, "large 9 1 60 1 small 1 1 60 1 new 4 1 60 1"),
        (true, vec![[0, 10, 7, -1, 180], [1, 2, 0, 60, 120], [0, 5, 5, -1, 0]])
    );
    assert_eq!(states(&mut connection), before);
    // A quantity above the limit is told a retry_after of -1, as in a call of one limiter.
    assert_eq!(mthrottle(&mut connection, "new 4 1 60 6").1, [[1, 5, 5, -1, 0]]);
}

#[test]
fn one_group_is_answered_as_cl_throttle_answers_it() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    for arguments in ["4 1 60 1", "4 1 60 0", "4 1 60 3", "4 1 60 3", "4 1 60 6", "0 1 1 9"] {
        let alone = throttle(&mut connection, &format!("one {arguments}"));
        let (limited, groups) = mthrottle(&mut connection, &format!("other {arguments}"));
        assert_eq!((limited, groups), (alone[0] == 1, vec![alone]), "{arguments}");
    }
}

#[test]
fn a_quantity_of_zero_looks_at_all_of_them() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    throttle(&mut connection, "a 4 1 60 5");
    assert_eq!(
        mthrottle(&mut connection, "a 4 1 60 0 b 4 1 60 0"),
        (false, vec![[0, 5, 0, -1, 300], [0, 5, 5, -1, 0]])
    );
    assert_eq!(run::<i64>(&mut connection, "DBSIZE").unwrap(), 1);
}

#[test]
fn a_second_and_a_day_limit_share_one_decision() {
    let server = Server::start();
    let mut connection = server.connect();
    let call = "{user123}:second 9 10 1 1 {user123}:day 999 1000 86400 1";
    let mut allowed = 0;
    for _ in 0..10 {
        allowed += i64::from(!mthrottle(&mut connection, call).0);
    }
    let [_, _, remaining, _, _] = throttle(&mut connection, "{user123}:day 999 1000 86400 0");
    assert_eq!(remaining, 1000 - allowed);
    assert_eq!(allowed, 10);
}

#[test]
fn the_same_key_twice_is_an_error() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(
        error(&mut connection, "a 4 1 60 1 b 4 1 60 1 a 4 1 60 1"),
        "ERR key is the same as in group 1 (group 3)"
    );
    assert_eq!(
        error(&mut connection, "a 4 1 60 1 b 4 1 60 1 b 1 1 60 1 a 1 1 1 1"),
        "ERR key is the same as in group 2 (group 3)"
    );
    // A long call with many repetitions is refused for the first two equal keys.
    assert_eq!(
        error(&mut connection, &"a 4 1 60 1 b 4 1 60 1 ".repeat(50)),
        "ERR key is the same as in group 1 (group 3)"
    );
    assert_eq!(run::<i64>(&mut connection, "DBSIZE").unwrap(), 0);
}

#[test]
fn an_incomplete_group_is_an_error() {
    let server = Server::start();
    let mut connection = server.connect();
    let arity = "ERR wrong number of arguments for 'cl.mthrottle' command";
    for arguments in ["", "a", "a 4 1 60"] {
        // Redis 6.2 names a module's command in the caller's own spelling.
        let text = error(&mut connection, arguments).replace("CL.MTHROTTLE", "cl.mthrottle");
        assert_eq!(text, arity, "{arguments}");
    }
    for (arguments, expected) in [
        ("a 4 1 60 1 b", "ERR max_burst is missing (group 2)"),
        ("a 4 1 60 1 b 4 1 60", "ERR quantity is missing (group 2)"),
        ("a 4 1 60 1 b 4 1 60 1 c 4", "ERR count is missing (group 3)"),
    ] {
        assert_eq!(error(&mut connection, arguments), expected, "{arguments}");
    }
    assert_eq!(run::<i64>(&mut connection, "DBSIZE").unwrap(), 0);
}

#[test]
fn an_error_names_the_group_and_the_argument_and_changes_nothing() {
    let server = Server::start();
    let mut connection = server.connect();
    run::<()>(&mut connection, "SET text hello").unwrap();
    run::<()>(&mut connection, "RPUSH list a").unwrap();
    for (group, expected) in [
        ("b x 1 60 1", "ERR max_burst is not an integer or out of range (group 2)"),
        ("b 4 x 60 1", "ERR count is not an integer or out of range (group 2)"),
        ("b 4 1 x 1", "ERR period is not an integer or out of range (group 2)"),
        ("b 4 1 60 x", "ERR quantity is not an integer or out of range (group 2)"),
        ("b -2 1 60 1", "ERR max_burst must be -1 or more (group 2)"),
        ("b 4 0 60 1", "ERR count must be 1 or more (group 2)"),
        ("b 4 1 0 1", "ERR period must be 1 or more (group 2)"),
        ("b 4 1000000001 1 1", "ERR count and period allow more than one token per nanosecond (group 2)"),
        (
            "b 4 1 9223372036854775807 1",
            "ERR max_burst, count and period: the tokens would be back only after the year 2262 (group 2)",
        ),
        ("text 4 1 60 1", "ERR the key holds no rate limiter state (group 2)"),
        ("list 4 1 60 1", "WRONGTYPE Operation against a key holding the wrong kind of value (group 2)"),
    ] {
        assert_eq!(error(&mut connection, &format!("a 4 1 60 1 {group} c 4 1 60 1")), expected);
        assert_eq!(run::<i64>(&mut connection, "EXISTS a b c").unwrap(), 0, "{group}");
    }
    // The arguments of all groups are checked before any key is.
    assert_eq!(
        error(&mut connection, "list 4 1 60 1 b 4 1 60 x"),
        "ERR quantity is not an integer or out of range (group 2)"
    );
}

#[test]
fn many_groups_in_one_call() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut call = redis::cmd("CL.MTHROTTLE");
    for group in 0..10_000 {
        call.arg(format!("key{group}")).arg(4).arg(1).arg(60).arg(1);
    }
    let Value::Array(reply) = call.query(&mut connection).unwrap() else { panic!() };
    assert_eq!(reply.len(), 10_001);
    assert_eq!(reply[0], Value::Int(0));
    assert!(reply[1..].iter().all(|group| *group == Value::Array([0, 5, 4, -1, 60].map(Value::Int).to_vec())));
}

/// A model counts the tokens: at one token an hour, none comes back during the test.
#[test]
fn any_sequence_of_calls_is_all_or_nothing() {
    let server = Server::start();
    let mut connection = server.connect();
    let limits = [3, 10, 25, 60, 400, 1];
    let mut left = limits;
    let mut random = Random::new(42);
    let mut seen = [0, 0];
    for _ in 0..1_000 {
        let mut groups: Vec<(usize, i64)> = Vec::new();
        for _ in 0..=random.below(4) {
            let (key, quantity) = (random.below(limits.len()), random.below(4) as i64 - 1);
            if groups.iter().all(|&(other, _)| other != key) {
                groups.push((key, quantity.max(0)));
            }
        }
        let call: Vec<_> =
            groups.iter().map(|&(key, quantity)| format!("key{key} {} 1 3600 {quantity}", limits[key] - 1)).collect();
        let limited = groups.iter().any(|&(key, quantity)| quantity > left[key]);
        let expected: Vec<_> = groups
            .iter()
            .map(|&(key, quantity)| {
                let bites = quantity > left[key];
                left[key] -= if limited { 0 } else { quantity };
                (i64::from(bites), limits[key], left[key], bites)
            })
            .collect();
        let (was_limited, replies) = mthrottle(&mut connection, &call.join(" "));
        let told: Vec<_> = replies
            .iter()
            .zip(&groups)
            .map(|(&[bites, limit, remaining, retry_after, _], &(key, quantity))| {
                (bites, limit, remaining, retry_after > 0 || quantity > limits[key])
            })
            .collect();
        assert_eq!((was_limited, told), (limited, expected), "{call:?}");
        seen[usize::from(limited)] += 1;
    }
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
}

#[test]
fn replicas_and_files_get_all_limits_of_a_call_as_one_transaction() {
    let server = Server::start_with(&[&SETTINGS[..], &AOF].concat());
    let replica = Server::start_bare(&[]);
    replicate(&replica, &server);
    let monitor = Monitor::start(&replica);
    let mut connection = server.connect();
    mthrottle(&mut connection, "a 4 1 60 5 b 4 1 60 1 c 4 1 60 0");
    // A call that is limited as a whole, and an error: both write nothing.
    assert!(mthrottle(&mut connection, "b 4 1 60 1 a 4 1 60 1").0);
    error(&mut connection, "b 4 1 60 1 b 4 1 60 1");
    let of = |key: &'static str| -> i64 { run(&mut server.connect(), &format!("GET {key}")).unwrap() };
    let (a, b) = (of("a"), of("b"));
    let set = |key: &str, tat: i64| format!("SET {key} {tat} PXAT {}", expiry(tat.into()));
    run::<()>(&mut connection, "SET last 1").unwrap();
    let file: Vec<_> = commands(&server.folder).iter().map(|words| words.join(" ")).collect();
    let last = file.iter().position(|words| words == "SET last 1").unwrap();
    for mut words in [file[..last].to_vec(), monitor.commands_until("last")] {
        words.retain(|words| words != "SELECT 0");
        words.sort();
        assert_eq!(words, ["EXEC", "MULTI", &set("a", a), &set("b", b)]);
    }
}

#[test]
#[ignore = "slow: a cluster"]
fn the_keys_share_a_hash_tag_in_a_cluster() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    let mut connection = server.connect();
    add_slots(&mut connection, 0..SLOTS);
    wait_until("a cluster of one", || is_ok(&server));
    assert!(!mthrottle(&mut connection, "{user1}:second 4 1 60 1 {user1}:day 4 1 60 1").0);
    let refused = error(&mut connection, "user1 4 1 60 1 user2 4 1 60 1");
    assert!(refused.starts_with("CROSSSLOT"), "{refused}");
}
