//! The programs in docs/recipes that behave alike on each server.

mod failover;
