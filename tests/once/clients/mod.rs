//! The examples in docs/clients do what a user who copies them expects. They run with the client libraries of Debian
//! and with the newest of PyPI and npm, which requirements.txt and package.json here name. Most examples in Python run
//! with Debian's libraries under `scripts/test --everywhere` alone.
//!
//! A test whose language or library is missing is left out, and says so. scripts/test installs the small ones and sets
//! `REQUIRE_ALL`, with which a missing one fails the test.

mod addresses;
mod http;
mod limits;
mod outages;
mod python;
mod servers;
mod smallest;

use std::fs;

use crate::support::examples::of_test;

/// The output of the examples: three at once and one a minute, and a last call that asks for four.
const ANSWERS: &str = "\
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 2, X-RateLimit-Reset: 60
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 1, X-RateLimit-Reset: 120
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180, Retry-After: 60
413 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
";

/// The page shows the answers and the version of each library that runs here.
#[test]
fn the_page_names_what_is_run() {
    let page = fs::read_to_string([env!("CARGO_MANIFEST_DIR"), "docs/clients.md"].join("/")).unwrap();
    let answers: Vec<_> = ANSWERS.lines().map(|line| format!("    {line}\n")).collect();
    assert!(page.contains(&answers.concat()));
    let cells: Vec<_> = page.lines().filter_map(|line| line.strip_prefix('|')?.split(" | ").last()).collect();
    let names = |version: &str| cells.iter().any(|cell| cell.split([' ', ',', '|']).any(|word| word == version));
    let lists =
        ["clients/requirements.txt", "clients/package.json"].map(of_test).map(|list| fs::read_to_string(list).unwrap());
    // Lines such as fastapi==0.165.0 and "express": "5.3.0". The page need not name uvicorn, which only serves FastAPI.
    let mut fetched: Vec<_> = lists[0].lines().filter_map(|line| line.split_once("==")).collect();
    fetched.extend(lists[1].lines().filter_map(|line| line.trim().trim_matches(',').split_once(": ")).skip(3));
    for (name, version) in fetched.iter().filter(|(name, _)| *name != "uvicorn") {
        assert!(
            names(version.trim_matches('"')),
            "write {name} {version}, the version that runs here, into the table of docs/clients.md"
        );
    }
    assert!(fetched.len() == 11, "{fetched:?}");
    let lock = fs::read_to_string([env!("CARGO_MANIFEST_DIR"), "Cargo.lock"].join("/")).unwrap();
    let (_, rest) = lock.split_once("name = \"redis\"\nversion = \"").unwrap();
    let version = rest.split('"').next().unwrap();
    assert!(names(version), "write redis-rs {version}, the version of Cargo.lock, into the table of docs/clients.md");
}
