//! The replies and errors that the module has to send, computed from the second statement of the rule.

use redis::Value;

use super::commands::{Command, MILLISECOND};
use super::model::{Asked, Change, Refused, Told, Way, told_together};

/// Returns the millisecond in which a key with this TAT expires: rounded up, so that the key is not gone too early.
pub fn expiry(tat: i128) -> i128 {
    (tat + MILLISECOND - 1) / MILLISECOND
}

/// Returns the text in which a key holds the TATs of its quotas.
pub fn state(tats: &[i128]) -> Vec<u8> {
    tats.iter().flat_map(|tat| format!("{tat:019}").into_bytes()).collect()
}

/// The names of the integers of a call.
pub const NAMES: [&str; 4] = ["max_burst", "count", "period", "quantity"];

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const NOT_A_STATE: &str = "ERR the key holds no rate limiter state";

/// The error for a key that Valkey 9.2 does not open for writing while it saves the key.
pub const TRY_AGAIN: &str = "TRYAGAIN the key cannot be read or written at this moment";

pub const MOST_QUOTAS: usize = 8;

/// The beginning of the server's own error.
pub const ARITY: &str = "ERR wrong number of arguments";

pub fn in_group(number: usize, error: String) -> String {
    format!("{error} (group {number})")
}

fn in_quota(number: usize, error: String) -> String {
    format!("{error} (quota {number})")
}

/// Returns the least value that the argument may have; `None` for a quantity that may be negative and then gives back.
pub fn least(name: &str, way: Way) -> Option<i128> {
    match name {
        "max_burst" => Some(-1),
        "count" | "period" => Some(1),
        _ if matches!(way, Way::Throttle | Way::Charge) => None,
        _ => Some(0),
    }
}

/// The content of a key: the TATs of its quotas, empty for a full limiter; or the error that another content gets.
pub type Found = Result<Vec<i128>, &'static str>;

/// The expected reply of a call, and the expected change of each of its keys.
pub struct Answer {
    /// The decision on each limiter, by the second statement of the rule.
    pub told: Vec<Told>,
    pub reply: Value,
    pub changes: Vec<(Vec<u8>, Change<Vec<i128>>)>,
}

/// Returns the expected answer to a call at this moment on keys with this content, or the expected error.
pub fn answer(call: &[Vec<u8>], now: i128, found: impl Fn(&[u8]) -> Found) -> Result<Answer, String> {
    let command = Command::of(call);
    let limiters = limiters(command, call, now)?;
    let several = command.takes_several_keys();
    let decide = |quotas: &[Asked], tats: &[i128]| {
        let refused = |(refused, number)| if number == 1 { text(refused) } else { in_quota(number, text(refused)) };
        told_together(quotas, tats).map_err(refused)
    };
    let (mut states, mut joints) = (Vec::new(), Vec::new());
    for (limiter, number) in limiters.iter().zip(1..) {
        let place = |error: &str| if several { in_group(number, error.into()) } else { error.into() };
        let tats = found(&limiter.key).map_err(place)?;
        joints.push(decide(&limiter.quotas, &tats)?);
        states.push(tats);
    }
    let limited = joints.iter().any(|joint| joint.told.limited);
    if several && limited {
        // The limiters stay as they are, and those that would have allowed the call report what they hold.
        for ((joint, limiter), tats) in joints.iter_mut().zip(&limiters).zip(&states) {
            joint.change = Change::Nothing;
            if !joint.told.limited {
                let look = Asked { quantity: 0, ..limiter.quotas[0] };
                joint.told = Told { limited: false, retry_after: None, ..decide(&[look], tats)?.told };
            }
        }
    }

    let array = |integers: &[i128]| Value::Array(integers.iter().map(|&integer| Value::Int(integer as i64)).collect());
    let replies = joints.iter().zip(&limiters).map(|(joint, limiter)| {
        let number = (limiter.quotas.len() > 1).then_some(joint.quota as i128);
        array(&in_units(joint.told, command).into_iter().chain(number).collect::<Vec<_>>())
    });
    let mut replies: Vec<Value> = replies.collect();
    let reply = match several {
        true => Value::Array([vec![Value::Int(limited.into())], replies].concat()),
        false => replies.remove(0),
    };
    let changes = limiters.iter().zip(&joints).map(|(limiter, joint)| (limiter.key.clone(), joint.change.clone()));
    let told = joints.iter().map(|joint| joint.told).collect();
    Ok(Answer { told, reply, changes: changes.collect() })
}

/// The arguments of a call that concern one limiter.
struct Limiter {
    key: Vec<u8>,
    quotas: Vec<Asked>,
}

/// Parses the limiters of a call.
fn limiters(command: &Command, call: &[Vec<u8>], now: i128) -> Result<Vec<Limiter>, String> {
    if !command.takes_several_keys() {
        // The words are the command, the key, a quota, the quantity, and further quotas.
        let (further, rest) = call.get(6..).unwrap_or_default().as_chunks::<3>();
        let least = if command.has_optional_quantity() { 5 } else { 6 };
        if call.len() < least || !rest.is_empty() {
            return Err(ARITY.into());
        }
        if further.len() >= MOST_QUOTAS {
            return Err(format!("ERR a limiter has at most {MOST_QUOTAS} quotas"));
        }
        let mut quotas = vec![asked(&call[2..call.len().min(6)], now, command)?];
        for (quota, number) in further.iter().zip(2..) {
            let asked = asked(&[quota, &call[5..6]].concat(), now, command);
            quotas.push(asked.map_err(|error| in_quota(number, error))?);
        }
        return Ok(vec![Limiter { key: call[1].clone(), quotas }]);
    }
    if call.len() < 6 {
        return Err(ARITY.into());
    }
    let groups = call[1..].chunks(5).zip(1..).map(|(group, number)| {
        let missing = ["key", "max_burst", "count", "period", "quantity"].get(group.len());
        let asked = match missing {
            Some(missing) => Err(format!("ERR {missing} is missing")),
            None => asked(&group[1..], now, command),
        };
        let quotas = vec![asked.map_err(|error| in_group(number, error))?];
        Ok(Limiter { key: group[0].clone(), quotas })
    });
    let groups = groups.collect::<Result<Vec<_>, String>>()?;
    for (second, limiter) in groups.iter().enumerate() {
        if let Some(first) = groups[..second].iter().position(|other| other.key == limiter.key) {
            return Err(in_group(second + 1, format!("ERR key is the same as in group {}", first + 1)));
        }
    }
    Ok(groups)
}

/// Reads a quota and the quantity, if it is given.
fn asked(arguments: &[Vec<u8>], now: i128, &Command { way, unit, .. }: &Command) -> Result<Asked, String> {
    let mut integers = [1; 4];
    for ((integer, argument), name) in integers.iter_mut().zip(arguments).zip(NAMES) {
        // The server accepts an integer only in the form that it would write itself.
        *integer = std::str::from_utf8(argument)
            .ok()
            .and_then(|text| text.parse::<i64>().ok())
            .filter(|integer| integer.to_string().as_bytes() == argument)
            .ok_or_else(|| format!("ERR {name} is not an integer or out of range"))?
            .into();
        if let Some(least) = least(name, way).filter(|least| *integer < *least) {
            return Err(format!("ERR {name} must be {least} or more"));
        }
    }
    let [max_burst, count, period, quantity] = integers;
    let period = period * unit;
    let asked = Asked { way, now, max_burst, count, period, quantity };
    asked.possible().map_err(text)?;
    Ok(asked)
}

fn text(refused: Refused) -> String {
    match refused {
        Refused::TooFast => "ERR count and period allow more than one token per nanosecond",
        Refused::TooLarge => "ERR max_burst, count and period: the tokens would be back only after the year 2262",
        Refused::DebtTooLong => "ERR quantity: the tokens would be back only after the year 2262",
    }
    .into()
}

/// Converts a decision to the five integers of a reply, in the command's unit.
fn in_units(told: Told, command: &Command) -> [i128; 5] {
    let units = |span: i128| (span + command.unit - 1) / command.unit;
    let first = if command.way == Way::Take { told.taken } else { told.limited.into() };
    [first, told.limit, told.remaining, told.retry_after.map_or(-1, units), units(told.reset_after)]
}
