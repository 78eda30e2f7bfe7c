//! The promises to a user, tested on a real server: one module per promise.
//!
//! `SERVER=/path/to/valkey-server cargo test` runs them on another server than `redis-server`.

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

mod access;
mod bad_input;
mod budgets;
mod bursts;
mod charge;
mod clients;
mod clock;
mod cluster;
mod contexts;
mod cost;
mod docs;
mod giving_back;
mod hostile;
mod kubernetes;
mod leases;
mod listeners;
mod loading;
mod look;
mod monitoring;
mod moving;
mod mthrottle;
mod operating;
mod other_modules;
mod package;
mod pages;
mod panics;
mod persistence;
mod protect;
mod pthrottle;
mod quotas;
mod recipes;
mod refusals;
mod replication;
mod reply;
mod scripts;
mod soak;
mod state;
mod take;
mod upgrade;
