//! The recipes of docs/recipes, docs/budgets and docs/moving, each in a file of its name, do what their page says.

use crate::support::Server;
use crate::support::clock::{Clock, SECOND};
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::pages::text_of;
use crate::support::recipes::{ask, load_function, read, refuses};
use crate::support::run;

mod ban;
mod calendar_quota;
mod change_plan;
mod gcra;
mod minimum;
mod moving;
mod pause;
mod policies;
mod reservation;

#[test]
fn a_script_that_is_called_with_too_few_or_too_many_words_says_so() {
    let (_server, mut connection) = Server::start().connected();
    for (file, right) in [
        ("ban.lua", "3 attempts banned offences 4 1 60 86400 60"),
        ("change_plan.lua", "1 key 9 10 60 99 100 60"),
        ("gcra.lua", "1 key 9 10 60 1"),
        ("minimum.lua", "2 tenant pool 9 40 60 79 100 60 1"),
        ("../moving/from_redis_rate.lua", "2 rate:key key"),
    ] {
        // One key less, and one key more.
        let (keys, words) = right.split_once(' ').unwrap();
        let keys: usize = keys.parse().unwrap();
        let (_, fewer) = words.split_once(' ').unwrap_or_default();
        let fewer = format!("{} {fewer}", keys - 1);
        for wrong in [fewer.trim_end(), &format!("{} more {words}", keys + 1)] {
            refuses(&mut connection, file, wrong, "ERR wrong number of arguments");
        }
        // A ban may be longer each time.
        if file != "ban.lua" {
            refuses(&mut connection, file, &format!("{right} 5"), "ERR wrong number of arguments");
        }
    }
}

/// The calls of a section stand together. The clock stands at the noon of the page.
#[test]
fn the_calls_of_functions_on_the_pages_get_the_replies_that_follow_them() {
    needs!(FUNCTIONS);
    let (_clock, _server, mut connection) = Clock::start(1_795_345_200 * SECOND);
    for library in ["calendar_quota.lua", "../budgets/reservation.lua"] {
        load_function(&mut connection, &read(library)).unwrap();
    }
    let pages = ["recipes", "budgets"].map(|page| text_of(&format!("docs/{page}.md")).replace("\n      ->", "   ->"));
    let mut calls = 0;
    for section in pages.iter().flat_map(|page| page.split("\n## ")) {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let lines = section.lines().filter_map(|line| line.strip_prefix("    ")?.split_once("   ->   "));
        for (call, reply) in lines {
            let expected = reply.split([' ', ',']).filter_map(|integer| integer.parse().ok()).collect::<Vec<i64>>();
            assert_eq!(ask(&mut connection, call).unwrap(), expected, "{call}");
            calls += 1;
        }
    }
    assert!(calls >= 10, "{calls}");
}
