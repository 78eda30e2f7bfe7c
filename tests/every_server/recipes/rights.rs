//! The scripts of docs/recipes run for a user with the rights that the page names, and need each of them.

use redis::{Connection, RedisResult, Value};

use crate::support::recipes::{permissions, read};
use crate::support::{Server, command, run};

/// Makes these calls of a script, by its text and by its name, and these commands besides.
fn call(app: &mut Connection, script: &str, calls: &[&str], commands: &[&str], by_name: bool) -> RedisResult<()> {
    let text = read(script);
    for words in calls {
        redis::cmd("EVAL").arg(&text).arg(words.split(' ').collect::<Vec<_>>()).exec(app)?;
    }
    if by_name {
        let name: String = redis::cmd("SCRIPT").arg("LOAD").arg(&text).query(app)?;
        run::<Value>(app, &format!("EVALSHA {name} {}", calls[0]))?;
    }
    commands.iter().try_for_each(|line| command(line).exec(app))
}

#[test]
fn a_script_needs_the_permissions_that_the_page_names_and_no_others() {
    let server = Server::start();
    let (mut admin, mut app) = (server.connect(), server.connect());
    run::<()>(&mut admin, "ACL SETUSER app on nopass ~*").unwrap();
    run::<()>(&mut app, "AUTH app x").unwrap();
    // The second attempt begins the ban, and the third finds it.
    let ban = "3 attempts banned offences 0 1 60 86400 3600";
    let module = ["COMMAND INFO CL.THROTTLE", "CL.THROTTLE key 4 1 60"];
    for (section, script, calls, commands) in [
        ("## A ban after too many", "ban.lua", &[ban, ban, ban][..], &["CL.THROTTLE attempts 0 1 60 -1"][..]),
        ("## A plan that changes", "change_plan.lua", &["1 key 9 10 86400 99 100 86400"], &[]),
        ("## Without the module", "gcra.lua", &["1 key 4 1 60 2", "1 key 4 1 60 -2"], &module),
    ] {
        let rights = permissions("recipes.md", section);
        let by_name = rights.contains(&"+evalsha".to_string());
        let mut works = |rights: &str| {
            run::<()>(&mut admin, "FLUSHALL").unwrap();
            run::<()>(&mut admin, &format!("ACL SETUSER app -@all {rights}")).unwrap();
            call(&mut app, script, calls, commands, by_name)
        };
        works(&rights.join(" ")).unwrap_or_else(|error| panic!("{script} {rights:?}: {error}"));
        for needed in &rights {
            let others: Vec<_> = rights.iter().filter(|right| *right != needed).map(String::as_str).collect();
            assert!(works(&others.join(" ")).is_err(), "{script} does not need {needed}");
        }
    }
}
