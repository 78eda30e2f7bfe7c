//! What the examples in Python share, limits.py, and what is of one framework.

use super::ANSWERS;
use crate::support::examples::{Http, debian_python, django, of_test, pypi_python, python};
use crate::support::traffic::side_by_side;
use crate::support::{Server, run};

#[test]
#[ignore = "slow: other languages"]
fn limits_py_passes_its_tests() {
    let program = of_test("clients/limits_test.py");
    // A fixed seed of Python's hashes places the keys of a share as in each other run.
    if let Some(example) = debian_python(&program) {
        example.with("PYTHONHASHSEED", "0").with("TIMEOUT", "3600").output(Server::start().port);
    }
    if let Some(example) = pypi_python(&[&program]) {
        let some = example.with_arguments(&["Numbers", "Decisions", "RefusedCallers"]);
        some.with("TIMEOUT", "3600").output(Server::start().port);
    }
}

#[test]
#[ignore = "slow: other languages"]
fn a_route_may_have_two_limits_and_two_routes_one() {
    let program = of_test("clients/two_limits.py");
    for (framework, package) in [("flask", "python3-flask"), ("fastapi", "python3-fastapi")] {
        let arguments = [&*program, framework];
        side_by_side(python(package, framework, &arguments), |example| {
            let server = Server::start();
            let http = Http::start(&example.with("TIMEOUT", "3600"), server.port);
            // All headers are those of the limit with fewer remaining.
            let numbers = |target| {
                let (status, headers, _) = http.get(target, "");
                let number = |name: &str| -> Option<u32> {
                    let named = |header: &String| header.to_lowercase().strip_prefix(name)?.parse().ok();
                    headers.iter().find_map(named)
                };
                (
                    status,
                    ["x-ratelimit-limit: ", "x-ratelimit-remaining: "].map(number),
                    number("retry-after: ").is_some(),
                )
            };
            for remaining in [2, 1, 0] {
                assert_eq!(numbers("/stacked"), (200, [Some(3), Some(remaining)], false), "{example:?}");
            }
            assert_eq!(numbers("/stacked"), (429, [Some(3), Some(0)], true), "{example:?}");
            let statuses = ["/one", "/other/1", "/other/2", "/one"].map(|target| http.get(target, "").0);
            assert_eq!(statuses, [200, 200, 200, 429], "{example:?}");
            let mut keys = run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap();
            keys.retain(|key| !key.starts_with("burst:"));
            keys.sort_unstable();
            assert_eq!(keys, ["both:127.0.0.1", "day:127.0.0.1"]);
        });
    }
}

/// A log-in is charged to the account and to the address, and a right password gives back.
#[test]
#[ignore = "slow: other languages"]
fn the_throttles_for_django_charge_a_log_in_once_and_show_headers() {
    for example in django() {
        let server = Server::start();
        let http = Http::start(&example.with("TIMEOUT", "3600"), server.port);
        let log_in = |password: &str| {
            let form = format!("username=%20ALICE&password={password}");
            let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
            http.ask_once(&format!("POST /login HTTP/1.0\r\n{headers}Content-Length: {}\r\n\r\n{form}", form.len()))
        };
        assert_eq!([(); 5].map(|()| log_in("correct+horse")), [200; 5], "{example:?}");
        assert_eq!([(); 4].map(|()| log_in("guess")), [200, 200, 200, 429], "{example:?}");
        let mut connection = server.connect();
        for (look, remaining) in [("login:account:alice 2 1 86400", 0), ("login:address:127.0.0.1 19 60 3600", 17)] {
            assert_eq!(run::<Vec<i64>>(&mut connection, &format!("CL.LOOK {look}")).unwrap()[2], remaining, "{look}");
        }
        let shown = |status: u16, expected: &[&str]| {
            let (found, headers, _) = http.get("/", "");
            assert_eq!(found, status, "{example:?}");
            assert!(expected.iter().all(|name| headers.iter().any(|line| line.starts_with(name))), "{headers:?}");
        };
        for remaining in ["X-RateLimit-Remaining: 2", "X-RateLimit-Remaining: 1", "X-RateLimit-Remaining: 0"] {
            shown(200, &["X-RateLimit-Limit: 3", remaining, "X-RateLimit-Reset: "]);
        }
        shown(429, &["X-RateLimit-Limit: 3", "X-RateLimit-Remaining: 0", "Retry-After: 86"]);
    }
}

/// The output of each example's own program, and its log of an error that is a mistake in the settings.
#[test]
#[ignore = "slow: other languages"]
fn redis_py_decides_and_logs_a_mistake_as_an_error() {
    let files = ["redis_py.py", "redis_asyncio.py"];
    side_by_side(files.into_iter().flat_map(|file| python("python3-redis", "redis", &[file])), |example| {
        let example = example.with("TIMEOUT", "3600");
        assert_eq!(example.output(Server::start().port), ANSWERS, "{example:?}");
        for (cause, logged) in [
            ("RPUSH example:user123 x", "WRONGTYPE"),
            ("ACL SETUSER default -cl.throttle", "permission"),
            ("CONFIG SET requirepass secret", "uthentication required"),
        ] {
            let server = Server::start();
            run::<()>(&mut server.connect(), cause).unwrap();
            let (printed, errors) = example.with("FAIL", "closed").output_and_errors(server.port);
            assert_eq!(printed, "503 Retry-After: 1\n".repeat(5), "{example:?}: {cause}");
            assert!(errors.contains(logged) && errors.lines().count() == 1, "{example:?}: {cause}: {errors}");
        }
    });
}
