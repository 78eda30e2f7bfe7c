//! The pause of docs/recipes.md: a quota of one token a millisecond holds back the limiter on its key.

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::recipes::{START, user};
use crate::support::run;

#[test]
fn of_several_pauses_the_one_that_ends_last_counts_and_then_one_call_passes() {
    let (clock, server, _) = Clock::start(START);
    let mut worker = user(&server, "docs/recipes.md", "## Pause until");
    // Workers are told to wait, each at another moment: the second one for longest, until 61 s after the start.
    for (second, pause) in [(0, 30_000), (1, 60_000), (2, 5_000), (3, 57_999)] {
        clock.set(START + second * SECOND);
        // max_burst * period / count of the limiter is 900 ms.
        let (max_burst, quantity) = (pause + 899, pause + 900);
        run::<[i64; 5]>(&mut worker, &format!("CL.PTAKE partner {max_burst} 1 1 {quantity}")).unwrap();
    }
    // After the pause, the limiter is empty, and a token comes back every 100 ms.
    for (milliseconds, passing) in [(-1, 0), (0, 1), (99, 0), (100, 1)] {
        clock.set(START + 61 * SECOND + milliseconds * MILLISECOND);
        let mut passes = || run::<[i64; 5]>(&mut worker, "CL.THROTTLE partner 9 10 1").unwrap()[0] == 0;
        let passed = (0..2).filter(|_| passes()).count();
        assert_eq!(passed, passing, "{milliseconds} ms after the end of the pause");
    }
}
