//! The pause of docs/recipes.md: a quota of one token a millisecond holds back the limiter on its key.

use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::random::Random;
use crate::support::recipes::{START, user};
use crate::support::run;

/// The page's `max_burst * period / count`, in milliseconds.
const BURST: i64 = 900;

/// Makes a call of the page's limiter, and returns whether it passes.
fn passes(connection: &mut Connection) -> bool {
    run::<Vec<i64>>(connection, "CL.THROTTLE partner 9 10 1").unwrap()[0] == 0
}

#[test]
fn of_several_pauses_the_one_that_ends_last_counts_and_then_one_call_passes() {
    let (clock, server, _) = Clock::start(START);
    let mut worker = user(&server, "docs/recipes.md", "## Pause until");
    let (mut random, mut now) = (Random::new(2026), START);
    for round in 0..20 {
        let calls = random.below(12);
        assert_eq!((0..12).take_while(|&number| number < calls && passes(&mut worker)).count(), calls.min(10));
        let mut end = 0;
        // Five workers are told to wait, each at another moment.
        for _ in 0..5 {
            now += random.below(1_000_000_000) as i64;
            clock.set(now);
            let pause = 5_000 + random.below(55_000) as i64;
            let (max_burst, quantity) = (pause + BURST - 1, pause + BURST);
            run::<Vec<i64>>(&mut worker, &format!("CL.PTAKE partner {max_burst} 1 1 {quantity}")).unwrap();
            end = end.max(now + pause * MILLISECOND);
        }
        clock.set(end - MILLISECOND);
        assert!(!passes(&mut worker), "a call passes a millisecond before the end of pause {round}");
        // The limiter is empty then, and a token comes back every 100 ms.
        for (milliseconds, expected) in [(0, [true, false]), (99, [false, false]), (100, [true, false])] {
            clock.set(end + milliseconds * MILLISECOND);
            let passed = [(); 2].map(|()| passes(&mut worker));
            assert_eq!(passed, expected, "{milliseconds} ms after the end of pause {round}");
        }
        // All tokens are back.
        now = end + 1_100 * MILLISECOND;
        clock.set(now);
    }
}
