//! A gateway's token budgets: docs/budgets/gateway.py and the functions of reservation.lua, over many calls.
//!
//! The program takes a place, the estimate and one request before a call. When the answer is there, it settles the
//! tokens used: those beyond the estimate are charged, or the unused ones given back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND, START};
use crate::support::needs::needs;
use crate::support::pages::shows;
use crate::support::programs::output;
use crate::support::random::Random;
use crate::support::recipes::{self, load_function, program, read};
use crate::support::{Server, run, throttle, wait_until};

const MINUTE: i64 = 60_000 * MILLISECOND;

fn start() -> (Clock, Server, Connection) {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("../budgets/reservation.lua")).unwrap();
    (clock, server, connection)
}

fn held(connection: &mut Connection) -> i64 {
    run(connection, "FCALL_RO reservations 1 {gate:acme}:calls").unwrap()
}

#[test]
#[ignore = "slow: Python"]
fn the_gateway_charges_what_was_used_and_says_how_long_to_wait() {
    needs!("functions, Redis 7");
    let (_clock, server, mut connection) = start();
    let output = output(&mut recipes::python("../budgets/gateway.py", &server));
    // The user has used 26,000 of 20,000. So 6,000 have to come back, and 2,000 more for the estimate, at 20,000 a
    // minute.
    let expected = "\
        short\n\
        failed: the model is gone\n\
        long\n\
        over budget 24\n\
        over budget None\n\
        no place 60\n\
        another lease: 1\n";
    assert_eq!(output, expected);
    assert!(shows("docs/budgets.md", expected), "the page does not show what the program prints");
    for (key, a_minute, taken) in
        [("requests", 600, 5), ("alice:requests", 60, 3), ("tokens", 100_000, 27_000), ("alice:tokens", 20_000, 26_000)]
    {
        let tat: i64 = run(&mut connection, &format!("GET {{gate:acme}}:{key}")).unwrap();
        assert_eq!(tat, START + taken * MINUTE / a_minute, "{key}");
    }
    assert_eq!(held(&mut connection), 0);
}

/// A caller that hangs up before the answer's end has used the model; one with a negative estimate has not.
#[test]
#[ignore = "slow: Python"]
fn a_call_that_breaks_off_is_charged_its_estimate_and_a_negative_estimate_is_an_error() {
    needs!("functions, Redis 7");
    let (_clock, server, mut connection) = start();
    assert_eq!(
        output(&mut program("gateway_broken.py", &server)),
        "GeneratorExit\nBrokenPipeError\nTimeoutError\nResponseError\n"
    );
    let tokens: i64 = run(&mut connection, "GET {gate:acme}:alice:tokens").unwrap();
    assert_eq!(tokens, START + 8_000 * MINUTE / 20_000);
    assert_eq!(held(&mut connection), 0);
}

#[test]
#[ignore = "slow: Python"]
fn an_answer_is_not_lost_if_it_cannot_be_settled() {
    needs!("functions, Redis 7");
    let (_clock, server, _) = start();
    assert_eq!(output(&mut program("gateway_killed.py", &server)), "the answer\n");
}

/// The first two answers of each call are lost, and then all three.
#[test]
#[ignore = "slow: Python"]
fn a_call_whose_answer_is_lost_is_repeated_in_three_tries_and_charged_once() {
    needs!("functions, Redis 7");
    let (_clock, server, mut connection) = start();
    assert_eq!(output(&mut program("gateway_lost.py", &server)), "the answer 6\nno answer 6\n");
    assert_eq!(throttle(&mut connection, "{gate:acme}:alice:tokens 19999 20000 60 0")[2], 11_000);
    assert_eq!(held(&mut connection), 0);
}

/// The answer to the first call is lost, and the memory is full. Then the server is gone. Each line has the moments of
/// the tries in seconds: those of the reservation, and those of its settlement.
#[test]
#[ignore = "slow: Python"]
fn a_call_that_is_refused_leaves_nothing_taken_and_three_tries_last_a_second() {
    needs!("functions, Redis 7");
    let (_clock, server, mut connection) = start();
    let expected = "\
        ResponseError 0.0 0.3 0.3\n\
        ConnectionError 0.0 0.3 0.7 0.7 1.0 1.3\n\
        ConnectionError 0.0 0.3 0.7 1.0 1.3 1.6\n\
        ConnectionError 0.0 0.7\n\
        the answer 0.0 0.3 0.7 0.7\n";
    assert_eq!(output(&mut program("gateway_refused.py", &server)), expected);
    assert_eq!(throttle(&mut connection, "{gate:acme}:alice:tokens 19999 20000 60 0")[2], 17_000);
    assert_eq!(held(&mut connection), 0);
}

/// The server stands still, and carries all tries out after the program has given up, in any order.
#[test]
#[ignore = "slow: Python"]
fn a_gateway_without_an_answer_leaves_no_place_and_no_tokens_taken() {
    needs!("functions, Redis 7");
    let (_clock, server, mut connection) = start();
    assert_eq!(output(&mut program("gateway_silent.py", &server)), "no answer\n");
    let calls = |connection: &mut Connection| -> usize {
        let stats: String = run(connection, "INFO commandstats").unwrap();
        let calls = stats.split_once("cmdstat_fcall:calls=").map_or("0", |(_, calls)| calls);
        calls.split(',').next().unwrap().parse().unwrap()
    };
    wait_until("the tries are carried out", || calls(&mut connection) >= 1);
    wait_until("no place and no tokens are taken", || {
        let tokens = throttle(&mut connection, "{gate:acme}:alice:tokens 19999 20000 60 0")[2];
        held(&mut connection) == 0 && tokens == 20_000
    });
}

const USERS: usize = 4;
/// The calls of one user that may be in flight at once.
const CALLERS: usize = 6;
const ANSWERS: usize = 3_000;

/// A budget of tokens, and the test's own account of it.
struct Tokens {
    key: String,
    /// The tokens that come back in a minute; the limit is the same number.
    a_minute: i64,
    charges: i64,
    /// The tokens used by all answers, those in flight included.
    used: i64,
    /// The tokens that the answers in flight will have used beyond their estimates.
    overrun: i64,
    /// The lowest excess before any call so far: tokens used minus tokens come back, in tokens * ns.
    lowest: i128,
}

impl Tokens {
    /// Returns a budget that starts empty, so that it is never full: a full budget gains no tokens.
    fn used_up(connection: &mut Connection, key: String, a_minute: i64) -> Self {
        let tokens = Self { key, a_minute, charges: 1, used: a_minute, overrun: 0, lowest: 0 };
        let charge = format!("CL.CHARGE {} {} {a_minute}", tokens.key, tokens.quota());
        run::<[i64; 5]>(connection, &charge).unwrap();
        tokens
    }

    fn quota(&self) -> String {
        format!("{} {} 60", self.a_minute - 1, self.a_minute)
    }

    fn reserved(&mut self, now: i64, answer: Answer) {
        self.charges += 1;
        self.lowest = self.lowest.min(self.excess(now));
        self.used += answer.used;
        self.overrun += answer.overrun();
        let beyond = (self.excess(now) - self.lowest) / i128::from(MINUTE);
        let most = i128::from(self.a_minute + self.overrun);
        assert!(beyond <= most, "{}: {beyond} beyond the rate in a window, of at most {most}", self.key);
    }

    fn settled(&mut self, answer: Answer) {
        self.charges += 1;
        self.overrun -= answer.overrun();
    }

    /// Returns the tokens used minus the tokens come back, in tokens * ns.
    fn excess(&self, now: i64) -> i128 {
        i128::from(self.used) * i128::from(MINUTE) - i128::from(now - START) * i128::from(self.a_minute)
    }

    fn assert_charged_as_used(&self, connection: &mut Connection) {
        let tat: i64 = run(connection, &format!("GET {}", self.key)).unwrap();
        let used = i128::from(self.used) * i128::from(MINUTE) / i128::from(self.a_minute);
        let rounding = tat - START - i64::try_from(used).unwrap();
        println!("{}: {} used, charged to within {rounding} ns by {} calls", self.key, self.used, self.charges);
        assert!(rounding.abs() <= self.charges, "{}: {rounding} ns", self.key);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    id: u64,
    estimate: i64,
    used: i64,
}

impl Answer {
    /// Returns an answer that uses up to three times its estimate, or, once in five, fails and uses nothing.
    fn random(random: &mut Random) -> Self {
        let estimate = 1 + random.below(400) as i64;
        let used = if random.one_in(5) { 0 } else { random.below(3 * estimate as usize + 1) as i64 };
        Self { id: random.bits(), estimate, used }
    }

    fn overrun(self) -> i64 {
        (self.used - self.estimate).max(0)
    }
}

/// The next step of a caller.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Reserve,
    Settle,
}

#[test]
#[ignore = "slow: thousands of calls"]
fn charged_is_what_was_used_and_any_window_has_the_burst_the_rate_and_the_overruns_in_flight() {
    needs!("functions, Redis 7");
    // Tokens a minute, of the organisation and of each user: first the organisation limits, then the users. A token
    // does not take a whole number of nanoseconds.
    for (organisation, user) in [(30_011, 1_000_003), (1_000_003, 7_013)] {
        let (clock, _server, mut connection) = start();
        let mut whole = Tokens::used_up(&mut connection, "{org}:tokens".to_string(), organisation);
        let mut own: Vec<_> = (0..USERS)
            .map(|number| Tokens::used_up(&mut connection, format!("{{org}}:{number}:tokens"), user))
            .collect();

        let mut random = Random::new(2026);
        let (mut answers, mut limited) = (0, 0);
        // The earliest step comes first.
        let mut steps = BinaryHeap::new();
        for caller in 0..USERS * CALLERS {
            steps.push(Reverse((START, caller, Step::Reserve, Answer::random(&mut random))));
        }
        while let Some(Reverse((now, caller, step, answer))) = steps.pop() {
            clock.set(now);
            let later = |milliseconds: usize| now + milliseconds as i64 * MILLISECOND;
            let tokens = [&mut whole, &mut own[caller % USERS]];
            if step == Step::Settle {
                answers += 1;
                let keys = tokens.each_ref().map(|tokens| tokens.key.as_str()).join(" ");
                let settle = format!("FCALL settle 3 {{org}}:calls {keys} {} {}", answer.id, answer.used);
                assert_eq!(run::<(i64, Value, Value)>(&mut connection, &settle).unwrap().0, 1);
                tokens.into_iter().for_each(|tokens| tokens.settled(answer));
                let next = later(random.below(1_000));
                steps.push(Reverse((next, caller, Step::Reserve, Answer::random(&mut random))));
            } else if answers < ANSWERS {
                match reserve(&mut connection, &tokens, answer) {
                    0 => {
                        tokens.into_iter().for_each(|tokens| tokens.reserved(now, answer));
                        steps.push(Reverse((later(100 + random.below(8_000)), caller, Step::Settle, answer)));
                    }
                    seconds => {
                        limited += 1;
                        let again = later(seconds * 1_000 + random.below(3_000));
                        steps.push(Reverse((again, caller, Step::Reserve, answer)));
                    }
                }
            }
        }
        println!("{answers} answers, {limited} times limited");
        assert!(limited > ANSWERS / 10);
        let limiting = if organisation < user { vec![whole] } else { own };
        limiting.iter().for_each(|tokens| tokens.assert_charged_as_used(&mut connection));
    }
}

/// Takes the estimate from both budgets in one call. Returns the seconds to wait, 0 if it was allowed.
fn reserve(connection: &mut Connection, [whole, own]: &[&mut Tokens; 2], Answer { id, estimate, .. }: Answer) -> usize {
    let quotas = format!("{} amount {} amount", whole.quota(), own.quota());
    let call = format!("FCALL reserve 3 {{org}}:calls {} {} {id} 60000 0 {estimate} keep {quotas}", whole.key, own.key);
    type Five = (bool, i64, i64, i64, i64);
    let (limited, _, _, whole, own): (bool, i64, i64, Five, Five) = run(connection, &call).unwrap();
    if limited { whole.3.max(own.3) as usize } else { 0 }
}

/// An estimate that has come back by itself before its call fails is given back a second time. Only then may a window
/// hold more than the burst, the rate and the overruns.
#[test]
fn a_call_that_fails_after_its_estimate_has_come_back_gives_it_back_again_once() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    let mut first = |line: &str| run::<Vec<Value>>(&mut connection, &format!("FCALL {line}")).unwrap().remove(0);
    let mut reserve = |id: &str| first(&format!("reserve 2 calls key {id} 120000 0 100 keep 99 100 60 amount"));
    let [taken, limited] = [0, 1].map(Value::Int);
    assert_eq!(reserve("a"), taken);
    clock.set(START + MINUTE);
    assert_eq!([reserve("b"), reserve("c")], [taken.clone(), limited.clone()]);
    assert_eq!(
        first("settle 2 calls key a 0"),
        Value::Int(1),
        "the first call has failed, and gives its estimate back"
    );
    let mut reserve = |id: &str| first(&format!("reserve 2 calls key {id} 120000 0 100 keep 99 100 60 amount"));
    assert_eq!([reserve("d"), reserve("e")], [taken, limited], "the estimate came back once");
}
