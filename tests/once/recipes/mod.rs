//! The programs in docs/recipes that behave alike on each server.

mod failover;
mod module_or_script;
