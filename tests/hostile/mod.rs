//! Random attacks by clients: the server stays up, and decides as a second statement of the rule says.
//!
//! `FUZZ_SEED` and `FUZZ_CALLS` choose another run of calls.rs than the default; the same seed sends the same commands at
//! the same moments. visit.rs has the commands of one moment, made by client.rs; attacked.rs sends them, and computes the
//! right outcome.

mod attacked;
mod calls;
mod client;
mod visit;
