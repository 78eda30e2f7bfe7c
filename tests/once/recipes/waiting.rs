//! docs/recipes/waiting.py: a queue whose calls wait for their turns.

use crate::support::clock::{Clock, MICROSECOND, MILLISECOND};
use crate::support::programs;
use crate::support::random::Random;
use crate::support::recipes::{Dialogue, START, prints, program};
use crate::support::run;

#[test]
fn a_queue_tells_each_call_how_long_to_wait_and_refuses_whom_it_would_make_wait_longer() {
    let (clock, server) = Clock::start(START);
    let expected = "\
        a waits 0 ms\n\
        b waits 0 ms\n\
        c waits 100 ms\n\
        d waits 200 ms\n\
        e waits 300 ms\n\
        f is refused, may ask again after 100 ms\n";
    prints("waiting.py", &server, expected);
    // A call that does not wait is limited while other calls wait.
    let mut connection = server.connect();
    let mut at_once = || run::<[i64; 5]>(&mut connection, "CL.PTHROTTLE printer 1 1 100").unwrap();
    assert_eq!(at_once()[0], 1);
    clock.set(START + 400 * MILLISECOND - MICROSECOND);
    assert_eq!(at_once()[0], 1);
    clock.set(START + 400 * MILLISECOND);
    assert_eq!(at_once()[0], 0);
}

/// No call waits beyond the longest wait, even if a token does not take a whole number of milliseconds.
#[test]
#[ignore = "slow: Python"]
fn no_turn_is_further_away_than_the_longest_wait_and_no_turn_is_of_more_than_the_burst_or_of_none() {
    let (_clock, server) = Clock::start(START);
    let expected = "[0, 334, 667, 1000]\n".to_string() + &"a turn is for 1 to 1 tokens\n".repeat(3);
    assert_eq!(programs::output(&mut program("waiting_longest.py", &server)), expected);
    let tat: i64 = run(&mut server.connect(), "GET key").unwrap();
    assert_eq!(tat, START + 4 * 333_333_333, "four tokens are taken, and none is given back");
}

/// The calls come at random, sometimes too few and sometimes too many; the test records each turn that the program
/// announces.
#[test]
#[ignore = "slow: thousands of calls"]
fn turns_are_first_come_first_served_and_never_more_than_the_burst_and_the_rate() {
    // A token does not take a whole number of milliseconds.
    let (burst, count, period, longest) = (4_i64, 7_i64, 100_i64, 500_i64);
    let (clock, server) = Clock::start(START);
    let mut command = program("waiting_turns.py", &server);
    command.args([burst - 1, count, period, longest].map(|number| number.to_string()));
    let mut queue = Dialogue::start(command);
    let mut random = Random::new(2026);
    let mut now = 0;
    let mut turns = Vec::new();
    let (mut at_once, mut refused) = (0, 0);
    for number in 0..3_000 {
        now += random.below(if number % 400 < 200 { 10 } else { 60 }) as i64;
        clock.set(START + now * MILLISECOND);
        let tokens = if random.one_in(5) { burst } else { 1 };
        let wait: i64 = queue.ask(tokens).parse().unwrap();
        if wait < 0 {
            refused += 1;
            assert!(-wait <= period * burst / count + 1, "{wait}");
        } else {
            assert!(wait <= longest, "{wait}");
            at_once += i64::from(wait == 0);
            turns.push((now + wait, tokens));
        }
    }
    println!("{} turns, {at_once} at once, {refused} refused", turns.len());
    assert!(refused > 100 && at_once > 100 && turns.len() as i64 - at_once > 100);
    // The rounding up to a millisecond may put a later call's turn a millisecond before an earlier call's.
    assert!(turns.windows(2).all(|pair| pair[0].0 <= pair[1].0 + 1));
    turns.sort_unstable();
    for (first, (begin, _)) in turns.iter().enumerate() {
        let mut taken = 0;
        for (end, tokens) in &turns[first..] {
            taken += tokens;
            let most = burst + (end - begin + 1) * count / period;
            assert!(taken <= most, "{taken} from {begin} to {end}");
        }
    }
}
