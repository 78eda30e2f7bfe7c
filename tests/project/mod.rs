//! Tests that run on only one server, because the result would be the same on all servers: pages, packages, scripts,
//! costs and alerts.

mod costs;
mod installing;
mod package;
mod pages;
mod panics;
mod prometheus;
mod scripts;
