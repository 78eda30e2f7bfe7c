//! What behaves alike on each server and is tested once: pages, packages, scripts, costs, leases, alerts.

mod costs;
mod leases;
mod package;
mod pages;
mod panics;
mod prometheus;
mod scripts;
