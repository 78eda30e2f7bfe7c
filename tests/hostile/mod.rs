//! Hostile clients and modules, at random: the server stays up, and does what a second statement of the rule says.
//!
//! calls.rs, groups.rs and callbacks.rs each say what they attack: the keys of a server of their own. `FUZZ_SEED` and
//! `FUZZ_CALLS` choose another run than that of `cargo test`. visit.rs is what is sent at a time, made by
//! support/hostile.rs; look.rs is what is seen of it. tests/fuzz attacks the rule without a server.

mod callbacks;
mod calls;
mod groups;
mod look;
mod visit;

use std::collections::BTreeMap;

use redis::{RedisResult, Value};

use crate::support::aof::AOF;
use crate::support::hostile::{Bytes, Hostile, words};
use crate::support::needs::debug_command;
use crate::support::random::Random;
use crate::support::{Server, run, setting};
use look::Seen;
use visit::{Role, Visit};

/// What is sent before the first reply is read.
const VISITS_PER_PIPELINE: usize = 32;

const ALLOWED: &str = "allowed and stored";
const LOOKED: &str = "allowed, nothing to store";
const LIMITED: &str = "limited for now";
/// Not an outcome of its own: some key expired between the looks, and its DEL was replicated, too.
const BLURRED: &str = "(a key expired meanwhile)";

struct Attack {
    client: Hostile,
    /// Expiries are told by PTTL.
    time_left: bool,
    made: u64,
    outcomes: BTreeMap<String, u64>,
}

/// Makes `FUZZ_CALLS` calls, or one of so many of them.
fn run_visits(
    one_of: u64,
    visit: fn(&mut Attack) -> Visit,
    check: fn(&mut Attack, &Visit, &Seen) -> Result<(), String>,
) -> Attack {
    let seed = setting("FUZZ_SEED", 1);
    let calls = setting("FUZZ_CALLS", 20_000) / one_of;

    // The AOF holds what replicas are sent, and INFO tells its length call by call.
    let server = Server::start_with(
        // What compresses leaves some bytes to chance, and DUMPs are compared.
        &[&AOF[..], &["--hz", "1", "--rdbcompression", "no"], debug_command()].concat(),
    );
    let mut connection = server.connect();
    // What expires between two commands would be replicated in between.
    run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    // The first write also replicates a SELECT.
    run::<()>(&mut connection, "SET first 1").unwrap();
    let mut attack = Attack {
        client: Hostile { random: Random::new(seed) },
        // Redis 6.2 only tells how long a key still has.
        time_left: run::<Value>(&mut connection, "PEXPIRETIME first").is_err(),
        made: 0,
        outcomes: BTreeMap::new(),
    };
    while attack.made < calls {
        let visits: Vec<Visit> = (0..VISITS_PER_PIPELINE).map(|_| visit(&mut attack)).collect();
        let packed: Bytes = visits.iter().flat_map(Visit::packed).collect();
        let mut check = || -> RedisResult<()> {
            connection.send_packed_command(&packed)?;
            for visit in &visits {
                let answers = visit.answers(&mut connection)?;
                let seen = Seen::read(&answers, attack.time_left);
                if let Err(wrong) = seen.and_then(|seen| check(&mut attack, visit, &seen)) {
                    panic!("seed {seed}, after {} calls: {wrong}\n{visit:?}", attack.made);
                }
            }
            Ok(())
        };
        check().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", server.log()));
    }
    println!("seed {seed}, {} calls: {:#?}", attack.made, attack.outcomes);
    attack
}

impl Attack {
    /// At each key of the visit.
    fn look(&self, visit: &mut Visit) {
        let expiry = if self.time_left { "PTTL" } else { "PEXPIRETIME" };
        for key in visit.keys.clone() {
            for name in ["GET", "DUMP", expiry] {
                visit.push(Role::Look, vec![name.into(), key.clone()]);
            }
            visit.push(Role::Look, words(&["DBSIZE"]));
            visit.push(Role::Look, words(&["TIME"]));
            visit.push(Role::Look, words(&["INFO", "persistence"]));
            visit.push(Role::Look, words(&["DBSIZE"]));
        }
    }

    /// A run that seldom gets somewhere shows little about it.
    fn has_seen(&self, outcomes: &[String]) {
        for outcome in outcomes {
            let times = self.outcomes.get(outcome).copied().unwrap_or(0);
            assert!(times * 1000 >= self.made, "{outcome}: only {times} times");
        }
        let blurred = self.outcomes.get(BLURRED).copied().unwrap_or(0);
        assert!(blurred * 4 <= self.made, "{blurred} effects went unseen");
    }
}
