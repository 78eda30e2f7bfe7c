//! Tests, on real servers, of what the module promises to its users.
//!
//! By default, the tests run on `redis-server`. To run them on another server, set `SERVER` to the path of its
//! executable.

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
