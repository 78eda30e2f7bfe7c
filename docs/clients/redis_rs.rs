//! Rate limiting with redis-rs and tokio. To run this file: `cargo add redis --features tokio-comp` (for TLS,
//! `tokio-native-tls-comp`), `cargo add tokio --features macros,rt,sync,time`, and then
//! `[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] cargo run`

use std::env::var;
use std::io::Error;
use std::time::Duration;

use redis::Value::{self, Int};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// One connection for all tasks of a process. The timeout applies to the reply and each of the four connection steps.
struct Limiter {
    client: Client,
    timeout: Duration,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Limiter {
    /// Calls CL.THROTTLE and returns its five integers. A quota is max_burst, count and period.
    async fn throttle(&self, key: &[u8], quota: (i64, u64, u64), quantity: u32) -> RedisResult<[i64; 5]> {
        let mut connection = timeout(self.timeout.saturating_mul(4), self.connected()).await.map_err(Error::from)??;
        let mut call = redis::cmd("CL.THROTTLE");
        call.arg(key).arg(quota).arg(quantity);
        let error = match call.query_async::<Vec<Value>>(&mut connection).await.as_deref() {
            Ok(&[Int(limited), Int(limit), Int(remaining), Int(retry_after), Int(reset_after)]) => {
                return Ok([limited, limit, remaining, retry_after, reset_after]);
            }
            Ok(_) => (ErrorKind::UnexpectedReturnType, "not a reply of CL.THROTTLE").into(),
            Err(error) => error.clone(),
        };
        // Close the connection after a failure, but not after an error reply, unless it comes from a replica.
        if error.code().is_none_or(|code| code == "READONLY") {
            self.connection.lock().await.take();
        }
        Err(error)
    }

    async fn connected(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.timeout)).set_connection_timeout(None);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(connection.insert(opened).clone())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let url = var("REDIS_URL").ok().filter(|url| !url.is_empty()).unwrap_or("redis://127.0.0.1:6379".into());
    let seconds = var("REDIS_TIMEOUT").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let timeout = Duration::from_secs_f64(seconds);
    let limiter = Limiter { client: Client::open(url)?, timeout, connection: Mutex::new(None) };
    // Three calls pass at once, and one more each minute.
    for _ in 0..4 {
        println!("{:?}", limiter.throttle(b"user123", (2, 1, 60), 1).await);
    }
    Ok(())
}
