//! What the server and its operator can see: documentation, counts, keyspace notifications.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use crate::support::needs::needs;
use crate::support::{COMMANDS, Server, run};

/// A reply of names and values, on either protocol.
fn map(value: &Value) -> HashMap<String, Value> {
    redis::from_redis_value_ref(value).unwrap()
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap()
}

#[test]
fn command_docs_explain_the_command_and_every_argument() {
    needs!("COMMAND DOCS, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    for command in COMMANDS {
        let several = command.contains("cl.m");
        let unit = if command.contains('p') { "In milliseconds" } else { "In seconds" };
        let since = match command {
            "cl.throttle" | "cl.pthrottle" | "cl.mthrottle" => "1.0.0",
            _ => "1.1.0",
        };
        let looks = command.ends_with("look");

        let docs = map(&map(&run(&mut connection, &format!("COMMAND DOCS {command}")).unwrap())[command]);
        let summary = text(&docs["summary"]);
        assert!(summary.starts_with(if looks { "Tells " } else { "Takes " }), "{summary}");
        assert!(summary.contains(if command.contains('p') { "milliseconds" } else { " seconds" }), "{summary}");
        assert!(text(&docs["complexity"]).starts_with("O("), "{docs:?}");
        assert_eq!(text(&docs["since"]), since);
        assert_eq!(text(&docs["module"]), "redis-cell");

        let mut arguments: Vec<Value> = redis::from_redis_value_ref(&docs["arguments"]).unwrap();
        if several {
            let group = map(&arguments[0]);
            assert_eq!((text(&group["name"]), text(&group["type"])), ("limit".into(), "block".into()));
            assert!(format!("{:?}", group["flags"]).contains("multiple"));
            arguments = redis::from_redis_value_ref(&group["arguments"]).unwrap();
        }
        let arguments: Vec<_> = arguments.iter().map(map).collect();
        let names: Vec<_> = arguments.iter().map(|argument| text(&argument["name"])).collect();
        assert_eq!(names, ["key", "max_burst", "count", "period", "quantity"]);
        let types: Vec<_> = arguments.iter().map(|argument| text(&argument["type"])).collect();
        assert_eq!(types, ["key", "integer", "integer", "integer", "integer"]);
        assert!(arguments.iter().all(|argument| !text(&argument["summary"]).is_empty()));
        assert!(text(&arguments[3]["summary"]).starts_with(unit));
        let optional: Vec<_> = arguments.iter().map(|argument| argument.contains_key("flags")).collect();
        let may_go_without = looks || ["cl.throttle", "cl.pthrottle"].contains(&command);
        assert_eq!(optional, [false, false, false, false, may_go_without], "{command}");
    }
}

#[test]
fn info_counts_calls_by_command_and_outcome() {
    let server = Server::start();
    let mut connection = server.connect();
    for call in [
        "CL.THROTTLE key 1 1 60",
        "CL.THROTTLE key 1 1 60",
        "CL.THROTTLE key 1 1 60",
        "CL.THROTTLE key 1 1 0",
        "CL.PTHROTTLE key 1 1 60000 0",
        "CL.MTHROTTLE other 0 1 60 1 third 0 1 60 1",
        "CL.MTHROTTLE other 0 1 60 1 fourth 0 1 60 1",
        "CL.CHARGE charged 0 1 60 1",
        "CL.CHARGE charged 0 1 60 1",
        "CL.CHARGE charged 0 1 0 1",
        "CL.TAKE taken 4 1 60 9",
        "CL.TAKE taken 4 1 60 9",
        "CL.TAKE taken 4 1 60 0",
        "CL.LOOK taken 4 1 60",
        "CL.LOOK taken 4 1 60 0",
        "CL.LOOK taken 4 1 60 -1",
        "CL.PLOOK taken 4 1 60000",
    ] {
        let _ = run::<Value>(&mut connection, call);
    }
    let info: String = run(&mut connection, "INFO redis-cell").unwrap();
    let lines: Vec<_> = info.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "# redis-cell",
            &format!("redis-cell_version:{}", env!("CARGO_PKG_VERSION")),
            "redis-cell_throttle_allowed:2",
            "redis-cell_throttle_limited:1",
            "redis-cell_throttle_errors:1",
            "redis-cell_pthrottle_allowed:1",
            "redis-cell_pthrottle_limited:0",
            "redis-cell_pthrottle_errors:0",
            "redis-cell_charge_allowed:1",
            "redis-cell_charge_limited:1",
            "redis-cell_charge_errors:1",
            "redis-cell_pcharge_allowed:0",
            "redis-cell_pcharge_limited:0",
            "redis-cell_pcharge_errors:0",
            "redis-cell_take_allowed:2",
            "redis-cell_take_limited:1",
            "redis-cell_take_errors:0",
            "redis-cell_ptake_allowed:0",
            "redis-cell_ptake_limited:0",
            "redis-cell_ptake_errors:0",
            "redis-cell_look_allowed:1",
            "redis-cell_look_limited:1",
            "redis-cell_look_errors:1",
            "redis-cell_plook_allowed:0",
            "redis-cell_plook_limited:1",
            "redis-cell_plook_errors:0",
            "redis-cell_mthrottle_allowed:1",
            "redis-cell_mthrottle_limited:1",
            "redis-cell_mthrottle_errors:0",
            "redis-cell_mpthrottle_allowed:0",
            "redis-cell_mpthrottle_limited:0",
            "redis-cell_mpthrottle_errors:0",
        ]
    );
    // They count since the module was loaded, as the README says.
    run::<()>(&mut connection, "CONFIG RESETSTAT").unwrap();
    assert_eq!(run::<String>(&mut connection, "INFO redis-cell").unwrap(), info);
}

#[test]
fn subscribers_learn_which_keys_take_tokens_and_which_are_limited() {
    let server = Server::start_with(&["--notify-keyspace-events", "Ed"]);
    let mut connection = server.connect();
    let mut subscriber = server.connect();
    let mut subscriber = subscriber.as_pubsub();
    subscriber.psubscribe("__keyevent@0__:*").unwrap();
    for call in [
        "CL.THROTTLE one 0 1 60",
        "CL.THROTTLE one 0 1 60 0",
        "CL.PTHROTTLE one 0 1 60000",
        "CL.THROTTLE one 0 1 0",
        "CL.MTHROTTLE two 0 1 60 1 one 0 1 60 1",
        "CL.MTHROTTLE two 0 1 60 1 three 0 1 60 1",
        // Giving back is no news, neither by itself nor where it does not come to that.
        "CL.THROTTLE three 0 1 60 -1",
        "CL.MTHROTTLE one 0 1 60 1 two 0 1 60 -1",
        "CL.THROTTLE one 0 1 60 5",
        "CL.CHARGE four 0 1 60 1",
        "CL.CHARGE four 0 1 60 1",
        "CL.CHARGE four 0 1 60 0",
        "CL.PCHARGE four 0 1 60000 -1",
        "CL.TAKE five 4 1 60 9",
        "CL.PTAKE five 4 1 60000 9",
        "CL.TAKE six 4 1 60 0",
    ] {
        let _ = run::<Value>(&mut connection, call);
    }
    run::<()>(&mut connection, "PUBLISH __keyevent@0__:last last").unwrap();
    let mut next = || -> (String, String) {
        subscriber.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let message = subscriber.get_message().unwrap();
        let event = message.get_channel_name().trim_start_matches("__keyevent@0__:").to_string();
        (event, message.get_payload().unwrap())
    };
    for expected in [
        ("cl.throttle", "one"),
        ("cl.limited", "one"),
        ("cl.limited", "one"),
        ("cl.throttle", "two"),
        ("cl.throttle", "three"),
        ("cl.limited", "one"),
        ("cl.limited", "one"),
        ("cl.throttle", "four"),
        // Into debt: tokens were taken, and there were fewer.
        ("cl.throttle", "four"),
        ("cl.limited", "four"),
        ("cl.limited", "four"),
        ("cl.throttle", "five"),
        ("cl.limited", "five"),
        ("last", "last"),
    ] {
        let (event, key) = next();
        assert_eq!((event.as_str(), key.as_str()), expected);
    }
}

#[test]
fn notifications_are_off_by_default() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut subscriber = server.connect();
    let mut subscriber = subscriber.as_pubsub();
    subscriber.psubscribe("*").unwrap();
    run::<Value>(&mut connection, "CL.THROTTLE key 0 1 60").unwrap();
    run::<()>(&mut connection, "PUBLISH last -").unwrap();
    subscriber.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(subscriber.get_message().unwrap().get_channel_name(), "last");
}
