//! Random attacks by clients: the server stays up, and decides as a second statement of the rule says.
//!
//! `FUZZ_SEED` and `FUZZ_CALLS` choose another run of calls.rs than the default; the same seed sends the same commands
//! at the same moments. calls.rs chooses a visit and its moment, client.rs makes its commands, and visit.rs gives them the
//! form in which they are sent; attacked.rs sends them, and computes the right outcome.

mod attacked;
mod calls;
mod client;
mod visit;
