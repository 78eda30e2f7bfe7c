//! docs/recipes/calendar_quota.lua: a quota until a day, week or month ends.

use redis::{Connection, RedisResult};

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::random::Random;
use crate::support::recipes::{Row, START, ask, load_function, read, user};
use crate::support::{Server, error_text, run, snapshot};

/// Starts a server with the functions.
fn start() -> (Clock, Server, Connection) {
    let (clock, server, mut connection) = Clock::start(START);
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    (clock, server, connection)
}

/// Calls calendar_throttle, calendar_charge or calendar_look.
fn calendar(connection: &mut Connection, line: &str) -> RedisResult<Vec<i64>> {
    let call = if line.starts_with("look") { "FCALL_RO" } else { "FCALL" };
    ask(connection, &format!("{call} calendar_{line}"))
}

/// The calls are on two counters, whose periods end at any moment, and a limiter, whose twin is called directly.
#[test]
#[ignore = "slow: thousands of calls"]
fn calendar_quotas_and_a_limiter_are_taken_all_or_none_or_charged_until_their_periods_end() {
    needs!(FUNCTIONS);
    let (clock, server, mut connection) = start();
    let mut app = user(&server, "docs/recipes.md", "## Calendar quotas");
    let mut random = Random::new(2026);
    let (quotas, periods) = ([7, 20], [60, 300]);
    let (mut now, mut used, mut ends) = (START, [0; 2], [0; 2]);
    let mut seen = [0; 3];
    for number in 0..800 {
        // The clock sometimes stands on a whole second, at which periods end.
        now += random.below(4_000) as i64 * MILLISECOND;
        now += if random.one_in(10) { SECOND - now % SECOND } else { 0 };
        clock.set(now);
        for place in 0..2 {
            let end = (now / SECOND / periods[place] + 1) * periods[place];
            if std::mem::replace(&mut ends[place], end) != end {
                used[place] = 0;
            }
        }
        let quantity = match random.below(10) {
            0 => 0,
            1 | 2 => -(random.below(4) as i64),
            3 => random.below(25) as i64,
            _ => 1 + random.below(2) as i64,
        };
        let look: Row = run(&mut connection, &format!("CL.LOOK {{a}}:twin 2 1 2 {}", quantity.max(0))).unwrap();
        let refused = [0, 1].map(|place| quantity >= 0 && used[place] + quantity > quotas[place]);
        let limited = refused[0] || refused[1] || (quantity >= 0 && look[0] == 1);
        let name = match random.below(12) {
            0 => "charge",
            1..4 if quantity >= 0 => "look",
            _ => "throttle",
        };
        let takes = name == "charge" || name == "throttle" && !limited;
        let mut expected = vec![limited.into()];
        for place in 0..2 {
            if takes {
                used[place] = (used[place] + quantity).max(0);
            }
            let (quota, rest) = (quotas[place], (ends[place] * SECOND - now + SECOND - 1) / SECOND);
            let retry_after = if refused[place] && (quantity <= quota || name == "charge") { rest } else { -1 };
            let reset_after = if used[place] > 0 { rest } else { 0 };
            expected.extend([refused[place].into(), quota, (quota - used[place]).max(0), retry_after, reset_after]);
        }
        let twin = format!("CL.{name} {{a}}:twin 2 1 2 {quantity}");
        expected.extend(if takes { run(&mut connection, &twin).unwrap() } else { look });
        let [day, month] = ends;
        let line = format!("{name} 3 {{a}}:day {{a}}:month {{a}}:rate {quantity} 7 {day} 20 {month} 2 1 2");
        let place = format!("call {number} at {now}: {line}");
        assert_eq!(calendar(&mut app, &line).unwrap(), expected, "{place}");
        let twins: Vec<Option<String>> = run(&mut connection, "MGET {a}:rate {a}:twin").unwrap();
        assert_eq!(twins[0], twins[1], "{place}");
        let by_one = [refused == [true, false], refused == [false, true], limited && refused == [false; 2]];
        for (seen, now) in seen.iter_mut().zip(by_one) {
            *seen += u32::from(now);
        }
    }
    assert!(seen.iter().all(|&seen| seen > 12), "limited by the day, the month, the limiter alone: {seen:?}");
    clock.set(now + 300 * SECOND);
    assert_eq!(run::<u8>(&mut connection, "EXISTS {a}:day {a}:month").unwrap(), 0);
}

#[test]
fn a_calendar_quota_that_gets_an_error_takes_nothing() {
    needs!(FUNCTIONS);
    let (_clock, server, mut connection) = start();
    let (now, end) = (START / SECOND, START / SECOND + 3_600);
    run::<()>(&mut connection, "SET text x").unwrap();
    let call = format!("2 day rate 2 10 {end} 4 1 60");
    let taken = calendar(&mut connection, &format!("throttle {call}")).unwrap();
    let before = snapshot(&mut connection);
    for (line, expected) in [
        ("throttle 0 1".to_string(), "wrong number of arguments"),
        (format!("throttle 2 day rate 1 10 {end}"), "wrong number of arguments"),
        (format!("throttle 1 day 1.5 10 {end}"), "quantity must be a whole number from "),
        (format!("throttle 2 day rate -0 10 {end} 4 1 60"), "quantity must be a whole number from "),
        (format!("look 1 day -1 10 {end}"), "quantity must be a whole number from 0 "),
        // The second would be written over.
        (format!("throttle 3 day other day 1 10 {end} 10 {end} 4 1 60"), "key 3 is the same as key 1"),
        (
            format!("throttle 2 day other 1 10 {end} -1 {end}"),
            "quota must be a whole number from 0 to 999999999999999 (key 2)",
        ),
        // The caller gave milliseconds for seconds: the period would never end.
        (format!("throttle 1 day 1 10 {end}000"), "end must be a whole number from 0 "),
        // A period that has ended would count nothing and limit nothing.
        (format!("throttle 2 day other 1 10 {end} 10 {now}"), "the period has ended (key 2)"),
        (format!("throttle 1 text 1 10 {end}"), "the key holds no counter (key 1)"),
        (format!("charge 2 day rate 99999999999 10 {end} 4 1 60"), "quantity: the tokens would be back only after"),
        (format!("charge 1 day 999999999999999 10 {end}"), "the counter would have more than 15 digits (key 1)"),
    ] {
        let error = error_text(&calendar(&mut connection, &line).expect_err(&line));
        assert!(error.starts_with(&format!("ERR {expected}")), "{line}: {error}");
        assert_eq!(snapshot(&mut connection), before, "{line}");
    }
    // Without these rights, the limiter would take and the counter would not.
    let mut app = user(&server, "docs/recipes.md", "## Calendar quotas");
    for right in ["set", "del"] {
        run::<()>(&mut connection, &format!("ACL SETUSER app -{right}")).unwrap();
        calendar(&mut app, &format!("throttle {call}")).expect_err(right);
        assert_eq!(snapshot(&mut connection), before, "without the right to {right}");
        run::<()>(&mut connection, &format!("ACL SETUSER app +{right}")).unwrap();
    }
    // A replica answers a look.
    run::<()>(&mut connection, "REPLICAOF 127.0.0.1 1").unwrap();
    assert_eq!(calendar(&mut connection, &format!("look {call}")).unwrap(), taken);
}

/// The day ends sooner in a zone to the east: without this rule, a user who moves there and back would get a new day.
#[test]
fn a_calendar_period_ends_no_sooner_than_was_said_once() {
    needs!(FUNCTIONS);
    let (clock, _server, mut connection) = start();
    let now = START / SECOND;
    let mut call = |quantity: i64, quota: i64, end: i64| {
        let line = format!("throttle 1 {{a}}:2026-11-22 {quantity} {quota} {}", now + end);
        calendar(&mut connection, &line).unwrap()[1..].to_vec()
    };
    assert_eq!(call(10, 10, 3_600), [0, 10, 0, -1, 3_600]);
    assert_eq!(call(1, 10, 60), [1, 10, 0, 3_600, 3_600]);
    clock.set(START + 61 * SECOND);
    assert_eq!(call(1, 10, 60), [1, 10, 0, 3_539, 3_539]);
    assert_eq!(call(-4, 10, 60), [0, 10, 4, -1, 3_539]);
    // A smaller quota applies at once, and a quantity above the quota is never allowed.
    assert_eq!(call(0, 5, 3_600), [1, 5, 0, 3_539, 3_539]);
    assert_eq!(call(999_999_999_999_999, 5, 3_600), [1, 5, 0, -1, 3_539]);
    // A refund that comes after the end changes nothing.
    clock.set(START + 3_601 * SECOND);
    assert_eq!(call(-4, 10, 3_600), [0, 10, 10, -1, 0]);
    // Redis 7.2 writes a number with this many zeros as 1.8e+9.
    assert_eq!(call(1_000_000_000, 1_000_000_000, 1_800_000_000 - now)[..3], [0, 1_000_000_000, 0]);
}
