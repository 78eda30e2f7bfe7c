//! docs/recipes/fake.py: the rule in a test without a server.

use crate::support::clock::Clock;
use crate::support::programs::{output, python};
use crate::support::random::Random;
use crate::support::recipes::{Dialogue, START, pause, quantity, quota};
use crate::support::throttle;

#[test]
#[ignore = "slow: thousands of calls"]
fn the_fake_for_unit_tests_decides_as_the_module_does() {
    let (clock, server, mut connection) = Clock::start(START);
    let mut fake = Dialogue::start(python("../tests/once/recipes/fake_lines.py", &server));
    let (mut random, mut now, mut limited) = (Random::new(2026), START, 0);
    for round in 0..300 {
        let (limit, quota) = quota(&mut random);
        for _ in 0..25 {
            let numbers = format!("key{round} {quota} {}", quantity(&mut random, limit));
            let expected = throttle(&mut connection, &numbers);
            let answer = fake.ask(format!("{now} {numbers}"));
            assert_eq!(answer, expected.map(|integer| integer.to_string()).join(" "), "at {now}: {numbers}");
            limited += expected[0];
            now += pause(&mut random, expected[3]);
            clock.set(now);
        }
    }
    assert!(limited > 500, "{limited} limited");
    let expected = "[0, 2, 1, -1, 60]\n[0, 2, 0, -1, 120]\n[1, 2, 0, 60, 120]\n[0, 2, 0, -1, 120]\n";
    assert_eq!(output(&mut python("recipes/fake.py", &server)), expected);
}
