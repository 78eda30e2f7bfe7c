//! docs/recipes/waiting.py: a queue whose calls wait for their turns.

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::programs::python;
use crate::support::random::Random;
use crate::support::recipes::{Dialogue, START, prints_what_the_page_shows};

#[test]
fn a_queue_tells_each_call_how_long_to_wait_and_refuses_whom_it_would_make_wait_longer() {
    let (_clock, server, _) = Clock::start(START);
    prints_what_the_page_shows("waiting.py", &server);
}

/// The calls come at random, sometimes too few and sometimes too many. A token does not take a whole number of
/// milliseconds.
#[test]
#[ignore = "slow: thousands of calls"]
fn turns_are_first_come_first_served_and_never_more_than_the_burst_and_the_rate() {
    let (burst, count, period, longest) = (4, 7, 100, 500);
    let (clock, server, _) = Clock::start(START);
    let mut command = python("../tests/once/recipes/waiting_turns.py", &server);
    command.args([burst - 1, count, period, longest].map(|number| number.to_string()));
    let mut queue = Dialogue::start(command);
    let (mut random, mut now, mut turns, mut seen) = (Random::new(2026), 0, Vec::new(), [0; 3]);
    for number in 0..3_000 {
        now += random.below(if number % 400 < 200 { 10 } else { 60 }) as i64;
        clock.set(START + now * MILLISECOND);
        let tokens = random.pick(&[1, 1, 1, 1, burst]);
        let wait: i64 = queue.ask(tokens).parse().unwrap();
        assert!((-period * burst / count - 1..=longest).contains(&wait), "{wait}");
        seen[(wait.signum() + 1) as usize] += 1;
        if wait >= 0 {
            turns.push((now + wait, tokens));
        }
    }
    assert_eq!(queue.ask(burst + 1), "a turn is for 1 to 4 tokens");
    assert!(seen.iter().all(|&calls| calls > 100), "refused, at once, with a wait: {seen:?}");
    // The rounding up to a millisecond may put a later call's turn a millisecond before an earlier call's.
    assert!(turns.windows(2).all(|pair| pair[0].0 <= pair[1].0 + 1));
    turns.sort_unstable();
    for (first, (begin, _)) in turns.iter().enumerate() {
        let mut taken = 0;
        for (end, tokens) in &turns[first..] {
            taken += tokens;
            assert!(taken <= burst + (end - begin + 1) * count / period, "{taken} from {begin} to {end}");
        }
    }
}
