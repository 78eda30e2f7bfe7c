//! The README's first screen: its lines of Python.

use std::process::Command;

use crate::support::Server;
use crate::support::needs::needs;
use crate::support::programs::{output, python};

/// The same lines as in the README: docs.rs compares them.
#[test]
fn the_lines_of_python_admit_16_requests_and_answer_the_next_with_429_and_retry_after() {
    needs!("python3-redis");
    let server = Server::start();
    let mut requests = Command::new(python("readme.py", &server).get_program());
    requests.args(["-B", "-c"]).arg(format!(
        "import readme, redis\n\
         readme.client = redis.Redis(port={})\n\
         for request in range(17):\n    print(readme.admit('user123'))",
        server.port
    ));
    requests.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"));
    let answers = output(&mut requests);
    let answers: Vec<_> = answers.lines().collect();
    for (remaining, answer) in (0..16).rev().zip(&answers) {
        assert_eq!(*answer, format!("(200, {{'X-RateLimit-Remaining': {remaining}}})"));
    }
    assert_eq!(answers[16], "(429, {'Retry-After': 2})");
}
