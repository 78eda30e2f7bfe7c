//! Tests that run on one server only, because the result would be the same on all: pages, packages, scripts, costs,
//! alerts.

mod costs;
mod installing;
mod package;
mod pages;
mod panics;
mod prometheus;
mod scripts;
