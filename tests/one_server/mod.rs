//! Examples, pages, packages and scripts, which behave alike on each server: `scripts/test` runs these tests once.

mod costs;
mod leases;
mod monitoring;
mod package;
mod pages;
mod panics;
mod runs;
mod scripts;
