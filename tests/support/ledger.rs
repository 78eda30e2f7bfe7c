//! A limiter whose state tells exactly how many tokens were ever taken.

use std::sync::atomic::{AtomicI64, Ordering};

use redis::{ConnectionLike, RedisResult};

use super::expected::expiry;
use super::{Server, Snapshot, run, throttle};

/// The limiter's quota. A token takes a minute to come back: during a test, the limiter is never full again.
const FUNNEL: &str = "1000000 1 60";
const INCREMENT: i64 = 60_000_000_000;

pub struct Ledger {
    key: String,
    /// The TAT before the first token was taken.
    start: i64,
    acknowledged: AtomicI64,
}

impl Ledger {
    /// Takes the first token of a new limiter.
    fn open(connection: &mut impl ConnectionLike, key: &str) -> Self {
        assert_eq!(throttle(connection, &format!("{key} {FUNNEL}"))[0], 0);
        let tat: i64 = run(connection, &format!("GET {key}")).unwrap();
        Self { key: key.into(), start: tat - INCREMENT, acknowledged: AtomicI64::new(1) }
    }

    /// Returns a ledger for each of this many clients.
    pub fn open_some(server: &Server, count: usize) -> Vec<Self> {
        let mut connection = server.connect();
        (0..count).map(|number| Self::open(&mut connection, &format!("ledger/{number}"))).collect()
    }

    /// Takes one token, which counts once the server has acknowledged it.
    pub fn take(&self, connection: &mut impl ConnectionLike) -> RedisResult<()> {
        let reply: [i64; 5] = run(connection, &format!("CL.THROTTLE {} {FUNNEL}", self.key))?;
        assert_eq!(reply[0], 0);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Returns how many tokens a server has acknowledged as taken.
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Sets the number of acknowledged tokens: some may have been taken without an answer, because the server was gone.
    pub fn settle(&self, taken: i64) {
        self.acknowledged.store(taken, Ordering::SeqCst);
    }

    /// Returns how many tokens are taken in this state. Fails unless the limiter can have had exactly this state and
    /// expiry.
    pub fn taken(&self, snapshot: &Snapshot) -> i64 {
        let (text, expires_at) = snapshot.get(self.key.as_bytes()).unwrap_or_else(|| panic!("{} is gone", self.key));
        let tat: i64 = str::from_utf8(text).unwrap().parse().unwrap();
        assert_eq!((tat - self.start) % INCREMENT, 0, "{} holds {tat}", self.key);
        assert_eq!(i128::from(*expires_at), expiry(tat.into()), "{}", self.key);
        (tat - self.start) / INCREMENT
    }
}
