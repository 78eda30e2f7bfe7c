//! What is the same on every server, and so is tested on one: pages, packages, scripts, costs, alerts.

mod costs;
mod installing;
mod package;
mod pages;
mod panics;
mod prometheus;
mod scripts;
