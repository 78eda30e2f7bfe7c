//! Tests what an operator sees of the module: COMMAND DOCS, keyspace notifications, and crash reports.

use std::collections::HashMap;

use redis::Value;

use crate::support::commands::MILLISECOND;
use crate::support::needs::{FAST, REDIS_7, needs};
use crate::support::{COMMANDS, PATIENCE, Server, run, wait_until};

/// Converts a reply of names and values, in either protocol, to a map.
fn map(value: &Value) -> HashMap<String, Value> {
    redis::from_redis_value_ref(value).unwrap()
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap()
}

#[test]
fn command_docs_explain_the_command_and_every_argument() {
    needs!(REDIS_7);
    let (_server, mut connection) = Server::start().connected();
    for command in &COMMANDS {
        let name = command.name;
        let (unit, summary_unit) = match command.unit == MILLISECOND {
            true => ("In milliseconds", "milliseconds"),
            false => ("In seconds", " seconds"),
        };
        let docs = map(&map(&run(&mut connection, &format!("COMMAND DOCS {name}")).unwrap())[name]);
        let summary = text(&docs["summary"]);
        assert!(summary.contains(summary_unit), "{name}: the summary lacks {summary_unit:?}: {summary}");
        assert!(text(&docs["complexity"]).starts_with("O("), "{name} has no complexity: {docs:?}");
        assert_eq!([text(&docs["since"]), text(&docs["module"])], [command.since, "redis-cell"], "{name}");

        assert_eq!(syntax(&docs, unit), command.syntax, "{name}");
    }
}

/// Returns the arguments in the notation of docs/commands.md. Fails if an argument has no summary, or if a period's
/// summary does not name its unit.
fn syntax(docs: &HashMap<String, Value>, unit: &str) -> String {
    let arguments: Vec<Value> = redis::from_redis_value_ref(&docs["arguments"]).unwrap();
    let words = arguments.iter().map(map).map(|argument| {
        let name = text(&argument["name"]);
        let flags = format!("{:?}", argument.get("flags"));
        let (optional, multiple) = (flags.contains("optional"), flags.contains("multiple"));
        let word = match text(&argument["type"]).as_str() {
            "block" => syntax(&argument, unit),
            kind => {
                assert_eq!(kind, if name == "key" { "key" } else { "integer" }, "{name}");
                let summary = text(&argument["summary"]);
                assert!(
                    !summary.is_empty() && (name != "period" || summary.starts_with(unit)),
                    "{name} has a wrong summary: {summary}"
                );
                name
            }
        };
        match (optional, multiple) {
            (false, false) => word,
            (true, false) => format!("[{word}]"),
            (false, true) => format!("{word} [{word} ...]"),
            (true, true) => format!("[{word} ...]"),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn subscribers_learn_which_keys_take_tokens_and_which_are_limited() {
    let (server, mut connection) = Server::start_with(&["--notify-keyspace-events", "Ed"]).connected();
    let mut subscriber = server.connect();
    let mut subscriber = subscriber.as_pubsub();
    subscriber.psubscribe("__keyevent@0__:*").unwrap();
    subscriber.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut expected = Vec::new();
    // Except for commands that only read, each command's shortest call takes a token from a new limiter.
    for command in &COMMANDS {
        run::<Value>(&mut connection, &command.call(command.name)).unwrap();
        expected.extend((!command.only_reads()).then(|| format!("cl.throttle {}", command.name)));
    }
    for (call, events) in [
        ("CL.THROTTLE one 0 1 60 0", ""),
        ("CL.THROTTLE one 0 1 60", "throttle one"),
        ("CL.PTHROTTLE one 0 1 60000", "limited one"),
        ("CL.LOOK one 0 1 60", ""),
        ("CL.THROTTLE one 0 1 0", ""),
        ("CL.MTHROTTLE two 0 1 60 1 one 0 1 60 1", "limited one"),
        ("CL.MTHROTTLE two 0 1 60 1 three 0 1 60 1", "throttle two, throttle three"),
        ("CL.MTHROTTLE one 0 1 60 1 two 0 1 60 -1", "limited one"),
        // A refund sends no notification.
        ("CL.THROTTLE three 0 1 60 -1", ""),
        // A charge into debt sends both notifications: it took tokens, and there were too few.
        ("CL.CHARGE four 0 1 60 2", "throttle four, limited four"),
        ("CL.CHARGE four 0 1 60 0", "limited four"),
        ("CL.TAKE five 4 1 60 9", "throttle five"),
        ("CL.PTAKE five 4 1 60000 9", "limited five"),
        // Even with several quotas, a call sends each notification only once. It is limited if any quota limits it.
        ("CL.CHARGE six 4 1 60 2 0 1 60", "throttle six, limited six"),
    ] {
        let _ = run::<Value>(&mut connection, call);
        expected.extend(events.split_terminator(", ").map(|event| format!("cl.{event}")));
    }
    run::<()>(&mut connection, "PUBLISH __keyevent@0__:last last").unwrap();
    let events = std::iter::repeat_with(|| {
        let message = subscriber.get_message().unwrap();
        message.get_channel_name().replace("__keyevent@0__:", "") + " " + &message.get_payload::<String>().unwrap()
    });
    let events: Vec<_> = events.take_while(|event| event != "last last").collect();
    assert_eq!(events, expected, "the events that were sent, in order");
}

/// The module would need the server's allocator for its section of INFO, and the server may have crashed in there.
#[test]
fn a_crash_report_is_written_without_calling_the_module() {
    needs!(FAST);
    let (server, mut connection) = Server::start_with(&["--crash-memcheck-enabled", "no"]).connected();
    let count = "redis-cell_throttle_allowed";
    assert!(run::<String>(&mut connection, "INFO everything").unwrap().contains(count));
    let _ = run::<Value>(&mut connection, "DEBUG SEGFAULT");
    wait_until("the crash report ends", || server.log().contains("BUG REPORT END"));
    let log = server.log();
    assert!(log.contains("MODULES INFO OUTPUT") && !log.contains(count), "the crash report is wrong: {log}");
}
