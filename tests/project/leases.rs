//! The lease of docs/budgets: one call for many decisions, which together still keep the limit.

#[path = "../../docs/budgets/lease.rs"]
mod lease;

use std::env::{current_exe, var};
use std::process::Command;
use std::time::{Duration, Instant};

use lease::Lease;
use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND, START};
use crate::support::programs::output;
use crate::support::random::Random;
use crate::support::{Server, info, run};

/// The limiter's quota: 5,000 at once and 100 a millisecond.
const LIMIT: u64 = 5_000;
const RATE: u64 = 100;
const QUOTA: (u64, u64, u64) = (LIMIT - 1, RATE, 1);
const CLIENTS: usize = 8;
/// The duration of a lease in milliseconds. The batches of all clients together are what comes back in it.
const LEASE_MS: u64 = 80;
const LEASE: Duration = Duration::from_millis(LEASE_MS);
const BATCH: u64 = RATE * LEASE_MS / CLIENTS as u64;

/// A server and its clients on one clock, which only the test moves.
struct World {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The time of the clients at millisecond 0.
    zero: Instant,
    milliseconds: u64,
}

impl World {
    fn new() -> Self {
        let (clock, server, connection) = Clock::start(START);
        Self { clock, server, connection, zero: Instant::now(), milliseconds: 0 }
    }

    fn pass(&mut self, milliseconds: u64) {
        self.milliseconds += milliseconds;
        self.clock.set(START + self.milliseconds as i64 * MILLISECOND);
    }

    fn now(&self) -> Instant {
        self.zero + Duration::from_millis(self.milliseconds)
    }

    fn lease(&self, batch: u64, time: Duration) -> Lease {
        let client = self.server.client();
        Lease::new(move || client.get_connection(), "hot", QUOTA, batch, time, self.now())
    }

    /// Returns how many of these tokens a client gets now.
    fn spend(&self, lease: &mut Lease, tokens: u64) -> u64 {
        (0..tokens).take_while(|_| lease.take(self.now()).unwrap().is_zero()).count() as u64
    }

    /// Takes tokens directly, without a client.
    fn charge(&mut self, tokens: u64) {
        let (max_burst, count, period) = QUOTA;
        let call = format!("CL.PCHARGE hot {max_burst} {count} {period} {tokens}");
        run::<[i64; 5]>(&mut self.connection, &call).unwrap();
    }

    /// Returns the tokens that the server counts as taken and not yet back.
    fn taken(&mut self) -> u64 {
        let tat: Option<i64> = run(&mut self.connection, "GET hot").unwrap();
        let ahead = tat.map_or(0, |tat| tat - START - self.milliseconds as i64 * MILLISECOND);
        ahead.max(0) as u64 * RATE / MILLISECOND as u64
    }
}

/// Returns how often all clients together have asked the server for tokens.
fn calls(connection: &mut Connection) -> u64 {
    info(connection, "cmdstat_cl.ptake").split(['=', ',']).nth(1).unwrap().parse().unwrap()
}

/// The test starts itself once more, to run the program with its settings.
#[test]
fn the_program_calls_the_server_that_redis_url_names() {
    if var("RUNS_THE_PROGRAM").is_ok() {
        return lease::main().unwrap();
    }
    let server = Server::start();
    let mut program = Command::new("timeout");
    let name = "project::leases::the_program_calls_the_server_that_redis_url_names";
    program
        .arg("10m")
        .arg(current_exe().unwrap())
        .args([name, "--exact"])
        .env("RUNS_THE_PROGRAM", "")
        .env("REDIS_TIMEOUT", "60");
    output(program.env("REDIS_URL", format!("redis://127.0.0.1:{}", server.port)));
    assert!(calls(&mut server.connect()) >= 20, "batches of 1,000");
}

/// A batch that is computed for many clients may be rounded down to zero.
#[test]
fn a_wait_needs_no_calls_and_ends_at_its_millisecond() {
    let mut world = World::new();
    let mut lease = world.lease(0, LEASE);
    // A token is there after 6.01 ms.
    world.charge(LIMIT + 600);
    for left in (1..=7).rev() {
        assert_eq!(lease.take(world.now()).unwrap(), Duration::from_millis(left), "the wait");
        world.pass(1);
    }
    assert_eq!(calls(&mut world.connection), 1);
    assert_eq!(world.spend(&mut lease, LIMIT), 100, "tokens spent");
}

/// After a failover, the old connection would lead to a replica.
#[test]
fn an_error_loses_at_most_one_batch_and_drops_the_connection() {
    let mut world = World::new();
    let mut lease = world.lease(BATCH, LEASE);
    assert_eq!(world.spend(&mut lease, 10), 10, "tokens spent");
    // More than comes back meanwhile, so the limiter stays in debt.
    world.charge(20_000);
    let connections = info(&mut world.connection, "total_connections_received");
    run::<()>(&mut world.connection, "REPLICAOF 127.0.0.1 1").unwrap();
    world.pass(LEASE_MS);
    lease.take(world.now()).unwrap_err();
    run::<()>(&mut world.connection, "REPLICAOF NO ONE").unwrap();
    assert!(!lease.take(world.now()).unwrap().is_zero(), "a token of a limiter in debt");
    // Perhaps only the reply was lost, so the tokens are not given back twice.
    assert_eq!(world.taken(), BATCH + 20_000 - RATE * LEASE_MS, "tokens taken");
    assert_ne!(info(&mut world.connection, "total_connections_received"), connections);
}

/// Whether the lease ends or goes on, all tokens can be spent before one comes back.
#[test]
fn a_lease_of_any_batch_and_time_spends_all_tokens() {
    for batch in [0, 1, 4, u64::MAX] {
        for time in [Duration::ZERO, Duration::from_millis(1), LEASE, Duration::MAX] {
            let mut world = World::new();
            let mut lease = world.lease(batch, time);
            lease.quota = (9, 1, 1_000);
            let spent = [3, 20].map(|tokens| {
                world.pass(2);
                world.spend(&mut lease, tokens)
            });
            assert_eq!(spent, [3, 7], "{batch} for {time:?}");
        }
    }
}

#[test]
fn the_rest_of_a_batch_is_given_back_when_its_lease_or_its_client_ends() {
    let mut world = World::new();
    let [mut ends, mut lease] = [(); 2].map(|()| world.lease(BATCH, LEASE));
    assert_eq!([&mut ends, &mut lease].map(|lease| world.spend(lease, 10)), [10; 2], "tokens spent");
    assert_eq!(world.taken(), 2 * BATCH, "tokens taken");
    drop(ends);
    assert_eq!(world.taken(), 10 + BATCH, "tokens taken");
    world.charge(20_000);
    world.pass(LEASE_MS);
    assert!(!lease.take(world.now()).unwrap().is_zero(), "a token was spent after its lease");
    assert_eq!(world.taken(), 20 + 20_000 - RATE * LEASE_MS, "tokens taken");
}

/// For a second, the demand is steady, and nearly all of it comes to one client. Then clients are idle, busy or bursting
/// at random; they come and go, and some die.
#[test]
#[ignore = "slow: thousands of calls"]
fn eight_clients_use_95_percent_of_the_rate_and_no_window_has_more_than_the_limit_and_their_batches() {
    let mut random = Random::new(2026);
    let mut world = World::new();
    let mut leases = [(); CLIENTS].map(|()| world.lease(BATCH, LEASE));
    // The tokens that each client asks for in a millisecond.
    let mut demands = [193, 1, 1, 1, 1, 1, 1, 1];
    let (mut spent, mut lowest) = (0, i64::MAX);
    for milliseconds in 0..10_000 {
        let back = RATE * milliseconds;
        if milliseconds == 1_000 {
            assert!((spent - LIMIT) * 100 >= back * 95, "{spent} of {LIMIT} and {back}");
        }
        // The rise of the tokens spent, less those that came back, is what a window used beyond the rate.
        lowest = lowest.min(spent as i64 - back as i64);
        for (lease, demand) in leases.iter_mut().zip(&mut demands) {
            if milliseconds >= 1_000 && random.one_in(LEASE_MS as usize) {
                *demand = random.pick(&[0, 0, 1, 20, 200, BATCH]);
            }
            if milliseconds >= 1_000 && random.one_in(20 * LEASE_MS as usize) {
                let ended = std::mem::replace(lease, world.lease(BATCH, LEASE));
                if random.one_in(4) { std::mem::forget(ended) } else { drop(ended) }
            }
            spent += world.spend(lease, *demand);
        }
        let beyond = (spent as i64 - back as i64 - lowest) as u64;
        assert!(spent <= LIMIT + back, "{spent} after {milliseconds} ms");
        assert!(beyond <= LIMIT + RATE * LEASE_MS, "{beyond} beyond the rate in some window");
        world.pass(1);
        for lease in &mut leases {
            lease.end_if_over(world.now()).unwrap();
        }
    }
}
