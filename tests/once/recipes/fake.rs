//! docs/recipes/fake.py: the rule in a test without a server.

use crate::support::clock::{Clock, SECOND};
use crate::support::random::Random;
use crate::support::recipes::{Dialogue, START, output, program};
use crate::support::throttle;

#[test]
#[ignore = "slow: thousands of calls"]
fn the_fake_for_unit_tests_decides_as_the_module_does() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut fake = Dialogue::start(program("fake_lines.py", &server));
    let mut random = Random::new(2026);
    let mut now = START;
    let (mut limited, mut refunds) = (0, 0);
    for round in 0..300 {
        let number = |random: &mut Random, end: i64| {
            let end = if random.one_in(3) { end } else { end.min(40) };
            random.of_any_length() % end
        };
        let (max_burst, count) = (number(&mut random, 1 << 40) - 1, 1 + number(&mut random, 1_000_000_000));
        let period = 1 + number(&mut random, 1 << 21);
        if i128::from(max_burst + 1) * i128::from(period) / i128::from(count) > 7_000_000_000 {
            continue;
        }
        for _ in 0..25 {
            let quantity = match random.below(8) {
                0 => 0,
                1 => -number(&mut random, 1 << 40),
                2 => number(&mut random, 1 << 40),
                3 => max_burst + 1,
                _ => 1 + random.below(3) as i64,
            };
            let numbers = format!("key{round} {max_burst} {count} {period} {quantity}");
            let expected = throttle(&mut connection, &numbers);
            let answer = fake.ask(format!("{now} {numbers}"));
            assert_eq!(answer, expected.map(|integer| integer.to_string()).join(" "), "at {now}: {numbers}");
            limited += expected[0];
            refunds += i64::from(quantity < 0);
            now += match random.below(4) {
                0 => expected[3].clamp(0, 1 << 20) * SECOND,
                1 => number(&mut random, 1 << 31),
                _ => 0,
            };
            clock.set(now);
        }
    }
    println!("{limited} limited, {refunds} refunds");
    assert!(limited > 500 && refunds > 500);
    let expected = "[0, 2, 1, -1, 60]\n[0, 2, 0, -1, 120]\n[1, 2, 0, 60, 120]\n[0, 2, 0, -1, 120]\n";
    assert_eq!(output("fake.py", &server), expected);
}
