//! A gateway's token budgets: docs/budgets/token_budget.py, call by call and over many calls.
//!
//! The program takes the estimate and one request before a call. When the answer is there, it charges the tokens used
//! beyond the estimate, or gives back the unused ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use redis::{Cmd, Connection};

use crate::support::clock::{Clock, START};
use crate::support::pages::shows;
use crate::support::programs::{output, python, python_code};
use crate::support::random::Random;
use crate::support::{command, run};

const MILLISECOND: i64 = 1_000_000;
const MINUTE: i64 = 60_000 * MILLISECOND;

#[test]
#[ignore = "slow: Python"]
fn the_example_charges_what_was_used_and_says_how_long_to_wait() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let output = output(&mut python("../budgets/token_budget.py", &server));
    // The user has used 26,000 of 20,000. So 6,000 have to come back, and 2,000 more for the estimate, at 20,000 a
    // minute.
    let expected = "\
        short\n\
        failed: the model is gone\n\
        long\n\
        over budget, wait 24\n\
        over budget, wait None\n";
    assert_eq!(output, expected);
    assert!(shows("docs/budgets.md", expected), "the page does not show what the program prints");
    for (key, a_minute, taken) in
        [("requests", 600, 3), ("alice:requests", 60, 3), ("tokens", 100_000, 26_000), ("alice:tokens", 20_000, 26_000)]
    {
        let tat: i64 = run(&mut connection, &format!("GET {{budget:acme}}:{key}")).unwrap();
        assert_eq!(tat, START + taken * MINUTE / a_minute, "{key}");
    }
}

/// A caller that hangs up before the answer's end has used the model; one with a negative estimate has not.
#[test]
#[ignore = "slow: Python"]
fn a_call_that_breaks_off_is_charged_its_estimate_and_a_negative_estimate_is_an_error() {
    let (_clock, server) = Clock::start(START);
    let program = "import os, redis, token_budget
budget = token_budget.Budget(redis.Redis(port=int(os.environ['REDIS_PORT'])), 'acme', 'alice')
def hangs_up():
    raise error
for estimate, error in (4_000, GeneratorExit()), (2_000, BrokenPipeError()), (2_000, TimeoutError()), (-8_000, None):
    try:
        token_budget.ask(budget, estimate, hangs_up)
    except (GeneratorExit, OSError, ValueError) as error:
        print(type(error).__name__)";
    assert_eq!(
        output(&mut python_code(program, &server)),
        "GeneratorExit\nBrokenPipeError\nTimeoutError\nValueError\n"
    );
    let tokens: i64 = run(&mut server.connect(), "GET {budget:acme}:alice:tokens").unwrap();
    assert_eq!(tokens, START + 8_000 * MINUTE / 20_000);
}

#[test]
#[ignore = "slow: Python"]
fn an_answer_is_not_lost_if_it_cannot_be_settled() {
    let (_clock, server) = Clock::start(START);
    let program = "import os, signal, redis, token_budget
budget = token_budget.Budget(redis.Redis(port=int(os.environ['REDIS_PORT']), retry=None), 'acme', 'alice')
def model():
    os.kill(int(os.environ['SERVER_PID']), signal.SIGKILL)
    return 'the answer', 9_000
print(token_budget.ask(budget, 8_000, model))";
    let mut python = python_code(program, &server);
    assert_eq!(output(python.env("SERVER_PID", server.pid().to_string())), "the answer\n");
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
        let mut tokens = Self { key, a_minute, charges: 0, used: a_minute, overrun: 0, lowest: 0 };
        tokens.charge(a_minute).query::<[i64; 5]>(connection).unwrap();
        tokens
    }

    fn limit(&self, quantity: i64) -> String {
        format!("{} {} {} 60 {quantity}", self.key, self.a_minute - 1, self.a_minute)
    }

    fn charge(&mut self, quantity: i64) -> Cmd {
        self.charges += 1;
        command(&format!("CL.CHARGE {}", self.limit(quantity)))
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

    fn settled(&mut self, answer: Answer) -> Cmd {
        self.overrun -= answer.overrun();
        self.charge(answer.used - answer.estimate)
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
    estimate: i64,
    used: i64,
}

impl Answer {
    /// Returns an answer that uses up to three times its estimate, or, once in five, fails and uses nothing.
    fn random(random: &mut Random) -> Self {
        let estimate = 1 + random.below(400) as i64;
        let used = if random.one_in(5) { 0 } else { random.below(3 * estimate as usize + 1) as i64 };
        Self { estimate, used }
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
    // Tokens a minute, of the organisation and of each user: first the organisation limits, then the users. A token
    // does not take a whole number of nanoseconds.
    for (organisation, user) in [(30_011, 1_000_003), (1_000_003, 7_013)] {
        let (clock, server) = Clock::start(START);
        let mut connection = server.connect();
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
                let mut calls = redis::pipe();
                for tokens in tokens {
                    calls.add_command(tokens.settled(answer));
                }
                calls.query::<[[i64; 5]; 2]>(&mut connection).unwrap();
                let next = later(random.below(1_000));
                steps.push(Reverse((next, caller, Step::Reserve, Answer::random(&mut random))));
            } else if answers < ANSWERS {
                match reserve(&mut connection, &tokens, caller % USERS, answer.estimate) {
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

/// Takes the estimate and one request from both budgets in one call. Returns the seconds to wait, 0 if it was allowed.
fn reserve(connection: &mut Connection, [whole, own]: &[&mut Tokens; 2], user: usize, estimate: i64) -> usize {
    let requests = format!("{{org}}:requests 9999 9999 60 1 {{org}}:{user}:requests 9999 9999 60 1");
    let call = format!("CL.MTHROTTLE {requests} {} {}", whole.limit(estimate), own.limit(estimate));
    type Five = (bool, i64, i64, i64, i64);
    let (limited, _, _, whole, own): (bool, Five, Five, Five, Five) = run(connection, &call).unwrap();
    if limited { whole.3.max(own.3) as usize } else { 0 }
}

/// The exception to the bound of a window: an estimate that has come back while its call is in flight is given back
/// whole.
#[test]
fn a_call_that_fails_after_its_estimate_has_come_back_gives_it_back_again_once() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut all = |command: &str, sign: &str| -> [i64; 5] {
        run(&mut connection, &format!("{command} key 99 100 60 {sign}100")).unwrap()
    };
    assert_eq!(all("CL.THROTTLE", "")[0], 0);
    clock.set(START + MINUTE);
    assert_eq!(all("CL.THROTTLE", "")[0], 0);
    assert_eq!(all("CL.THROTTLE", "")[0], 1);
    assert_eq!(all("CL.CHARGE", "-")[2], 100, "the first call has failed, and gives its estimate back");
    assert_eq!(all("CL.THROTTLE", "")[0], 0, "the estimate did not come back");
    assert_eq!(all("CL.THROTTLE", "")[0], 1, "the estimate came back twice");
}

/// Both kinds of call have the same key, count and period, as docs/budgets.md says.
#[test]
fn a_call_with_a_smaller_burst_leaves_the_rest_to_the_others() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut ask = |max_burst| run::<[i64; 5]>(&mut connection, &format!("CL.TAKE key {max_burst} 10 1 1000")).unwrap();
    assert_eq!(ask(99)[0], 100);
    assert_eq!(ask(99)[0], 0);
    assert_eq!(ask(999)[0], 900);
    clock.set(START + 50 * 1_000 * MILLISECOND);
    assert_eq!(ask(99)[0], 0);
    assert_eq!(ask(999)[0], 500);
}
