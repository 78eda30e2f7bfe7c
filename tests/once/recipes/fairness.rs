//! docs/recipes/fairness.py: tenants that share a pool.

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::random::Random;
use crate::support::recipes::{Row, START, prints};
use crate::support::run;

#[test]
#[ignore = "slow: Python"]
fn a_greedy_tenant_has_its_share_and_background_work_leaves_half_of_the_pool() {
    let (_clock, server) = Clock::start(START);
    let expected = "\
        greedy has 40 of 100, refused by ['tenant']\n\
        modest in the background: 10 of 100, refused by ['pool']\n\
        modest has 30 of 100, refused by ['tenant']\n\
        third has 20 of 100, refused by ['pool']\n";
    prints("fairness.py", &server, expected);
}

/// The tenants' limits sum up to the pool's limit, so that no tenant takes the tokens of another.
#[test]
fn a_tenant_within_its_limit_is_never_refused_where_the_pool_has_the_sum_of_all_limits() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut random = Random::new(2026);
    let (mut now, mut next, mut refused) = (START, START, 0);
    for _ in 0..2_000 {
        now += random.below(200) as i64 * MILLISECOND;
        clock.set(now);
        // The first tenant makes a call every two seconds; the others call all the time.
        let tenant = if now >= next { 0 } else { 1 + random.below(2) };
        let line = format!("CL.MTHROTTLE {{pool}}:tenant:{tenant} 4 1 2 1 {{pool}}:all 14 3 2 1");
        let (limited, _, whole): (i64, Row, Row) = run(&mut connection, &line).unwrap();
        assert_eq!(whole[0], 0, "the pool itself refuses at {now}");
        if tenant == 0 {
            assert_eq!(limited, 0, "at {now}");
            next = now + 2 * SECOND;
        } else {
            refused += limited;
        }
    }
    assert!(refused > 300, "{refused}");
}
