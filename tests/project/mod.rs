//! What is the same on every server, and so is tested on one: pages, packages, scripts, costs, leases, alerts.

mod costs;
mod installing;
mod leases;
mod package;
mod pages;
mod panics;
mod prometheus;
mod scripts;
