//! Calls by the machine's own clock: each is decided at one moment, between its sending and its reply.

use redis::Value;

use super::attacked::check;
use super::visit::{Place, Text, keys, packed};
use crate::support::clock::START;
use crate::support::expected::{MILLISECOND, answer, state};
use crate::support::hostile::{Bytes, Hostile, typed, words};
use crate::support::model::Change;
use crate::support::random::Random;
use crate::support::{Server, now, setting};

#[test]
fn on_the_machines_clock_a_call_has_one_moment_between_its_sending_and_its_reply() {
    let mut client = Hostile { random: Random::new(setting("FUZZ_SEED", 1)), now: START };
    let server = Server::start();
    let mut connection = server.connect();
    let mut stored = 0;
    for _ in 0..1000 {
        let key = client.key();
        let call = client.call(&key);
        let with_keys = |name: &str| words(&[name, "any"]).into_iter().chain(keys(&call).cloned()).collect();
        // The transaction reads the keys before they can expire.
        let commands = [with_keys("DEL"), words(&["MULTI"]), call.clone(), with_keys("MGET"), words(&["EXEC"])];
        let before = i128::from(now());
        connection.send_packed_command(&packed(commands)).unwrap();
        let mut replies: Vec<Value> = (0..5).map(|_| connection.recv_response().unwrap()).collect();
        // The machine now and then corrects its clock by some microseconds, also backwards.
        let span = before - MILLISECOND..=i128::from(now()) + MILLISECOND;
        let Some(Value::Array(replies)) = replies.pop() else { continue };
        let texts: Vec<Option<Bytes>> = redis::from_redis_value_ref(&replies[1]).unwrap();

        // All limiters were full, so the first stored TAT tells the moment of the decision.
        let at = |now| answer(&call, now, |_| Ok(Vec::new()));
        let tat = |text: &Option<Bytes>| str::from_utf8(&text.as_ref()?[..19]).unwrap().parse::<i128>().ok();
        let stores =
            |change: &Change<Vec<i128>>| if let Change::Store(tats) = change { Some(tats.clone()) } else { None };
        let mut moment = before;
        if let Some(found) = texts[1..].iter().find_map(tat) {
            let tats = at(before).unwrap().changes.iter().find_map(|(_, change)| stores(change));
            moment += found - tats.unwrap_or_else(|| panic!("{} wrote a key, and must not", typed(&call)))[0];
            assert!(span.contains(&moment), "{}: decided at {moment}, not in {span:?}", typed(&call));
            stored += 1;
        }
        let answer = at(moment);
        check(Place::Transaction, &call, &replies[0], &answer).unwrap_or_else(|expected| {
            panic!("{} at {moment}: {:?}, and not {expected}", typed(&call), replies[0]);
        });
        for (index, (_, change)) in answer.iter().flat_map(|answer| &answer.changes).enumerate() {
            let expected = stores(change).map(|tats| Text(state(&tats)));
            assert_eq!(texts[index + 1].clone().map(Text), expected, "{} at {moment}", typed(&call));
        }
    }
    assert!(stored > 100, "only {stored} calls stored anything");
}
