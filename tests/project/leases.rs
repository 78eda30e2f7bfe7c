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
/// The duration of a lease in milliseconds; the clients together hold no more than comes back in it.
const LEASE: u64 = 80;
const BATCH: u64 = RATE * LEASE / CLIENTS as u64;

/// A server and its clients on one clock, which only the test moves.
struct World {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The moment that the clients know as millisecond 0.
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

    fn lease(&self) -> Lease {
        let client = self.server.client();
        Lease::new(move || client.get_connection(), "hot", QUOTA, BATCH, Duration::from_millis(LEASE), self.now())
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

    /// Returns the tokens that the server counts as taken and not yet come back.
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
fn the_program_spends_its_tokens_at_the_server_of_its_setting() {
    if var("RUNS_THE_PROGRAM").is_ok() {
        return lease::main().unwrap();
    }
    let server = Server::start();
    let mut program = Command::new(current_exe().unwrap());
    let name = "project::leases::the_program_spends_its_tokens_at_the_server_of_its_setting";
    program.args([name, "--exact"]).env("RUNS_THE_PROGRAM", "").env("REDIS_TIMEOUT", "60");
    output(program.env("REDIS_URL", format!("redis://127.0.0.1:{}", server.port)));
    assert!(calls(&mut server.connect()) >= 20, "batches of 1,000");
}

/// A batch computed for many clients may be rounded down to zero.
#[test]
fn a_wait_needs_no_calls_and_ends_at_its_millisecond() {
    let mut world = World::new();
    let mut lease = world.lease();
    lease.batch = 0;
    // A token is there after 6.01 ms.
    world.charge(LIMIT + 600);
    for left in (1..=7).rev() {
        assert_eq!(lease.take(world.now()).unwrap(), Duration::from_millis(left), "the wait");
        world.pass(1);
    }
    assert_eq!(calls(&mut world.connection), 1);
    assert_eq!(world.spend(&mut lease, LIMIT), 100, "tokens spent");
}

#[test]
fn a_lease_of_any_batch_and_time_spends_exactly_its_tokens() {
    for batch in [0, 1, 4, u64::MAX] {
        for time in [0, 1, LEASE].map(Duration::from_millis).into_iter().chain([Duration::MAX]) {
            let mut world = World::new();
            let mut lease = world.lease();
            (lease.quota, lease.batch, lease.time) = ((9, 1, 1_000), batch, time);
            assert_eq!(world.spend(&mut lease, 3), 3, "{batch} for {time:?}");
            // Whether the lease ends or goes on, all ten tokens are there but none has come back.
            world.pass(2);
            assert_eq!(world.spend(&mut lease, 20), 7, "{batch} for {time:?}");
        }
    }
}

/// After a failover, the old connection would lead to a replica for ever.
#[test]
fn an_error_loses_at_most_one_batch_and_ends_the_connection() {
    let mut world = World::new();
    let mut lease = world.lease();
    assert_eq!(world.spend(&mut lease, 10), 10, "tokens spent");
    // More than comes back meanwhile, so the limiter stays in debt.
    world.charge(20_000);
    let connections = info(&mut world.connection, "total_connections_received");
    run::<()>(&mut world.connection, "REPLICAOF 127.0.0.1 1").unwrap();
    world.pass(LEASE);
    lease.take(world.now()).unwrap_err();
    run::<()>(&mut world.connection, "REPLICAOF NO ONE").unwrap();
    assert!(!lease.take(world.now()).unwrap().is_zero(), "a token of a limiter in debt");
    // The answer alone may have been lost, so the tokens are not given back twice.
    assert_eq!(world.taken(), BATCH + 20_000 - RATE * LEASE, "tokens taken");
    assert_ne!(info(&mut world.connection, "total_connections_received"), connections);
}

#[test]
fn the_rest_of_a_batch_is_given_back_when_its_time_is_over_or_its_client_ends() {
    let mut world = World::new();
    let [mut ends, mut lease] = [(); 2].map(|()| world.lease());
    assert_eq!([&mut ends, &mut lease].map(|lease| world.spend(lease, 10)), [10; 2], "tokens spent");
    assert_eq!(world.taken(), 2 * BATCH, "tokens taken");
    drop(ends);
    assert_eq!(world.taken(), 10 + BATCH, "tokens taken");
    world.charge(20_000);
    world.pass(LEASE);
    assert!(!lease.take(world.now()).unwrap().is_zero(), "a token was spent after its lease's time");
    assert_eq!(world.taken(), 20 + 20_000 - RATE * LEASE, "tokens taken");
}

#[test]
#[ignore = "slow: thousands of calls"]
fn eight_clients_use_at_least_95_in_100_of_the_rate_though_one_has_nearly_all_requests() {
    const MILLISECONDS: u64 = 2_000;
    // The tokens that each client asks for in a millisecond.
    let demands = [93, 1, 1, 1, 1, 1, 1, 1];
    let mut world = World::new();
    let mut leases = [(); CLIENTS].map(|()| world.lease());
    let mut spent = 0;
    for _ in 0..MILLISECONDS {
        for (lease, demand) in leases.iter_mut().zip(demands) {
            spent += world.spend(lease, demand);
        }
        world.pass(1);
    }
    // The tokens beyond those that were there at the start.
    let used = spent - LIMIT;
    assert!(used * 100 >= RATE * MILLISECONDS * 95, "{used} of {}", RATE * MILLISECONDS);
}

/// The clients are idle, busy or bursting at random; they come and go, and some die.
#[test]
#[ignore = "slow: thousands of calls"]
fn the_limit_holds_in_all_and_a_lease_longer_in_any_window() {
    let mut random = Random::new(2026);
    let mut world = World::new();
    let mut leases = [(); CLIENTS].map(|()| world.lease());
    let mut demands = [0; CLIENTS];
    let mut spent = 0;
    // Two values of the difference between tokens spent and tokens come back: its lowest so far, and its largest rise
    // since a lowest one. This rise is what a window used beyond the rate.
    let (mut lowest, mut highest_rise) = (i64::MAX, i64::MIN);
    for _ in 0..10_000 {
        let back = RATE * world.milliseconds;
        lowest = lowest.min(spent as i64 - back as i64);
        for (lease, demand) in leases.iter_mut().zip(&mut demands) {
            if random.one_in(LEASE as usize) {
                *demand = random.pick(&[0, 0, 1, 20, 200, BATCH]);
            }
            if random.one_in(20 * LEASE as usize) {
                let ended = std::mem::replace(lease, world.lease());
                if random.one_in(4) { std::mem::forget(ended) } else { drop(ended) }
            }
            spent += world.spend(lease, *demand);
        }
        assert!(spent <= LIMIT + back, "{spent} after {} ms", world.milliseconds);
        highest_rise = highest_rise.max(spent as i64 - back as i64 - lowest);
        world.pass(1);
        for lease in &mut leases {
            lease.end_if_over(world.now()).unwrap();
        }
    }
    assert!(highest_rise <= (LIMIT + RATE * LEASE) as i64, "{highest_rise} beyond the rate in some window");
}
