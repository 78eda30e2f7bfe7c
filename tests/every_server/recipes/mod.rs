//! The recipes of docs/recipes, docs/budgets and docs/moving, each in a file of its name, do what their page says.

use crate::support::Server;
use crate::support::recipes::refuses;

mod ban;
mod calendar_quota;
mod change_plan;
mod gcra;
mod moving;
mod policies;
mod reservation;

#[test]
fn a_script_that_is_called_with_too_few_or_too_many_words_says_so() {
    let (_server, mut connection) = Server::start().connected();
    for (file, right) in [
        ("ban.lua", "3 attempts banned offences 4 1 60 86400 60"),
        ("change_plan.lua", "1 key 9 10 60 99 100 60"),
        ("gcra.lua", "1 key 9 10 60 1"),
        ("../moving/from_dragonfly.lua", "1 key 1790000000123456789"),
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
