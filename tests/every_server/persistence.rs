//! The state after a crash, from the append-only file.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, RedisResult};

use crate::support::aof::AOF;
use crate::support::expected::expiry;
use crate::support::traffic::under_load;
use crate::support::{Server, Snapshot, run, snapshot, throttle, wait_until};

const CLIENTS: usize = 4;

#[test]
#[ignore = "slow: crashes"]
fn appendfsync_always_loses_no_acknowledged_call_in_20_crashes() {
    let mut server = Server::start_with(&[&AOF[..], &["--appendfsync", "always"]].concat());
    let ledgers = ledgers(&server);
    for crash in 0..20 {
        let before = acknowledged(&ledgers);
        let client = server.client();
        under_load(
            CLIENTS,
            |number, _| {
                let mut connection = client.get_connection().unwrap();
                while ledgers[number].take(&mut connection).is_ok() {}
            },
            || {
                // Half of the crashes are in the middle of a rewrite, or just after it.
                if crash % 2 == 0 {
                    run::<()>(&mut server.connect(), "BGREWRITEAOF").unwrap();
                }
                wait_for_load(&ledgers, &before);
                sleep(Duration::from_millis(crash * 5));
                server.kill();
            },
        );
        server.restart();
        let state = snapshot(&mut server.connect());
        for (ledger, before) in ledgers.iter().zip(before) {
            let (taken, acknowledged) = (ledger.taken(&state), ledger.acknowledged.load(Ordering::SeqCst));
            assert!(acknowledged > before, "no load");
            assert!((acknowledged..=acknowledged + 1).contains(&taken), "{taken} taken, {acknowledged} acknowledged");
            // One may have been taken without an answer.
            ledger.acknowledged.store(taken, Ordering::SeqCst);
        }
    }
}

/// Waits until every client has made some more calls than these.
fn wait_for_load(ledgers: &[Ledger], calls: &[i64]) {
    wait_until("load", || {
        let more = acknowledged(ledgers);
        more.iter().zip(calls).all(|(more, calls)| *more > calls + 2)
    });
}

fn acknowledged(ledgers: &[Ledger]) -> Vec<i64> {
    ledgers.iter().map(|ledger| ledger.acknowledged.load(Ordering::SeqCst)).collect()
}

/// A limiter whose state tells exactly how many tokens were ever taken.
struct Ledger {
    key: String,
    /// The TAT before the first token was taken.
    start: i64,
    acknowledged: AtomicI64,
}

/// The limiter's quota. A token takes a minute to come back: during a test, the limiter is never full again.
const QUOTA: &str = "1000000 1 60";
const INCREMENT: i64 = 60_000_000_000;

/// Makes a ledger for each client, and takes its first token.
fn ledgers(server: &Server) -> Vec<Ledger> {
    let mut connection = server.connect();
    let open = |number| {
        let key = format!("ledger/{number}");
        assert_eq!(throttle(&mut connection, &format!("{key} {QUOTA}"))[0], 0);
        let tat: i64 = run(&mut connection, &format!("GET {key}")).unwrap();
        Ledger { key, start: tat - INCREMENT, acknowledged: AtomicI64::new(1) }
    };
    (0..CLIENTS).map(open).collect()
}

impl Ledger {
    /// Takes one token, which counts once the server has acknowledged it.
    fn take(&self, connection: &mut Connection) -> RedisResult<()> {
        let reply: [i64; 5] = run(connection, &format!("CL.THROTTLE {} {QUOTA}", self.key))?;
        assert_eq!(reply[0], 0);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Returns how many tokens are taken in this state. Fails unless the limiter can have had exactly this state and
    /// expiry.
    fn taken(&self, snapshot: &Snapshot) -> i64 {
        let (text, expires_at) = &snapshot[self.key.as_bytes()];
        let tat: i64 = str::from_utf8(text).unwrap().parse().unwrap();
        assert_eq!((tat - self.start) % INCREMENT, 0, "{} holds {tat}", self.key);
        assert_eq!(i128::from(*expires_at), expiry(tat.into()), "{}", self.key);
        (tat - self.start) / INCREMENT
    }
}
