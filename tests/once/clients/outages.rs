//! The whole examples, each through every failure of Redis. Redis passes at most a caller's limit, the share of the
//! process at most as many again, and a call that fails closed passes never without Redis.
//!
//! An example here limits each caller to three calls at once and one a day, so that no token comes back meanwhile. Its
//! callers are addresses, and each count is that of a caller of its own.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};

use crate::support::endpoint::{Endpoint, Fate, relay};
use crate::support::examples::{
    BOUND, Example, Http, TIMEOUT, debian_node, django, express, fastapi, flask, nginx, of_test, python_program,
};
use crate::support::losing::unanswered;
use crate::support::programs::signal;
use crate::support::traffic::side_by_side;
use crate::support::{Process, Server, command, eventually, info, run, wait_until};

/// The tokens of a caller's limit, and of a process's share of it.
const LIMIT: usize = 3;
/// The calls at once in an outage.
const CALLS: usize = 60;

/// How a test makes calls.
#[derive(Clone, Copy)]
enum By {
    /// HTTP: `GET /` has a share, and `POST /login` fails closed. The caller is in X-Forwarded-For.
    Http,
    /// Lines such as "200 192.0.2.7 share", each answered with a line of 200 statuses. "closed" fails closed.
    Lines,
}

fn examples() -> Vec<(By, Example)> {
    let by_lines = redis_py().chain(debian_node(&of_test("clients/calls.js"))).map(|example| (By::Lines, example));
    let over_http = flask().chain(fastapi()).chain(django()).chain(express()).chain(nginx());
    by_lines.chain(over_http.map(|example| (By::Http, example))).collect()
}

fn redis_py() -> impl Iterator<Item = Example> {
    ["redis_py", "redis_asyncio"]
        .into_iter()
        .flat_map(|file| python_program("clients/calls.py").map(move |example| example.with_arguments(&[file])))
}

#[test]
#[ignore = "slow: attacks"]
fn each_example_passes_its_limit_of_200_and_of_1000_calls_at_once() {
    for (by, example) in examples() {
        let server = Server::start();
        // An hour is longer than any machine takes: Redis decides each call.
        let started = Started::new(by, &example.with("TIMEOUT", "3600"), server.port);
        for (calls, fail) in [(200, "share"), (200, "closed"), (1000, "share")] {
            assert_eq!(started.passed(calls, &started.caller(), fail), LIMIT, "{example:?}: {calls}, {fail}");
        }
    }
}

#[test]
#[ignore = "slow: attacks"]
fn no_outage_passes_more_than_the_limit_and_the_share() {
    side_by_side(examples(), |(by, example)| {
        let mut server = Server::start();
        let started = Started::new(by, &example, server.port);
        let what = format!("{example:?}");
        for stopped in [false, true] {
            let caller = started.caller();
            let before = started.passed(CALLS, &caller, "share");
            if stopped {
                signal(server.pid(), "STOP")
            } else {
                server.kill()
            }
            let meanwhile = started.passed(CALLS, &caller, "share");
            let other = started.is_without_redis(&what);
            if stopped {
                signal(server.pid(), "CONT")
            } else {
                server.restart()
            }
            let after = started.passed(CALLS, &other, "share");
            started.finds(&server, &what);
            // A server that was killed has forgotten what it allowed before.
            let redis = if stopped { LIMIT } else { 2 * LIMIT };
            let all = before + meanwhile + started.passed(CALLS, &caller, "share");
            assert!((LIMIT..=redis + LIMIT).contains(&all), "{what}: {all}, stopped: {stopped}");
            assert!(after <= LIMIT, "{what}: {after} more, stopped: {stopped}");
            assert_eq!(started.passed(CALLS, &caller, "share"), 0, "{what}, stopped: {stopped}");
        }
    });
}

/// A server that is there and cannot decide: no right to the command, no memory, no replica, a replica itself, a
/// password that the client does not have, and a disk that fails.
#[test]
#[ignore = "slow: attacks"]
fn no_error_of_the_server_passes_more_than_the_share() {
    side_by_side(examples(), |(by, example)| {
        let server = Server::start();
        let mut settings = server.connect();
        let snapshot = server.folder.join("dump.rdb");
        let started = Started::new(by, &example, server.port);
        started.finds(&server, "at first");
        for [mistake, mended] in [
            ["ACL SETUSER default -cl.throttle -cl.mthrottle", "ACL SETUSER default +cl.throttle +cl.mthrottle"],
            ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"],
            ["CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"],
            ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
            ["CONFIG SET requirepass secret", "ACL SETUSER default nopass"],
            ["BGSAVE", "BGSAVE"],
        ] {
            let what = format!("{example:?}: {mistake}");
            if mistake == "BGSAVE" {
                // A folder with the file's name makes the snapshot fail, and then all writes.
                command("CONFIG SET save").arg("3600 1").query::<()>(&mut settings).unwrap();
                let _ = fs::remove_file(&snapshot);
                fs::create_dir(&snapshot).unwrap();
            }
            run::<()>(&mut settings, mistake).unwrap();
            if mistake == "BGSAVE" {
                wait_until("the snapshot fails", || info(&mut settings, "rdb_last_bgsave_status") == "err");
                fs::remove_dir(&snapshot).unwrap();
            }
            // A connection that is there keeps its login.
            run::<()>(&mut settings, "CLIENT KILL TYPE normal").unwrap();
            started.is_without_redis(&what);
            run::<()>(&mut settings, mended).unwrap();
            started.finds(&server, &what);
        }
        // A server that ends would save, in a folder that is gone.
        command("CONFIG SET save").arg("").query::<()>(&mut settings).unwrap();
    });
}

/// One address leads to several servers, one after the other, as a Service of Kubernetes does: connections that fall
/// silent, a server without the module, a node of a cluster without slots, and a primary that becomes a replica.
#[test]
#[ignore = "slow: attacks"]
fn no_change_behind_one_address_passes_more_than_the_limit_and_the_share() {
    side_by_side(examples(), |(by, example)| {
        let [first, second] = [Server::start(), Server::start()];
        let others = [Server::start_bare(&[]), Server::start_with(&["--cluster-enabled", "yes"])];
        let endpoint = Endpoint::to(first.port);
        let started = Started::new(by, &example, endpoint.port);
        started.finds(&first, "at first");
        for other in &others {
            endpoint.lead_to(other.port);
            endpoint.cut();
            started.is_without_redis(&format!("{example:?}: {:?}", other.port));
        }
        endpoint.lead_to(first.port);
        endpoint.cut();
        started.finds(&first, "back");
        for failover in [false, true] {
            let caller = started.caller();
            let before = started.passed(CALLS, &caller, "share");
            if failover {
                endpoint.lead_to(second.port);
                run::<()>(&mut first.connect(), &format!("REPLICAOF 127.0.0.1 {}", second.port)).unwrap();
            } else {
                endpoint.silence();
            }
            let after = started.passed(CALLS, &caller, "share");
            started.finds(if failover { &second } else { &first }, &format!("{example:?}"));
            let all = before + after + started.passed(CALLS, &caller, "share");
            // The second server may not know yet what the first one has allowed.
            let redis = if failover { 2 * LIMIT } else { LIMIT };
            assert!((LIMIT..=redis + LIMIT).contains(&all), "{example:?}: {all}, failover: {failover}");
        }
    });
}

/// Each of two processes passes its part: of three calls one.
#[test]
#[ignore = "slow: attacks"]
fn two_processes_together_pass_at_most_the_limit_without_redis() {
    side_by_side(examples(), |(by, example)| {
        let server = Server::start();
        let example = example.with("PROCESSES", "2");
        let both = [(); 2].map(|()| Started::new(by, &example, server.port));
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
    side_by_side(examples(), |(by, example)| {
        let server = Server::start();
        let late = Arc::new(AtomicBool::new(false));
        let (port, are_late) = (server.port, late.clone());
        let filters = move |_: &_| {
            let are_late = are_late.clone();
            move |to_the_server: bool, _: &[u8]| {
                if !to_the_server && are_late.load(Ordering::Relaxed) {
                    sleep(TIMEOUT * 3 / 2);
                }
                Fate::PassedOn
            }
        };
        let started = Started::new(by, &example, relay(move || port, filters));
        let [limited, other] = [(); 2].map(|()| started.caller());
        let used_up = eventually(BOUND, || ((started.calls)(1, &limited, "closed") == [429]).then_some(()));
        assert!(used_up.is_some(), "{example:?}");
        late.store(true, Ordering::Relaxed);
        started.passed(1, &other, "closed");
        assert_eq!(started.passed(1, &limited, "closed"), 0, "{example:?}");
    });
}

/// A call waits for a free connection, for a new one, and for the reply, each for TIMEOUT at most: with a TIMEOUT of an
/// hour it has no answer when one of 10 ms has. At one port nobody accepts a connection, at the other nobody replies.
/// Of 40 calls at once, 20 find no free connection.
#[test]
#[ignore = "slow: attacks"]
fn a_call_waits_no_longer_than_three_times_timeout_and_is_not_repeated() {
    side_by_side(redis_py(), |example| {
        let (unaccepted, _queue) = unanswered();
        let [silent, silent_for_an_hour] = [(); 2].map(|()| Silent::listen());
        for ports in [[unaccepted; 2], [silent_for_an_hour.port, silent.port]] {
            let answer = |timeout, port| {
                let mut command = example.with("TIMEOUT", timeout).command(port);
                let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
                let mut process = Process(process.unwrap());
                let (mut input, output) = (process.0.stdin.take().unwrap(), process.0.stdout.take().unwrap());
                let (answered, answer) = channel();
                spawn(move || answered.send(BufReader::new(output).lines().next()));
                input.write_all(b"40 192.0.2.1 share\n").unwrap();
                (process, input, answer)
            };
            let (_process, _input, hour) = answer("3600", ports[0]);
            // 02 is a connection that is not accepted yet.
            let connects = format!(":{unaccepted:04X} 02");
            wait_until("the calls of an hour", || {
                let connects = fs::read_to_string("/proc/net/tcp").unwrap().contains(&connects);
                if ports[0] == unaccepted { connects } else { silent_for_an_hour.calls() > 0 }
            });
            let (_process, _input, short) = answer("0.01", ports[1]);
            let statuses = short.recv_timeout(6 * BOUND).unwrap().unwrap().unwrap();
            assert_eq!((statuses.matches("200").count(), statuses.matches("429").count()), (LIMIT, 40 - LIMIT));
            assert!(hour.try_recv().is_err(), "{example:?}: it has not waited");
        }
        assert!(silent_for_an_hour.calls() <= 20, "{example:?}: {}", silent_for_an_hour.calls());
        assert!(silent.calls() <= 40, "{example:?}: {}", silent.calls());
        assert_eq!(silent.first_words.lock().unwrap().iter().find(|words| !words.contains("CL.THROTTLE")), None);
    });
}

/// A server that accepts connections and answers nothing.
struct Silent {
    port: u16,
    /// The first bytes of each connection.
    first_words: Arc<Mutex<Vec<String>>>,
    calls: Arc<AtomicUsize>,
}

impl Silent {
    fn listen() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Self { port, first_words: Arc::default(), calls: Arc::default() };
        let (words, calls) = (silent.first_words.clone(), silent.calls.clone());
        // The threads accept and read until the tests end.
        spawn(move || {
            for mut client in listener.incoming().flatten() {
                let (words, calls) = (words.clone(), calls.clone());
                spawn(move || {
                    let mut bytes = [0; 4096];
                    let mut first = true;
                    while let Ok(length @ 1..) = client.read(&mut bytes) {
                        let text = String::from_utf8_lossy(&bytes[..length]);
                        calls.fetch_add(text.matches("CL.THROTTLE").count(), Ordering::Relaxed);
                        if first {
                            words.lock().unwrap().push(text.to_string());
                        }
                        first = false;
                    }
                });
            }
        });
        silent
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// A function that makes this many calls of a caller at once, of which those with "closed" fail closed. Returns their
/// statuses.
type Calls = Box<dyn Fn(usize, &str, &str) -> Vec<u16>>;

/// An example's process.
struct Started {
    calls: Calls,
    callers: Cell<u8>,
}

impl Started {
    fn new(by: By, example: &Example, redis: u16) -> Self {
        let calls: Calls = match by {
            By::Http => {
                let http = Http::start(&example.with("PROXY", "127.0.0.1"), redis);
                Box::new(move |calls, caller, fail| {
                    let line = if fail == "share" { "GET /" } else { "POST /login" };
                    let headers = format!("X-Forwarded-For: {caller}\r\nContent-Length: 0\r\n");
                    http.at_once(calls, &format!("{line} HTTP/1.0\r\n{headers}\r\n"))
                })
            }
            By::Lines => {
                let mut command = example.command(redis);
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
                let mut process = Process(command.spawn().unwrap());
                let pipes = (process.0.stdin.take().unwrap(), BufReader::new(process.0.stdout.take().unwrap()));
                let process = RefCell::new((process, pipes));
                Box::new(move |calls, caller, fail| {
                    let (_, (input, output)) = &mut *process.borrow_mut();
                    writeln!(input, "{calls} {caller} {fail}").unwrap();
                    let mut line = String::new();
                    output.read_line(&mut line).unwrap();
                    line.split_whitespace().map(|status| status.parse().unwrap()).collect()
                })
            }
        };
        Self { calls, callers: Cell::new(0) }
    }

    /// Returns the address of a caller that has made no call yet.
    fn caller(&self) -> String {
        self.callers.set(self.callers.get() + 1);
        format!("192.0.2.{}", self.callers.get())
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
        let found = eventually(BOUND, || {
            let caller = self.caller();
            self.passed(1, &caller, "share");
            (!run::<Vec<String>>(&mut server.connect(), &format!("KEYS *{caller}")).unwrap().is_empty()).then_some(())
        });
        assert!(found.is_some(), "{what}: it does not find its server");
    }
}
