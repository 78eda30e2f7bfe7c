//! The examples in docs/clients do what a user who copies them expects. They run with the client libraries of Debian
//! and with the newest of PyPI and npm, which requirements.txt and package.json here name. Most examples in Python run
//! with Debian's libraries under `scripts/test --everywhere` alone.

mod http;
mod limits;
mod outages;
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
    let read = |file| fs::read_to_string(of_test(file)).unwrap();
    let [page, pypi, npm, lock] =
        ["../../../docs/clients.md", "requirements.txt", "package.json", "../../../Cargo.lock"].map(read);
    let answers: Vec<_> = ANSWERS.lines().map(|line| format!("    {line}\n")).collect();
    assert!(page.contains(&answers.concat()));
    let table: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
    // Lines such as fastapi==0.165.0 and "express": "5.3.0". The page need not name uvicorn, which only serves FastAPI.
    let lines = pypi.lines().filter_map(|line| line.split_once("==")).filter(|(name, _)| *name != "uvicorn");
    let mut versions: Vec<_> = lines.collect();
    versions.extend(npm.lines().filter_map(|line| line.trim().split_once(": ")).skip(3));
    let (_, rest) = lock.split_once("name = \"redis\"\nversion = ").unwrap();
    versions.push(("redis-rs", rest.lines().next().unwrap()));
    assert_eq!(versions.len(), 11, "{versions:?}");
    for (name, version) in versions {
        let version = version.trim_matches(['"', ',']);
        let is_named = table.iter().any(|line| line.split([' ', ',']).any(|word| word == version));
        assert!(is_named, "write {name} {version}, the version that runs here, into the table of docs/clients.md");
    }
}
