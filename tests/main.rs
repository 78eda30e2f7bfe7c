//! The promises to users, tested on real servers.
//!
//! `SERVER=/path/to/valkey-server cargo test` runs them on a server other than `redis-server`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking"
)]

mod support;

mod every_server;
mod hostile;
mod project;
