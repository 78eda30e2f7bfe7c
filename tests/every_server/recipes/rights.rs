//! The scripts and functions of docs/recipes run for a user with the rights that the page names, and need each of them.

use redis::{Connection, RedisResult};

use crate::support::needs::is_redis_6_2;
use crate::support::pages::{code, text_of};
use crate::support::recipes::{load_function, read};
use crate::support::{Server, run};

/// Sections of the pages, and calls that need all of a section's rights. A file's name stands for its script.
const ROWS: [(&str, &[&str]); 6] = [
    (
        "## A ban after too many",
        &[
            "EVAL ban.lua 3 attempts banned offences 0 1 60 86400 3600",
            // This attempt begins the ban, and the next one finds it.
            "EVAL ban.lua 3 attempts banned offences 0 1 60 86400 3600",
            "EVAL ban.lua 3 attempts banned offences 0 1 60 86400 3600",
            "SCRIPT LOAD ban.lua",
            "EVALSHA ban.lua 3 attempts banned offences 0 1 60 86400 3600",
            "CL.THROTTLE attempts 0 1 60 -1",
        ],
    ),
    ("## A plan that changes", &["EVAL change_plan.lua 1 key 9 10 86400 99 100 86400"]),
    (
        "## Without the module",
        &[
            "EVAL gcra.lua 1 key 4 1 60 2",
            "EVAL gcra.lua 1 key 4 1 60 -2",
            "SCRIPT LOAD gcra.lua",
            "EVALSHA gcra.lua 1 key 4 1 60 2",
            "COMMAND INFO CL.THROTTLE",
            "CL.THROTTLE key 4 1 60",
        ],
    ),
    ("## Named policies", &["FCALL throttle 1 user123 gold"]),
    (
        "## Calendar quotas",
        &[
            "FCALL calendar_throttle 2 {a}:day {a}:rate 2 5 9999999999 4 1 60",
            "FCALL calendar_throttle 2 {a}:day {a}:rate -2 5 9999999999 4 1 60",
            "FCALL_RO calendar_look 2 {a}:day {a}:rate 1 5 9999999999 4 1 60",
        ],
    ),
    (
        "## A reservation",
        &[
            "FCALL reserve 4 a calls limiter other 30000 1 9 10 60 5 9 10 60 5",
            "FCALL reserve 4 b calls limiter other 30000 1 9 10 60 5 9 10 60 5",
            "FCALL renew 2 a calls 9",
            "FCALL settle 4 a calls limiter other 6 6",
            "FCALL reserve 2 c limiter 5 9 10 60 1",
            "FCALL_RO reservations 1 calls",
        ],
    ),
];

/// Returns the commands that a section of a page says a user needs the right to call, each with a plus sign.
fn permissions(page: &str, section: &str) -> Vec<String> {
    let page = text_of(page);
    let section = page.split_once(section).unwrap().1;
    let sentence = section.split_once("A user needs the right").unwrap().1;
    let sentence = sentence.split_inclusive("`.").next().unwrap();
    code(sentence).map(|name| format!("+{}", name.to_lowercase())).collect()
}

fn call(app: &mut Connection, line: &str) -> RedisResult<()> {
    let mut command = redis::Cmd::new();
    for word in line.split(' ') {
        let script = word.ends_with(".lua").then(|| read(word));
        match script {
            None => command.arg(word),
            Some(text) if line.starts_with("EVALSHA") => command.arg(redis::Script::new(&text).get_hash()),
            Some(text) => command.arg(text),
        };
    }
    command.exec(app)
}

#[test]
fn a_script_or_function_needs_the_permissions_that_the_page_names_and_no_others() {
    let server = Server::start();
    let (mut admin, mut app) = (server.connect(), server.connect());
    run::<()>(&mut admin, "ACL SETUSER app on nopass ~*").unwrap();
    run::<()>(&mut app, "AUTH app x").unwrap();
    if !is_redis_6_2() {
        for library in ["policies.lua", "calendar_quota.lua", "../budgets/reservation.lua"] {
            load_function(&mut admin, &read(library)).unwrap();
        }
    }
    for (section, lines) in ROWS.iter().filter(|(_, lines)| !is_redis_6_2() || !lines[0].starts_with("FCALL")) {
        let page = if *section == "## A reservation" { "docs/budgets.md" } else { "docs/recipes.md" };
        let rights = permissions(page, section);
        let mut works = |rights: &str| {
            run::<()>(&mut admin, "FLUSHALL").unwrap();
            run::<()>(&mut admin, &format!("ACL SETUSER app -@all {rights}")).unwrap();
            lines.iter().try_for_each(|line| call(&mut app, line))
        };
        works(&rights.join(" ")).unwrap_or_else(|error| panic!("{section}, {rights:?}: {error}"));
        for needed in &rights {
            let others: Vec<_> = rights.iter().filter(|right| *right != needed).map(String::as_str).collect();
            assert!(works(&others.join(" ")).is_err(), "{section}: {needed} is not needed");
        }
    }
}
