//! Computes the reply that a call must get and the state that it must leave, using the model of the rule.

use redis::Value;

use super::commands::{Command, MILLISECOND};
use super::model::{Call, Decision, Error, Quota, Taking, Verdict};

/// Returns the expiry of a key with this TAT, in ms since the epoch. The expiry is rounded up, so that no key expires
/// early.
pub fn expiry(tat: i128) -> i128 {
    (tat + MILLISECOND - 1) / MILLISECOND
}

/// Returns the text that a key with these TATs holds.
pub fn text(tats: &[i128]) -> Vec<u8> {
    tats.iter().flat_map(|tat| format!("{tat:019}").into_bytes()).collect()
}

/// The names of a call's integer arguments.
pub const NAMES: [&str; 4] = ["max_burst", "count", "period", "quantity"];

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const NOT_A_STATE: &str = "ERR the key holds no rate limiter state";

/// The error for a key that Valkey 9.2 does not open for writing while it saves the key.
pub const TRY_AGAIN: &str = "TRYAGAIN the key cannot be read or written at this moment";

pub const MAX_QUOTAS: usize = 8;

/// The beginning of the server's own error for a wrong number of arguments.
pub const ARITY: &str = "ERR wrong number of arguments";

pub fn in_group(number: usize, error: &str) -> String {
    format!("{error} (group {number})")
}

fn in_quota(number: usize, error: &str) -> String {
    if number == 1 { error.into() } else { format!("{error} (quota {number})") }
}

/// Returns the smallest valid value of an argument, or `None` for a quantity that may be negative (a refund).
pub fn least(name: &str, taking: Taking) -> Option<i128> {
    match name {
        "max_burst" => Some(-1),
        "count" | "period" => Some(1),
        _ if matches!(taking, Taking::AllOrNone | Taking::Always) => None,
        _ => Some(0),
    }
}

/// The state of a key: its TATs (none if the key does not exist), or the error if it holds any other value.
pub type State = Result<Vec<i128>, &'static str>;

/// The expected outcome of a call.
pub struct Expected {
    pub reply: Value,
    pub limited: bool,
    /// The key of each limiter, and that limiter's decision.
    pub decisions: Vec<(Vec<u8>, Decision)>,
}

/// Returns the expected outcome of a call at `now`, or the expected error. `state` returns the state of a key.
pub fn expected(call: &[Vec<u8>], now: i128, state: impl Fn(&[u8]) -> State) -> Result<Expected, String> {
    let command = Command::of(call);
    let limiters = limiters(command, call, now)?;
    let several = command.takes_several_keys();
    let decide = |taking| {
        let decisions = limiters.iter().zip(1..).map(|(Limiter { key, quotas, quantity }, number)| {
            let tats = state(key).map_err(|error| if several { in_group(number, error) } else { error.into() })?;
            let quantity = if taking == command.taking { *quantity } else { 0 };
            let decision = Call { taking, now, quantity }.decide(quotas, &tats);
            decision.map_err(|(error, number)| in_quota(number, text_of(error)))
        });
        decisions.collect::<Result<Vec<_>, String>>()
    };
    let mut decisions = decide(command.taking)?;
    let limited = decisions.iter().any(|decision| decision.verdict.limited);
    if several && limited {
        // A limiter that allows the call, although other limiters limit it, reports what it holds.
        for (decision, untouched) in decisions.iter_mut().zip(decide(Taking::UpTo)?) {
            if !decision.verdict.limited {
                *decision = untouched;
            }
        }
    }

    let array =
        |integers: Vec<i128>| Value::Array(integers.iter().map(|integer| Value::Int(*integer as i64)).collect());
    let units = |span: i128| (span + command.unit - 1) / command.unit;
    let replies = decisions.iter().zip(&limiters).map(|(decision, limiter)| {
        let Verdict { limited, taken, limit, remaining, retry_after, reset_after } = decision.verdict;
        let first = if command.taking == Taking::UpTo { taken } else { limited.into() };
        let mut integers = vec![first, limit, remaining, retry_after.map_or(-1, units), units(reset_after)];
        if limiter.quotas.len() > 1 {
            integers.push(decision.quota as i128);
        }
        array(integers)
    });
    let mut replies: Vec<Value> = replies.collect();
    if several {
        replies.insert(0, Value::Int(limited.into()));
    }
    let reply = if several { Value::Array(replies) } else { replies.remove(0) };
    let keys = limiters.into_iter().map(|limiter| limiter.key);
    Ok(Expected { reply, limited, decisions: keys.zip(decisions).collect() })
}

/// The arguments of a call that concern one limiter.
struct Limiter {
    key: Vec<u8>,
    quotas: Vec<Quota>,
    quantity: i128,
}

fn limiters(command: &Command, call: &[Vec<u8>], now: i128) -> Result<Vec<Limiter>, String> {
    if !command.takes_several_keys() {
        // The words are the command, the key, a quota, the quantity, and the other quotas.
        let (rest, odd) = call.get(6..).unwrap_or_default().as_chunks::<3>();
        let least = if command.has_optional_quantity() { 5 } else { 6 };
        if call.len() < least || !odd.is_empty() {
            return Err(ARITY.into());
        }
        if rest.len() >= MAX_QUOTAS {
            return Err(format!("ERR a limiter has at most {MAX_QUOTAS} quotas"));
        }
        let (first, quantity) = quota_and_quantity(&call[2..call.len().min(6)], now, command)?;
        let mut quotas = vec![first];
        for (quota, number) in rest.iter().zip(2..) {
            let (quota, _) = quota_and_quantity(quota, now, command).map_err(|error| in_quota(number, &error))?;
            quotas.push(quota);
        }
        return Ok(vec![Limiter { key: call[1].clone(), quotas, quantity }]);
    }
    if call.len() < 6 {
        return Err(ARITY.into());
    }
    let limiters = call[1..].chunks(5).zip(1..).map(|(group, number)| {
        let (quota, quantity) = match ["key", "max_burst", "count", "period", "quantity"].get(group.len()) {
            Some(missing) => Err(format!("ERR {missing} is missing")),
            None => quota_and_quantity(&group[1..], now, command),
        }
        .map_err(|error| in_group(number, &error))?;
        Ok(Limiter { key: group[0].clone(), quotas: vec![quota], quantity })
    });
    let limiters = limiters.collect::<Result<Vec<_>, String>>()?;
    for (second, limiter) in limiters.iter().enumerate() {
        if let Some(first) = limiters[..second].iter().position(|other| other.key == limiter.key) {
            return Err(in_group(second + 1, &format!("ERR key is the same as in group {}", first + 1)));
        }
    }
    Ok(limiters)
}

/// Parses a quota and, if the call has one, the quantity.
fn quota_and_quantity(arguments: &[Vec<u8>], now: i128, command: &Command) -> Result<(Quota, i128), String> {
    let mut integers = [1; 4];
    for ((integer, argument), name) in integers.iter_mut().zip(arguments).zip(NAMES) {
        // The server accepts an integer only in the form in which it would write that integer itself.
        *integer = std::str::from_utf8(argument)
            .ok()
            .and_then(|text| text.parse::<i64>().ok())
            .filter(|integer| integer.to_string().as_bytes() == argument)
            .ok_or_else(|| format!("ERR {name} is not an integer or out of range"))?
            .into();
        if let Some(least) = least(name, command.taking).filter(|least| *integer < *least) {
            return Err(format!("ERR {name} must be {least} or more"));
        }
    }
    let [max_burst, count, period, quantity] = integers;
    let quota = Quota { max_burst, count, period: period * command.unit };
    quota.at(now).map_err(text_of)?;
    Ok((quota, quantity))
}

fn text_of(error: Error) -> &'static str {
    match error {
        Error::TooFast => "ERR count and period allow more than one token per nanosecond",
        Error::TooLarge => "ERR max_burst, count and period: the tokens would not be back before the year 2262",
        Error::DebtTooLong => "ERR quantity: the tokens would not be back before the year 2262",
    }
}
