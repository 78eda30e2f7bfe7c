//! The whole examples, each through every failure of Redis. Redis passes at most a caller's limit, the share of the
//! process at most as many again, and a call that fails closed passes never without Redis.
//!
//! An example here limits each caller to three calls at once and one a day, so that no token comes back meanwhile. Its
//! callers are addresses, and each count is that of a caller of its own.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;

use redis::Connection;
use tempfile::NamedTempFile;

use crate::support::endpoint::{Endpoint, Fate, relay, unanswered};
use crate::support::examples::{Example, Http, TIMEOUT, examples};
use crate::support::programs::signal;
use crate::support::recipes::Dialogue;
use crate::support::traffic::side_by_side;
use crate::support::{Process, Server, command, fail_to_save, run, wait_for, wait_until};

/// The tokens of a caller's limit, and of a process's share of it.
const LIMIT: usize = 3;
/// The calls at once in an outage.
const CALLS: usize = 60;

/// The failures: how each begins and ends, how many calls of a caller Redis passes at most, and whether it decides
/// none meanwhile. A server that was killed has forgotten what it allowed before, and a second server may not know it.
/// Servers 0 and 1 decide, 2 has no module, and 3 is a node of a cluster without slots.
const FAILURES: [(&str, &str, usize, bool); 12] = [
    ("kill", "restart", 2 * LIMIT, true),
    ("STOP", "CONT", LIMIT, true),
    ("ACL SETUSER default -cl.throttle -cl.mthrottle", "ACL SETUSER default +cl.throttle +cl.mthrottle", LIMIT, true),
    ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", LIMIT, true),
    ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", LIMIT, true),
    ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", LIMIT, true),
    ("CONFIG SET requirepass secret", "ACL SETUSER default nopass", LIMIT, true),
    ("fail to save", "save no more", LIMIT, true),
    ("lead to 2", "lead to 0", LIMIT, true),
    ("lead to 3", "lead to 0", LIMIT, true),
    ("silence", "", LIMIT, false),
    ("fail over", "", 2 * LIMIT, false),
];

fn whole() -> Vec<(&'static str, Example)> {
    let names = ["calls", "flask", "fastapi", "django", "express", "nginx"];
    names.into_iter().flat_map(|name| examples(name).into_iter().map(move |example| (name, example))).collect()
}

#[test]
#[ignore = "slow: attacks"]
fn each_example_passes_its_limit_of_200_and_of_1000_calls_at_once() {
    for (name, example) in whole() {
        let server = Server::start();
        // An hour is longer than any machine takes: Redis decides each call.
        let started = Started::new(name, &example.with("TIMEOUT", "3600"), server.port);
        for (calls, fail) in [(200, "share"), (200, "closed"), (1000, "share")] {
            assert_eq!(started.passed(calls, &started.caller(), fail), LIMIT, "{example:?}: {calls}, {fail}");
        }
    }
}

#[test]
#[ignore = "slow: attacks"]
fn no_failure_passes_more_than_the_limit_and_the_share() {
    side_by_side(whole(), |(name, example)| {
        let mut redis = Redis::start();
        let started = Started::new(name, &example, redis.endpoint.port);
        started.finds(redis.leader(), "at first");
        for (begin, end, limit, decides_none) in FAILURES {
            let what = format!("{example:?}: {begin}");
            let caller = started.caller();
            let mut settings = redis.leader().connect();
            let before = started.passed(CALLS, &caller, "share");
            redis.change(begin, &mut settings);
            let meanwhile = started.passed(CALLS, &caller, "share");
            let other = decides_none.then(|| started.is_without_redis(&what));
            redis.change(end, &mut settings);
            if let Some(other) = other {
                let more = started.passed(CALLS, &other, "share");
                assert!(more <= LIMIT, "{what}: {more} more");
            }
            started.finds(redis.leader(), &what);
            let all = before + meanwhile + started.passed(CALLS, &caller, "share");
            assert!((LIMIT..=limit + LIMIT).contains(&all), "{what}: {all}");
            assert_eq!(started.passed(CALLS, &caller, "share"), 0, "{what}");
        }
    });
}

/// One address that leads to one of several servers, as a Service of Kubernetes does.
struct Redis {
    servers: [Server; 4],
    endpoint: Endpoint,
    leader: usize,
}

impl Redis {
    fn start() -> Self {
        let cluster = Server::start_with(&["--cluster-enabled", "yes"]);
        let servers = [Server::start(), Server::start(), Server::start_bare(&[]), cluster];
        Self { endpoint: Endpoint::to(servers[0].port), servers, leader: 0 }
    }

    fn leader(&self) -> &Server {
        &self.servers[self.leader]
    }

    fn lead_to(&mut self, server: usize) {
        self.leader = server;
        self.endpoint.lead_to(self.leader().port);
    }

    /// Begins or ends a failure. `settings` is a connection from before the failure.
    fn change(&mut self, what: &str, settings: &mut Connection) {
        match what {
            "kill" => self.servers[0].kill(),
            "restart" => self.servers[0].restart(),
            "STOP" | "CONT" => signal(self.servers[0].pid(), what),
            "silence" => self.endpoint.silence(),
            "lead to 0" | "lead to 2" | "lead to 3" => {
                let mut old = self.leader().connect();
                self.lead_to(what["lead to ".len()..].parse().unwrap());
                run(&mut old, "CLIENT KILL TYPE normal").unwrap()
            }
            "fail over" => {
                self.lead_to(1);
                run(settings, &format!("REPLICAOF 127.0.0.1 {}", self.leader().port)).unwrap()
            }
            "fail to save" => fail_to_save(&self.servers[0]),
            "save no more" => command("CONFIG SET save").arg("").query(settings).unwrap(),
            "" => {}
            _ => {
                run::<()>(settings, what).unwrap();
                // A connection that is there keeps its login.
                run(settings, "CLIENT KILL TYPE normal").unwrap()
            }
        }
    }
}

/// Each of two processes passes its part: of three calls one.
#[test]
#[ignore = "slow: attacks"]
fn two_processes_together_pass_at_most_the_limit_without_redis() {
    side_by_side(whole(), |(name, example)| {
        let server = Server::start();
        let example = example.with("PROCESSES", "2");
        let both = [(); 2].map(|()| Started::new(name, &example, server.port));
        let passed = |caller| both.each_ref().map(|started| started.passed(CALLS, caller, "share"));
        let [first, second] = passed("192.0.2.1");
        assert!((LIMIT..=LIMIT + 2).contains(&(first + second)), "{example:?}: {first}, {second}");
        drop(server);
        assert_eq!(passed("192.0.2.2"), [1, 1], "{example:?}");
    });
}

/// Answers come later than TIMEOUT. A caller whose limit is used up calls while the answer to another is on its way.
#[test]
#[ignore = "slow: attacks"]
fn a_late_answer_is_not_taken_for_another_callers() {
    side_by_side(whole(), |(name, example)| {
        let server = Server::start();
        let (port, late) = (server.port, Arc::new(AtomicBool::new(false)));
        let are_late = late.clone();
        let filters = move || {
            let are_late = are_late.clone();
            move |to_the_server: bool, _: &[u8]| {
                if !to_the_server && are_late.load(Ordering::Relaxed) {
                    sleep(TIMEOUT * 3 / 2);
                }
                Fate::PassedOn
            }
        };
        let started = Started::new(name, &example, relay(move || port, filters));
        let [limited, other] = [(); 2].map(|()| started.caller());
        wait_until("a limited caller", || (started.calls)(1, &limited, "closed") == [429]);
        late.store(true, Ordering::Relaxed);
        started.passed(1, &other, "closed");
        assert_eq!(started.passed(1, &limited, "closed"), 0, "{example:?}");
    });
}

/// A call waits for a free connection, for a new one, and for the reply, each for TIMEOUT at most: with a TIMEOUT of an
/// hour it has no answer when one of 10 ms has. At one port nobody accepts a connection, at the other nobody replies.
/// A pool of 20 connections gets 40 calls at once.
#[test]
#[ignore = "slow: attacks"]
fn a_call_waits_no_longer_than_three_times_timeout_and_is_not_repeated() {
    side_by_side(
        examples("calls").into_iter().filter(|example| !format!("{example:?}").contains("node ")),
        |example| {
            let (unaccepted, _queue) = unanswered();
            let (for_an_hour, heard_for_an_hour) = silent();
            let (for_a_while, heard) = silent();
            // 02 is a connection that is not accepted yet.
            let connects = format!(":{unaccepted:04X} 02");
            let connects = || fs::read_to_string("/proc/net/tcp").unwrap().contains(&connects);
            for (hour, short, waits) in [
                (unaccepted, unaccepted, &connects as &dyn Fn() -> bool),
                (for_an_hour, for_a_while, &|| !heard_for_an_hour.lock().unwrap().is_empty()),
            ] {
                let ask = |timeout, port| {
                    let answers = NamedTempFile::new().unwrap();
                    let mut command = example.with("TIMEOUT", timeout).command(port);
                    command.stdin(Stdio::piped()).stdout(answers.reopen().unwrap()).stderr(Stdio::null());
                    let mut process = Process(command.spawn().unwrap());
                    process.0.stdin.as_mut().unwrap().write_all(b"40 192.0.2.1 share\n").unwrap();
                    (process, move || fs::read_to_string(&answers).unwrap())
                };
                let (_process, hour) = ask("3600", hour);
                wait_until("the calls of an hour", waits);
                let (_process, short) = ask("0.01", short);
                let statuses = wait_for("the answers", || Some(short()).filter(|line| line.ends_with('\n')));
                assert_eq!((statuses.matches("200").count(), statuses.matches("429").count()), (LIMIT, 40 - LIMIT));
                assert_eq!(hour(), "", "{example:?}: it has not waited");
            }
            for (heard, most) in [(heard_for_an_hour, 20), (heard, 40)] {
                let heard = heard.lock().unwrap();
                assert!(heard.len() <= most && heard.iter().all(|text| text.contains("CL.THROTTLE")), "{heard:?}");
            }
        },
    );
}

type Heard = Arc<Mutex<Vec<String>>>;

/// Returns the port of a server that answers nothing, and what it hears: as many texts as calls.
fn silent() -> (u16, Heard) {
    let (listener, heard) = (TcpListener::bind(("127.0.0.1", 0)).unwrap(), Heard::default());
    let hears = heard.clone();
    let filters = move || {
        let hears = hears.clone();
        move |_: bool, bytes: &[u8]| {
            hears.lock().unwrap().push(String::from_utf8_lossy(bytes).to_string());
            Fate::Lost
        }
    };
    (relay(move || listener.local_addr().unwrap().port(), filters), heard)
}

/// A function that makes this many calls of a caller at once, of which those with "closed" fail closed. Returns their
/// statuses.
type Calls = Box<dyn Fn(usize, &str, &str) -> Vec<u16>>;

/// An example's process.
struct Started {
    calls: Calls,
    callers: Cell<u16>,
}

impl Started {
    /// Starts a program that reads lines such as "200 192.0.2.7 share", or a server of HTTP: there `GET /` has a share,
    /// `POST /login` fails closed, and the caller is in X-Forwarded-For.
    fn new(name: &str, example: &Example, redis: u16) -> Self {
        let calls: Calls = if name == "calls" {
            let mut command = example.command(redis);
            command.stderr(Stdio::null());
            let program = RefCell::new(Dialogue::start(command));
            Box::new(move |calls, caller, fail| {
                let line = program.borrow_mut().ask(format!("{calls} {caller} {fail}"));
                line.split(' ').map(|status| status.parse().unwrap()).collect()
            })
        } else {
            let http = Http::start(&example.with("PROXY", "127.0.0.1"), redis);
            Box::new(move |calls, caller, fail| {
                let line = if fail == "share" { "GET /" } else { "POST /login" };
                let headers = format!("X-Forwarded-For: {caller}\r\nContent-Length: 0\r\n");
                http.at_once(calls, &format!("{line} HTTP/1.0\r\n{headers}\r\n"))
            })
        };
        Self { calls, callers: Cell::new(0) }
    }

    /// Returns the address of a caller that has made no call yet.
    fn caller(&self) -> String {
        self.callers.set(self.callers.get() + 1);
        format!("192.168.{}.{}", self.callers.get() / 256, self.callers.get() % 256)
    }

    /// Makes the calls at once, and returns how many passed.
    fn passed(&self, calls: usize, caller: &str, fail: &str) -> usize {
        let statuses = (self.calls)(calls, caller, fail);
        let expected = if fail == "share" { [200, 429, 429] } else { [200, 429, 503] };
        assert_eq!(statuses.len(), calls);
        assert!(statuses.iter().all(|status| expected.contains(status)), "{fail}: {statuses:?}");
        statuses.iter().filter(|status| **status == 200).count()
    }

    /// Checks that the share alone decides, and that no call passes that fails closed. Returns a caller whose share is
    /// used up.
    fn is_without_redis(&self, what: &str) -> String {
        let caller = self.caller();
        assert_eq!(self.passed(20, &caller, "closed"), 0, "{what}");
        assert_eq!(self.passed(20, &caller, "share"), LIMIT, "{what}");
        caller
    }

    /// Waits until the server decides again.
    fn finds(&self, server: &Server, what: &str) {
        wait_until(&format!("{what}: it finds its server"), || {
            let caller = self.caller();
            self.passed(1, &caller, "share");
            !run::<Vec<String>>(&mut server.connect(), &format!("KEYS *{caller}")).unwrap().is_empty()
        });
    }
}
