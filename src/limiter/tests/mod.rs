//! Tests of the rule: examples, exhaustive tests of small limiters, and properties with large random numbers. The
//! expected decisions come from the model, which is a second implementation of the rule.

#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod examples;
mod helpers;
mod model;
mod one_quota;
mod several_quotas;
mod small;
