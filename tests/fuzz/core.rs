#![no_main]

#[path = "check.rs"]
mod check;
#[path = "../../src/decimal.rs"]
mod decimal;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/funnel.rs"]
mod funnel;
#[path = "../support/model.rs"]
mod model;

/// All that the errors know of the server.
mod redis {
    pub enum ErrorReply {
        WrongArity,
        Text(String),
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
