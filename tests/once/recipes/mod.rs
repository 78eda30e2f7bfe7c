//! The programs in docs/recipes that behave alike on each server.

mod ban;
mod calendar_quota;
mod failover;
mod fairness;
mod fake;
mod gateway;
mod module_or_script;
mod names;
mod reservation;
mod shadow;
mod waiting;
