//! What the server and its operator can see: documentation, counts, keyspace notifications.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use crate::support::needs::needs;
use crate::support::{Server, run};

/// A reply of names and values, on either protocol.
fn map(value: &Value) -> HashMap<String, Value> {
    redis::from_redis_value_ref(value).unwrap()
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap()
}

#[test]
fn command_docs_explain_the_command_and_every_argument() {
    needs("COMMAND DOCS, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    for (command, unit) in
        [("cl.throttle", "In seconds"), ("cl.pthrottle", "In milliseconds"), ("cl.mthrottle", "In seconds")]
    {
        let docs = map(&map(&run(&mut connection, &format!("COMMAND DOCS {command}")).unwrap())[command]);
        assert!(text(&docs["summary"]).starts_with("Takes tokens"), "{docs:?}");
        assert!(text(&docs["complexity"]).starts_with("O("), "{docs:?}");
        assert_eq!(text(&docs["since"]), "1.0.0");
        assert_eq!(text(&docs["module"]), "redis-cell");

        let mut arguments: Vec<Value> = redis::from_redis_value_ref(&docs["arguments"]).unwrap();
        let several = command == "cl.mthrottle";
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
        assert_eq!(optional, [false, false, false, false, !several], "{command}");
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
            "redis-cell_cl.throttle:allowed=2,limited=1,errors=1",
            "redis-cell_cl.pthrottle:allowed=1,limited=0,errors=0",
            "redis-cell_cl.mthrottle:allowed=1,limited=1,errors=0",
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
    ] {
        let _ = run::<Value>(&mut connection, call);
    }
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
