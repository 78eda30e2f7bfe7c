#![no_main]

#[path = "check.rs"]
mod check;
#[path = "../../src/decimal.rs"]
mod decimal;
#[path = "../../src/funnel.rs"]
mod funnel;
#[path = "../support/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
