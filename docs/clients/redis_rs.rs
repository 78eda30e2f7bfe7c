//! Rate limiting with redis-rs and tokio. To run this file: `cargo add redis --features connection-manager,tokio-comp`
//! (for TLS, `tokio-native-tls-comp`), `cargo add tokio --features macros,rt,time`, and then
//! `[REDIS_URL=redis://…] [REDIS_TIMEOUT=0.1] cargo run`

use std::env::var;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};

/// Returns the process's connection, which all tasks clone. The connection reconnects by itself when it breaks.
fn connect() -> RedisResult<ConnectionManager> {
    let url = var("REDIS_URL").ok().filter(|url| !url.is_empty()).unwrap_or("redis://127.0.0.1:6379".into());
    let seconds = var("REDIS_TIMEOUT").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let timeout = Some(Duration::from_secs_f64(seconds));
    // Do not retry connecting: calls would wait for several attempts. The calls themselves are never retried.
    let config = ConnectionManagerConfig::new().set_number_of_retries(0);
    let config = config.set_connection_timeout(timeout).set_response_timeout(timeout);
    ConnectionManager::new_lazy_with_config(Client::open(url)?, config)
}

/// Returns the five integers of CL.THROTTLE's reply. A quota is max_burst, count and period.
async fn throttle(
    mut connection: ConnectionManager,
    key: &str,
    quota: (i64, u64, u64),
    quantity: i64,
) -> RedisResult<[i64; 5]> {
    redis::cmd("CL.THROTTLE").arg(key).arg(quota).arg(quantity).query_async(&mut connection).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let connection = connect()?;
    // The quota allows three calls at once, and then one a minute.
    for _ in 0..4 {
        match throttle(connection.clone(), "user123", (2, 1, 60), 1).await {
            Ok(reply) => println!("{reply:?}"),
            // An error with the code ERR means that an argument is wrong.
            Err(error) if error.code() == Some("ERR") => return Err(error),
            Err(error) => println!("Redis did not decide: {error}"),
        }
    }
    Ok(())
}
