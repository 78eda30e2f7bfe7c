#![no_main]

#[path = "../../src/limiter/check.rs"]
mod check;
#[path = "../../src/decimal.rs"]
mod decimal;
#[path = "../../src/funnel.rs"]
mod funnel;
#[path = "../../src/limiter.rs"]
mod limiter;
#[path = "../../src/funnel/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
