//! Random attacks by clients and modules: the server stays up, and decides as a second statement of the rule says.
//!
//! calls.rs and callbacks.rs are two attacks, each on a server of its own. `FUZZ_SEED` and `FUZZ_CALLS` choose another
//! run than the default; the same seed sends the same commands at the same moments.
//! visit.rs has the commands of one moment, made by client.rs; attacked.rs sends them, and computes the right
//! outcome.

mod attacked;
mod callbacks;
mod calls;
mod client;
mod visit;
