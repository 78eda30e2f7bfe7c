//! docs/recipes/calendar_quota.lua: a quota until a day, week or month ends.

use redis::{Connection, RedisResult, Value};

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::needs::needs;
use crate::support::random::Random;
use crate::support::recipes::{Row, START, load_function, permissions, read};
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, error_text, now, run, snapshot, throttle, wait_until};

/// Calls calendar_throttle or calendar_look.
fn calendar(connection: &mut Connection, line: &str) -> RedisResult<(i64, Vec<Row>)> {
    let call = if line.starts_with("look") { "FCALL_RO" } else { "FCALL" };
    let mut reply: Vec<Value> = run(connection, &format!("{call} calendar_{line}"))?;
    let limited = redis::from_redis_value(reply.remove(0))?;
    Ok((limited, reply.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?))
}

/// The test's model of a counter.
struct Counter {
    key: &'static str,
    quota: i64,
    used: i64,
    /// The length of a period, in seconds.
    period: i64,
}

impl Counter {
    fn row(&self, limited: bool, quantity: i64, rest: i64) -> Row {
        let retry_after = if limited && quantity <= self.quota { rest } else { -1 };
        [limited.into(), self.quota, self.quota - self.used, retry_after, if self.used > 0 { rest } else { 0 }]
    }
}

/// The calls are on two counters, whose periods end at any moment, and a limiter. The test compares each reply with its
/// model's.
#[test]
#[ignore = "slow: thousands of calls"]
fn calendar_quotas_and_a_limiter_are_taken_all_or_none_until_their_periods_end() {
    needs!("functions, Redis 7");
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let mut random = Random::new(2026);
    let mut counters = [("{a}:day", 7, 60), ("{a}:month", 20, 300)];
    let mut counters = counters.each_mut().map(|&mut (key, quota, period)| Counter { key, quota, used: 0, period });
    let (mut now, mut period_of) = (START, [0; 2]);
    let (mut allowed, mut limited_by, mut refunds) = (0, [0; 3], 0);
    for number in 0..800 {
        // The clock sometimes stands on a whole second, at which periods end.
        now += random.below(4_000) as i64 * MILLISECOND;
        now += if random.one_in(10) { SECOND - now % SECOND } else { 0 };
        clock.set(now);
        let mut ends = [0; 2];
        for (place, counter) in counters.iter_mut().enumerate() {
            let period = now / SECOND / counter.period;
            if std::mem::replace(&mut period_of[place], period) != period {
                counter.used = 0;
            }
            ends[place] = (period + 1) * counter.period;
        }
        let rest = ends.map(|end| (end * SECOND - now + SECOND - 1) / SECOND);
        let quantity = match random.below(10) {
            0 => 0,
            1 | 2 => -(random.below(4) as i64),
            3 => random.below(25) as i64,
            _ => 1 + random.below(2) as i64,
        };
        let limiter = |quantity| format!("{{a}}:twin 2 1 2 {quantity}");
        let look = run::<Row>(&mut connection, &format!("CL.LOOK {}", limiter(quantity.max(0)))).unwrap();
        let refuse = counters.each_ref().map(|counter| quantity >= 0 && counter.used + quantity > counter.quota);
        let limited = refuse[0] || refuse[1] || (quantity >= 0 && look[0] == 1);
        let looks = quantity >= 0 && random.one_in(4);
        let mut expected = Vec::new();
        for (place, counter) in counters.iter_mut().enumerate() {
            if !limited && !looks {
                counter.used = (counter.used + quantity).max(0);
            }
            expected.push(counter.row(refuse[place], quantity, rest[place]));
            limited_by[place] += i64::from(refuse[place] && !refuse[1 - place] && look[0] == 0);
        }
        expected.push(if limited || looks { look } else { throttle(&mut connection, &limiter(quantity)) });
        limited_by[2] += i64::from(limited && refuse == [false; 2]);
        allowed += i64::from(!limited && quantity > 0);
        refunds += i64::from(quantity < 0);
        let line = format!(
            "{} 3 {{a}}:day {{a}}:month {{a}}:rate {quantity} 7 {} 20 {} 2 1 2",
            if looks { "look" } else { "throttle" },
            ends[0],
            ends[1]
        );
        let place = format!("call {number} at {now}: {line}");
        assert_eq!(calendar(&mut connection, &line).unwrap(), (limited.into(), expected), "{place}");
        for (counter, end) in counters.iter().zip(ends) {
            let (text, expires): (Option<i64>, i64) =
                redis::pipe().get(counter.key).cmd("EXPIRETIME").arg(counter.key).query(&mut connection).unwrap();
            // A key is still there in the millisecond of its expiry.
            let found = if expires * SECOND > now { (text, expires) } else { (None, -2) };
            let expected = if counter.used > 0 { (Some(counter.used), end) } else { (None, -2) };
            assert_eq!(found, expected, "{place}");
        }
        let twins: Vec<Option<String>> = run(&mut connection, "MGET {a}:rate {a}:twin").unwrap();
        assert_eq!(twins[0], twins[1], "{place}");
    }
    println!("{allowed} allowed, limited by one alone: {limited_by:?}, {refunds} refunds");
    assert!(allowed > 80 && refunds > 80 && limited_by.iter().all(|&limited| limited > 12));
}

#[test]
fn a_calendar_quota_that_gets_an_error_takes_nothing() {
    needs!("functions, Redis 7");
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let (now, end) = (START / SECOND, START / SECOND + 3_600);
    run::<()>(&mut connection, "MSET text x number 5 tat 1790000000123456789").unwrap();
    run::<()>(&mut connection, "RPUSH list x").unwrap();
    calendar(&mut connection, &format!("throttle 2 day rate 3 10 {end} 4 1 60")).unwrap();
    let before = snapshot(&mut connection);
    for (line, expected) in [
        (format!("throttle 2 day rate 1 10 {end}"), "ERR wrong number of arguments"),
        // The period of the second counter has ended long ago.
        (format!("throttle 2 day other 1 10 {end} 4 1"), "ERR the period has ended"),
        ("throttle 0".to_string(), "ERR wrong number of arguments"),
        (format!("throttle 1 day 1.5 10 {end}"), "ERR quantity must be a whole number from "),
        (format!("look 1 day -1 10 {end}"), "ERR quantity must be a whole number from 0 "),
        (format!("throttle 1 day 1 -1 {end}"), "ERR quota must be a whole number from 0 "),
        // The caller gave milliseconds for seconds: the period would never end.
        (format!("throttle 1 day 1 10 {end}000"), "ERR end must be a whole number from 0 "),
        // A period that has ended would count nothing and limit nothing.
        (format!("throttle 1 other 1 10 {now}"), "ERR the period has ended"),
        (format!("throttle 1 text 1 10 {end}"), "ERR the key holds no counter"),
        (format!("throttle 1 number 1 10 {end}"), "ERR the key holds no counter"),
        (format!("throttle 1 tat -1 10 {end}"), "ERR the key holds no counter"),
        (format!("throttle 1 list 1 10 {end}"), "WRONGTYPE "),
        (format!("throttle 2 day rate 1 10 {end} 4 0 60"), "ERR count must be 1 or more"),
        (format!("throttle 2 day text 1 10 {end} 4 1 60"), "ERR the key holds no rate limiter state"),
    ] {
        let error = error_text(&calendar(&mut connection, &line).expect_err(&line));
        assert!(error.starts_with(expected), "{line}: {error}");
        assert_eq!(snapshot(&mut connection), before, "{line}");
    }
}

#[test]
fn a_calendar_quota_needs_the_permissions_that_the_page_names() {
    needs!("functions, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let commands = permissions("recipes.md", "## Calendar quotas");
    run::<()>(&mut connection, &format!("ACL SETUSER app on nopass ~{{a}}:* {}", commands.join(" "))).unwrap();
    let mut app = server.connect();
    run::<()>(&mut app, "AUTH app x").unwrap();
    let end = now() / SECOND + 3_600;
    for (function, quantity) in [("throttle", 2), ("throttle", 9), ("throttle", -2), ("look", 1)] {
        let call = format!("{function} 2 {{a}}:day {{a}}:rate {quantity} 5 {end} 4 1 60");
        assert_eq!(calendar(&mut app, &call).unwrap().0, i64::from(quantity == 9), "{call}");
    }
    for command in &commands {
        run::<()>(&mut connection, &format!("ACL SETUSER app -{}", &command[1..])).unwrap();
        let calls = ["throttle", "look"].map(|function| {
            [6, 2, -2].map(|quantity| {
                let call = format!("{function} 2 {{a}}:day {{a}}:rate {quantity} 5 {end} 4 1 60");
                calendar(&mut app, &call).is_err() && !(function == "look" && quantity < 0)
            })
        });
        assert!(calls.concat().contains(&true), "{command} is not needed");
        run::<()>(&mut connection, &format!("ACL SETUSER app {command}")).unwrap();
    }
}

/// The day ends sooner in a zone to the east: without this rule, a user who moves there and back would get a new day.
#[test]
fn a_calendar_period_ends_no_sooner_than_was_said_once_and_refunds_go_to_the_period_that_was_charged() {
    needs!("functions, Redis 7");
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load_function(&mut connection, &read("calendar_quota.lua")).unwrap();
    let now = START / SECOND;
    let call = |connection: &mut Connection, quantity: i64, end: i64| {
        calendar(connection, &format!("throttle 1 {{a}}:2026-11-22 {quantity} 10 {}", now + end)).unwrap()
    };
    assert_eq!(call(&mut connection, 10, 3_600), (0, vec![[0, 10, 0, -1, 3_600]]));
    assert_eq!(call(&mut connection, 1, 60), (1, vec![[1, 10, 0, 3_600, 3_600]]));
    clock.set(START + 61 * SECOND);
    assert_eq!(call(&mut connection, 1, 60), (1, vec![[1, 10, 0, 3_539, 3_539]]));
    assert_eq!(call(&mut connection, -4, 60), (0, vec![[0, 10, 4, -1, 3_539]]));
    // A smaller quota applies at once, and a quantity above the quota is never allowed.
    let smaller = |connection: &mut Connection, quantity: i64| {
        calendar(connection, &format!("throttle 1 {{a}}:2026-11-22 {quantity} 5 {}", now + 3_600)).unwrap()
    };
    assert_eq!(smaller(&mut connection, 0), (1, vec![[1, 5, 0, 3_539, 3_539]]));
    assert_eq!(smaller(&mut connection, 6), (1, vec![[1, 5, 0, -1, 3_539]]));
    // Redis 7.2 writes a number with this many zeros as 1.8e+9.
    let far = "throttle 2 {a}:2027-01-15 {a}:rate 1000000000 1000000000 1800000000 999999999999 1000000000 1";
    assert_eq!(calendar(&mut connection, far).unwrap().0, 0);
    // A refund that comes after the end changes nothing.
    clock.set(START + 3_601 * SECOND);
    assert_eq!(call(&mut connection, -4, 3_600), (0, vec![[0, 10, 10, -1, 0]]));
    assert!(!run::<bool>(&mut connection, "EXISTS {a}:2026-11-22").unwrap());
}

#[test]
#[ignore = "slow: thousands of calls"]
fn a_replica_has_the_calendar_quotas_and_a_cluster_wants_one_hash_tag() {
    needs!("functions, Redis 7");
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    add_slots(&mut node.connect(), 0..SLOTS);
    wait_until("the cluster is up", || is_ok(&node));
    let server = Server::start();
    let replica = Server::start();
    let mut connection = server.connect();
    replicate(&replica, &server);
    let end = now() / SECOND + 3_600;
    let line = format!("3 {{a}}:day {{a}}:month {{a}}:rate 2 10 {end} 100 {end} 4 1 3600");
    for connection in [&mut connection, &mut node.connect()] {
        load_function(connection, &read("calendar_quota.lua")).unwrap();
        let (limited, rows) = calendar(connection, &format!("throttle {line}")).unwrap();
        assert_eq!((limited, rows.iter().map(|row| row[2]).collect()), (0, vec![8, 98, 3]));
    }
    let error = calendar(&mut node.connect(), &format!("throttle {}", line.replace("{a}:month", "month"))).unwrap_err();
    assert_eq!(error.code(), Some("CROSSSLOT"), "{error}");

    catch_up(&replica, &server);
    let mut replica = replica.connect();
    assert_eq!(snapshot(&mut replica), snapshot(&mut connection));
    let (limited, rows) = calendar(&mut replica, &format!("look {line}")).unwrap();
    assert_eq!((limited, rows.iter().map(|row| row[2]).collect()), (0, vec![8, 98, 3]));
    let error = calendar(&mut replica, &format!("throttle {line}")).unwrap_err();
    assert!(error.to_string().contains("READONLY") || error.code() == Some("READONLY"), "{error}");
}
