//! docs/budgets/reservation.lua: each call is charged once while answers are lost and servers killed. Here is its rule a
//! second time, and calls at random are compared with it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::needs::{FUNCTIONS, REDIS_7_0, SCRIPTS_TEST, needs};
use crate::support::random::Random;
use crate::support::recipes::{Row, START, ask, load_reservations as load};
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, command, executable, module, new_folder, run};

const PLACES: usize = 4;
/// The limiters of all and of each of three users: max_burst, tokens that come back in a period, and this in seconds. A
/// token takes no whole number of nanoseconds.
const LIMITERS: [[i64; 3]; 4] = [[2_010, 2_011, 60], [2_013, 2_014, 2], [10_054, 20_011, 60], [1_021, 20_011, 3_600]];

/// Returns the words of a call on one limiter, or on its twin.
fn words(twin: &str, limiter: usize, quantity: i64) -> String {
    let [max_burst, count, period] = LIMITERS[limiter];
    format!("{{a}}:{twin}{limiter} {max_burst} {count} {period} {quantity}")
}

/// The words that a call sends again whenever it repeats: its user, lease and estimate.
type Terms = (usize, i64, i64);

/// A call; the ends of its lease and of its key, in ms since the start.
struct Call {
    terms: Terms,
    is_settled: bool,
    held: i64,
    known: i64,
}

/// The rule a second time. Each limiter has a twin, to which the model makes the plain calls that the functions should
/// make: a call takes its estimate, and then the difference to what it has used. The stored states are equal.
struct Model {
    connection: Connection,
    now: i64,
    calls: BTreeMap<usize, Call>,
}

impl Model {
    fn held(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|call| !call.is_settled && call.held > self.now)
    }

    fn reserve(&mut self, id: usize, terms @ (user, lease, estimate): Terms) -> (&'static str, Vec<i64>) {
        match self.calls.get(&id) {
            Some(call) if call.is_settled => return ("this call is settled", vec![]),
            Some(call) if call.terms != terms => return ("this call has reserved with other words", vec![]),
            Some(call) if call.held <= self.now => return ("the lease of this call has ended", vec![]),
            Some(_) => return ("reserved again", vec![0]),
            None => {}
        }
        if self.held().count() >= PLACES {
            let first = self.held().map(|call| call.held - self.now).min().unwrap();
            return ("no place", vec![0, (first + 999) / 1_000]);
        }
        let twins = [0, user].map(|limiter| words("twin", limiter, estimate));
        let call = format!("CL.MTHROTTLE {}", twins.join(" "));
        let (limited, all, own): (i64, Row, Row) = run(&mut self.connection, &call).unwrap();
        if limited == 1 {
            // A wait of -1 is for ever.
            let [all, own] = [all, own].map(|row| if row[0] == 0 { 0 } else { row[3] as u64 });
            return ("limited", if all >= own { vec![1, all as i64] } else { vec![2, own as i64] });
        }
        let (held, known) = (self.now + lease, self.now + 10 * lease);
        self.calls.insert(id, Call { terms, is_settled: false, held, known });
        ("reserved", vec![0])
    }

    fn renew(&mut self, id: usize, lease: i64) -> (&'static str, Vec<i64>) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.is_settled && call.held > now) else {
            return ("not renewed", vec![0]);
        };
        (call.held, call.known) = (now + lease, now + 10 * lease);
        ("renewed", vec![1])
    }

    fn settle(&mut self, id: usize, terms: Terms, used: i64) -> (&'static str, Vec<i64>) {
        let Some(call) = self.calls.get_mut(&id) else {
            self.calls.insert(id, Call { terms, is_settled: true, held: 0, known: self.now + 60_000 });
            return ("settled first", vec![0]);
        };
        if call.is_settled {
            return ("settled again", vec![2]);
        }
        call.is_settled = true;
        let (user, _, estimate) = call.terms;
        let name = if call.held > self.now { "settled" } else { "settled late" };
        for limiter in [0, user] {
            let charge = format!("CL.CHARGE {}", words("twin", limiter, used - estimate));
            run::<Row>(&mut self.connection, &charge).unwrap();
        }
        (name, vec![1])
    }
}

/// Makes calls at random moments and compares each with the model: new ones, and old ones again, in any order, from
/// callers some of which die. Now and then an answer is lost, because the primary is killed. It starts again from its
/// file, or the replica takes its place.
#[test]
#[ignore = "slow: thousands of calls"]
fn calls_are_those_of_a_model_through_kills_and_failovers() {
    needs!(FUNCTIONS);
    let settings = ["--appendonly", "yes", "--appendfsync", "always"];
    let [(clock, primary, _), (other_clock, replica, _)] = [(); 2].map(|()| Clock::start_with(START, &settings));
    let connection = load(&primary);
    replicate(&replica, &primary);
    let mut pair = [primary, replica];
    let set = |now: i64| [&clock, &other_clock].map(|clock| clock.set(START + now * MILLISECOND));
    let mut model = Model { connection, now: 0, calls: BTreeMap::new() };
    let (mut random, mut all, mut counts) = (Random::new(2026), Vec::<Terms>::new(), BTreeMap::new());
    for step in 0..5_000 {
        let quiet = if random.one_in(400) { 100_000 } else { random.below(14_000) } as i64;
        model.now += random.below(100) as i64 + if random.one_in(20) { quiet } else { 0 };
        model.calls.retain(|_, call| call.known >= model.now);
        set(model.now);
        let is_new = all.is_empty() || random.one_in(3);
        if is_new {
            let (longest, estimate) = (if random.one_in(2) { 180 } else { 9_000 }, random.below(200) as i64);
            all.push((1 + random.below(3), 20 + random.below(longest) as i64, estimate));
        }
        let id = all.len() - 1 - if is_new { 0 } else { random.below(all.len().min(16)) };
        all[id].2 += i64::from(random.one_in(5));
        let terms @ (user, lease, estimate) = all[id];
        let keys = format!("{{a}}:call-{id} {{a}}:calls {{a}}:0 {{a}}:{user}");
        let numbers = [0, user].map(|limiter| words("", limiter, estimate).split_once(' ').unwrap().1.to_string());
        let used = random.below(2 * estimate as usize + 1) as i64;
        let action = if is_new { 0 } else { random.below(10) };
        let line = match action {
            0..3 => format!("FCALL reserve 4 {keys} {lease} {PLACES} {}", numbers.join(" ")),
            3..5 => format!("FCALL renew 2 {{a}}:call-{id} {{a}}:calls {lease}"),
            _ => format!("FCALL settle 4 {keys} {used} {used}"),
        };
        let lost = step % 250 == 249;
        if lost {
            fail_over(&mut pair, &line, step % 500 == 249);
            model.connection = pair[0].connect();
        }
        let answer = ask(&mut model.connection, &line).map_err(|error| error.to_string());
        let (name, expected) = match action {
            0..3 => model.reserve(id, terms),
            3..5 => model.renew(id, lease),
            _ => model.settle(id, terms, used),
        };
        *counts.entry(name).or_insert(0) += 1;
        let place = format!("step {step} at {}: {line}: {name}", model.now);
        match answer {
            // The line that was lost may have been carried out.
            Ok(answer) if lost && action >= 5 && answer == [2] => assert!(!expected.is_empty(), "{place}"),
            Ok(answer) => assert_eq!(answer, expected, "{place}"),
            Err(answer) => assert!(expected.is_empty() && answer.contains(name), "{place}: {answer}"),
        }
        let keys = [0, 1, 2, 3].map(|limiter| format!("{{a}}:{limiter} {{a}}:twin{limiter}"));
        let states: Vec<Option<i64>> = run(&mut model.connection, &format!("MGET {}", keys.join(" "))).unwrap();
        assert!(states.chunks(2).all(|pair| pair[0] == pair[1]), "{place}: {states:?}");
        let held = ask(&mut model.connection, "FCALL_RO reservations 1 {a}:calls").unwrap();
        assert_eq!(held, [model.held().count() as i64], "{place}");
    }
    println!("{counts:?}");
    assert!(counts.len() == 13 && counts.values().all(|&count| count > 16), "{counts:?}");
    set(model.now + 366 * 86_400_000);
    let keys: Vec<String> = run(&mut model.connection, "KEYS *").unwrap();
    assert!(keys.is_empty(), "these keys stay: {keys:?}");
}

/// Sends a line and kills the primary, the first of these servers. It starts again, or the replica takes its place.
fn fail_over(pair: &mut [Server; 2], line: &str, is_promoted: bool) {
    catch_up(&pair[1], &pair[0]);
    let held = |server: &Server| ask(&mut server.connect(), "FCALL_RO reservations 1 {a}:calls").unwrap();
    assert_eq!(held(&pair[1]), held(&pair[0]));
    pair[0].connect().send_packed_command(&command(line).get_packed_command()).unwrap();
    pair[0].kill();
    if is_promoted {
        pair.swap(0, 1);
        run::<()>(&mut pair[0].connect(), "REPLICAOF NO ONE").unwrap();
        pair[1].restart();
    } else {
        pair[0].restart();
    }
    replicate(&pair[1], &pair[0]);
}

/// Each ECHO makes callgrind write the instructions of all commands since the last one.
#[test]
fn a_reservation_and_its_settlement_take_at_most_20_times_the_instructions_of_a_plain_call() {
    needs!(REDIS_7_0);
    needs!(SCRIPTS_TEST);
    let folder = new_folder();
    let [script, counts] = ["server", "counts"].map(|file| folder.path().join(file).to_str().unwrap().to_string());
    // The server may be a shell script, so callgrind traces its children as well.
    let options = "--tool=callgrind --trace-children=yes --callgrind-out-file";
    let counted = "--collect-atstart=no --toggle-collect=processCommand --dump-before=echoCommand";
    let valgrind = format!("exec valgrind {options}={counts} {counted}");
    fs::write(&script, format!("#!/bin/sh\n{valgrind} {} \"$@\"\n", executable().display())).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_executable(script.as_ref(), &["--loadmodule", module(), "--hz", "1"]);
    let (mut connection, mut files) = (load(&server), 0);
    let mut count = |lines: &[&str]| {
        let mut pipeline = redis::pipe();
        for number in 0..300 {
            for line in lines {
                pipeline.add_command(command(&line.replace('#', &number.to_string())));
            }
        }
        run::<()>(&mut connection, "ECHO before").unwrap();
        pipeline.query::<Vec<Value>>(&mut connection).unwrap();
        run::<()>(&mut connection, "ECHO after").unwrap();
        files += 2;
        let file = fs::read_to_string(format!("{counts}.{files}")).unwrap();
        let total = file.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        total.parse::<f64>().unwrap() / 300.0
    };
    let plain = [(); 3].map(|()| count(&["CL.THROTTLE limiter:# 99 100 60"]))[2];
    for (keys, words, most) in [("2 a:# limiter:#", "30000", 20.0), ("3 b:# calls limiter:#", "30000 1000000", 32.0)] {
        let both = count(&[&format!("FCALL reserve {keys} {words} 99 100 60 2"), &format!("FCALL settle {keys} 1")]);
        println!("{keys}: {both} instructions, {} times a plain call's", both / plain);
        assert!(both / plain < most, "{both} instructions, where a plain call takes {plain}");
    }
}
