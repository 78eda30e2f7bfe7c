//! Hostile clients and modules, at random: the server stays up, and does what a second statement of the rule says.
//!
//! calls.rs, callbacks.rs, real_clock.rs and two_programs.rs each say what they attack: the keys of a server of their own. `FUZZ_SEED`
//! and `FUZZ_CALLS` choose another run than that of `cargo test`; the same seed sends the same commands at the same
//! moments. visit.rs is what is sent at a moment, made by support/hostile.rs; attacked.rs sends it, and knows what has to
//! come of it. tests/fuzz attacks the rule without a server.

mod attacked;
mod callbacks;
mod calls;
mod real_clock;
mod two_programs;
mod visit;
