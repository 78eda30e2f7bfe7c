//! docs/recipes/calendar_quota.py: days, weeks and months in any zone.

use crate::support::Server;
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::programs::{output, python};
use crate::support::recipes::{load_function, read};

#[test]
#[ignore = "slow: Python"]
fn the_program_of_calendar_quotas_prints_days_of_23_and_25_hours_and_what_remains() {
    needs!(FUNCTIONS);
    let server = Server::start();
    load_function(&mut server.connect(), &read("calendar_quota.lua")).unwrap();
    let expected = "\
        2026-03-29 has 23 hours\n\
        2026-10-25 has 25 hours\n\
        2026-11-22 has 24 hours\n\
        8 allowed [92, 992, 2]\n\
        8 limited [92, 992, 2]\n\
        -8 allowed [100, 1000, 10]\n\
        1001 limited [100, 1000, 10]\n";
    assert_eq!(output(&mut python("recipes/calendar_quota.py", &server)), expected);
}

/// A day, week or month must end at the first moment for which `periods` gives another name. The program checks two
/// years, in zones where midnight comes twice (Havana) or is skipped (Santiago, Beirut), and where a whole day was
/// skipped (Apia).
#[test]
#[ignore = "slow: every hour of years"]
fn days_weeks_and_months_end_when_the_zone_says_so() {
    let server = Server::start();
    let checked = output(&mut python("../tests/once/recipes/calendar_zones.py", &server));
    assert!(checked.trim().parse::<u32>().unwrap() > 50_000, "{checked}");
}
