//! The lease of docs/budgets: one call for many decisions, which together still keep the limit.

#[path = "../../docs/budgets/lease.rs"]
mod lease;

use std::env::{current_exe, var};
use std::mem;
use std::process::Command;
use std::time::{Duration, Instant};

use lease::Lease;
use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND, START};
use crate::support::programs::output;
use crate::support::random::Random;
use crate::support::{Server, info, run};

/// A server and its clients on one clock, which only the test moves.
struct World {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The time of the clients.
    now: Instant,
    /// The time of the server, in nanoseconds since the epoch.
    wall: i64,
}

impl World {
    fn new() -> Self {
        let (clock, server, connection) = Clock::start(START);
        Self { clock, server, connection, now: Instant::now(), wall: START }
    }

    fn pass_a_millisecond(&mut self) {
        self.now += Duration::from_millis(1);
        self.wall += MILLISECOND;
        self.clock.set(self.wall);
    }

    fn lease(&self, quota: (u64, u64, u64), batch: u64, time: Duration) -> Lease {
        let client = self.server.client();
        Lease::new(move || client.get_connection(), "hot", quota, batch, time, self.now)
    }

    /// Returns how many of these tokens a client gets now.
    fn spend(&self, lease: &mut Lease, tokens: u64) -> u64 {
        (0..tokens).take_while(|_| lease.take(self.now).unwrap().is_zero()).count() as u64
    }
}

/// Returns how often all clients together have asked the server for tokens.
fn calls(connection: &mut Connection) -> u64 {
    info(connection, "cmdstat_cl.ptake").split(['=', ',']).nth(1).unwrap().parse().unwrap()
}

/// The test starts itself a second time, to run the program with environment variables.
#[test]
fn the_program_calls_the_server_that_redis_url_names() {
    if var("RUNS_THE_PROGRAM").is_ok() {
        return lease::main().unwrap();
    }
    let server = Server::start();
    let mut program = Command::new("timeout");
    let name = "project::leases::the_program_calls_the_server_that_redis_url_names";
    program.arg("10m").arg(current_exe().unwrap()).args([name, "--exact"]).env("RUNS_THE_PROGRAM", "");
    output(program.env("REDIS_TIMEOUT", "60").env("REDIS_URL", format!("redis://127.0.0.1:{}", server.port)));
    assert!(calls(&mut server.connect()) >= 20, "batches of 1,000");
}

#[test]
fn a_wait_needs_no_calls_and_ends_at_the_right_millisecond() {
    let mut world = World::new();
    // A token comes back every 6.01 ms. A batch that is computed for many clients may be rounded down to zero.
    let mut lease = world.lease((0, 100, 601), 0, Duration::MAX);
    assert_eq!(world.spend(&mut lease, 1), 1);
    for left in (1..=7).rev() {
        assert_eq!(lease.take(world.now).unwrap(), Duration::from_millis(left), "the wait");
        world.pass_a_millisecond();
    }
    assert_eq!(world.spend(&mut lease, 1), 1);
    assert_eq!(calls(&mut world.connection), 3);
}

/// Of ten tokens, three are spent. Then the client continues, with its lease or after the lease has ended, or another
/// client begins. None of the ten has come back.
#[test]
fn clients_with_any_batch_and_time_spend_all_tokens_and_no_more() {
    for batch in [0, 1, 4, u64::MAX] {
        for time in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            for client_ends in [false, true] {
                let mut world = World::new();
                let mut lease = world.lease((9, 1, 1_000), batch, time);
                assert_eq!(world.spend(&mut lease, 3), 3, "{batch} for {time:?}");
                world.pass_a_millisecond();
                if client_ends {
                    drop(mem::replace(&mut lease, world.lease((9, 1, 1_000), batch, time)));
                }
                assert_eq!(world.spend(&mut lease, 20), 7, "{batch} for {time:?}, {client_ends}");
            }
        }
    }
}

/// After a failover, the old connection would lead to a replica. Only the reply to a refund may have been lost, so the
/// tokens must not be given back again.
#[test]
fn an_error_loses_at_most_one_batch_and_drops_the_connection() {
    let mut world = World::new();
    let mut lease = world.lease((9, 1, 1_000), 4, Duration::from_millis(1));
    assert_eq!(world.spend(&mut lease, 1), 1);
    let connections = info(&mut world.connection, "total_connections_received");
    run::<()>(&mut world.connection, "REPLICAOF 127.0.0.1 1").unwrap();
    world.pass_a_millisecond();
    lease.take(world.now).unwrap_err();
    run::<()>(&mut world.connection, "REPLICAOF NO ONE").unwrap();
    assert_eq!(world.spend(&mut lease, 20), 10 - 4, "all but the batch");
    assert_ne!(info(&mut world.connection, "total_connections_received"), connections);
}

/// Eight clients share 5,000 tokens at once and 100 a millisecond; their batches add up to what comes back during a
/// lease. For a second, one client has nearly all of the demand. Then clients are idle, busy or bursting at random.
#[test]
#[ignore = "slow: thousands of calls"]
fn clients_use_95_percent_of_the_rate_and_no_window_has_more_than_the_limit_and_their_batches() {
    const LIMIT: i64 = 5_000;
    const RATE: i64 = 100;
    const LEASE: usize = 80;
    let mut world = World::new();
    let mut leases = [(); 8].map(|()| world.lease((4_999, 100, 1), 1_000, Duration::from_millis(LEASE as u64)));
    let mut random = Random::new(2026);
    // The tokens that each client asks for in a millisecond.
    let mut demands = [193, 1, 1, 1, 1, 1, 1, 1];
    let (mut spent, mut lowest) = (0, i64::MAX);
    for milliseconds in 0..10_000 {
        let back = RATE * milliseconds;
        assert!(milliseconds != 1_000 || (spent - LIMIT) * 100 >= back * 95, "{spent} of {LIMIT} and {back}");
        // The tokens spent in a window, minus those that came back in it, are what it used beyond the rate.
        lowest = lowest.min(spent - back);
        for (lease, demand) in leases.iter_mut().zip(&mut demands) {
            if milliseconds >= 1_000 && random.one_in(LEASE) {
                *demand = random.pick(&[0, 0, 1, 20, 200, 1_000]);
            }
            spent += world.spend(lease, *demand) as i64;
        }
        let beyond = spent - back - lowest;
        assert!(spent <= LIMIT + back, "{spent} after {milliseconds} ms");
        assert!(beyond <= LIMIT + RATE * LEASE as i64, "{beyond} beyond the rate in some window");
        world.pass_a_millisecond();
        for lease in &mut leases {
            lease.end_if_over(world.now).unwrap();
        }
    }
}
