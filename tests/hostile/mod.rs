//! Random attacks: the server must stay up, and decide every call as the model does.
//!
//! The test is in three files: calls.rs chooses each batch and its moment, client.rs makes the commands, and target.rs
//! sends them and compares the outcome with the expected one. `FUZZ_SEED` selects the commands and their moments, and
//! `FUZZ_CALLS` the number of calls. The same seed sends the same commands at the same moments.

mod calls;
mod client;
mod target;
