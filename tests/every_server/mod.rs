//! Tests of promises that hold on every server. `scripts/test` runs these tests on each server.

mod access;
mod cluster;
mod listeners;
mod loading;
mod look;
mod monitoring;
mod moving;
mod operating;
mod other_modules;
mod pages;
mod persistence;
mod refusals;
mod reply;
mod soak;
mod upgrade;
