//! Random attacks: the server stays up, and decides every call as the model does.
//!
//! This is one test in three files: calls.rs chooses each batch and its moment, client.rs makes its commands, and
//! target.rs sends them and compares the outcome with the expected one. `FUZZ_SEED` and `FUZZ_CALLS` choose another
//! run; the same seed sends the same commands at the same moments.

mod calls;
mod client;
mod target;
