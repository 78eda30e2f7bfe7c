//! What the module has to say: the second statement of the rule, in the words of replies and errors.

use redis::{ServerError, Value};

use super::model::{Asked, Change, Refused, Told, Way};

pub const SECOND: i128 = 1_000_000_000;
pub const MILLISECOND: i128 = 1_000_000;

/// The millisecond in which a key with this TAT expires: rounded up, so that it is not gone too early.
pub fn expiry(tat: i128) -> i128 {
    (tat + MILLISECOND - 1) / MILLISECOND
}

/// A limit's integers.
pub const NAMES: [&str; 4] = ["max_burst", "count", "period", "quantity"];

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const NOT_A_STATE: &str = "ERR the key holds no rate limiter state";
pub const TOO_FAST: &str = "ERR count and period allow more than one token per nanosecond";
pub const TOO_LARGE: &str = "ERR max_burst, count and period: the tokens would be back only after the year 2262";

pub const DEBT_TOO_LONG: &str = "ERR quantity: the tokens would be back only after the year 2262";

pub fn arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

pub fn in_group(number: usize, error: String) -> String {
    format!("{error} (group {number})")
}

pub fn same_key(first: usize) -> String {
    format!("ERR key is the same as in group {first}")
}

pub fn not_an_integer(name: &str) -> String {
    format!("ERR {name} is not an integer or out of range")
}

pub fn below_least(name: &str) -> String {
    format!("ERR {name} must be {} or more", least(name, Way::Take).unwrap_or_default())
}

/// None for a quantity that gives back below 0.
pub fn least(name: &str, way: Way) -> Option<i128> {
    match name {
        "max_burst" => Some(-1),
        "count" | "period" => Some(1),
        _ if matches!(way, Way::Throttle | Way::Charge) => None,
        _ => Some(0),
    }
}

/// What a call finds in its key: a TAT, nothing, or something else.
pub type Found = Result<Option<i128>, &'static str>;

/// What a call has to get that is made now and finds this.
pub fn expected(call: &[Vec<u8>], now: i128, found: Found) -> Result<Told, String> {
    let command = Command::of(call);
    if !command.several {
        return match (call.len(), command.way) {
            (6, _) | (5, Way::Throttle | Way::Look) => {
                asked(&call[2..], now, command.way, command.unit)?.told(found?).map_err(text)
            }
            _ => Err(arity(&command.name)),
        };
    }
    let told = expected_of_groups(call, now, |_| found)?;
    told.first().copied().ok_or("no group".into())
}

/// What each group of a `CL.MTHROTTLE` has to get that is made now and finds this in its keys.
pub fn expected_of_groups(call: &[Vec<u8>], now: i128, found: impl Fn(&[u8]) -> Found) -> Result<Vec<Told>, String> {
    let command = Command::of(call);
    if call.len() < 6 {
        return Err(arity(&command.name));
    }
    let groups = call[1..].chunks(5);
    let asked = groups.clone().zip(1..).map(|(group, number)| {
        let missing = ["key", "max_burst", "count", "period", "quantity"].get(group.len());
        let asked = match missing {
            Some(missing) => Err(format!("ERR {missing} is missing")),
            None => asked(&group[1..], now, command.way, command.unit),
        };
        asked.map_err(|error| in_group(number, error))
    });
    let asked = asked.collect::<Result<Vec<Asked>, String>>()?;
    let keys: Vec<&Vec<u8>> = groups.map(|group| &group[0]).collect();
    for (second, key) in keys.iter().enumerate() {
        if let Some(first) = keys[..second].iter().position(|other| other == key) {
            return Err(in_group(second + 1, same_key(first + 1)));
        }
    }
    let found = keys.iter().zip(1..).map(|(key, number)| found(key).map_err(|error| in_group(number, error.into())));
    let found = found.collect::<Result<Vec<_>, String>>()?;
    let told = |asked: &[Asked]| -> Result<Vec<Told>, Refused> {
        let each = asked.iter().zip(&found);
        each.map(|(asked, found)| asked.told(*found)).collect()
    };
    let alone = told(&asked).map_err(text)?;
    if !alone.iter().any(|told| told.limited) {
        return Ok(alone);
    }
    // If one is limited, none takes anything or gives anything back, and the others are not shown as if they refused.
    let looks = asked.iter().map(|asked| Asked { quantity: 0, ..*asked });
    let looks = told(&looks.collect::<Vec<_>>()).map_err(text)?;
    let shown = alone.iter().zip(looks).map(|(alone, look)| match alone.limited {
        true => *alone,
        false => Told { limited: false, retry_after: None, ..look },
    });
    Ok(shown.collect())
}

/// What a call's first word says.
pub struct Command {
    /// In small letters.
    pub name: String,
    pub way: Way,
    /// In nanoseconds.
    pub unit: i128,
    pub several: bool,
}

impl Command {
    pub fn of(call: &[Vec<u8>]) -> Self {
        let name = String::from_utf8_lossy(&call[0]).to_lowercase();
        let (way, unit, several) = match name.as_str() {
            "cl.throttle" => (Way::Throttle, SECOND, false),
            "cl.pthrottle" => (Way::Throttle, MILLISECOND, false),
            "cl.mthrottle" => (Way::Throttle, SECOND, true),
            "cl.mpthrottle" => (Way::Throttle, MILLISECOND, true),
            "cl.charge" => (Way::Charge, SECOND, false),
            "cl.pcharge" => (Way::Charge, MILLISECOND, false),
            "cl.take" => (Way::Take, SECOND, false),
            "cl.ptake" => (Way::Take, MILLISECOND, false),
            "cl.look" => (Way::Look, SECOND, false),
            "cl.plook" => (Way::Look, MILLISECOND, false),
            _ => panic!("{name}"),
        };
        Self { name, way, unit, several }
    }
}

/// The three or four integers of a limit, if they make one.
fn asked(arguments: &[Vec<u8>], now: i128, way: Way, unit: i128) -> Result<Asked, String> {
    let mut integers = [1; 4];
    for ((integer, argument), name) in integers.iter_mut().zip(arguments).zip(NAMES) {
        // The server takes an integer only in the form that it would itself write.
        *integer = std::str::from_utf8(argument)
            .ok()
            .and_then(|text| text.parse::<i64>().ok())
            .filter(|integer| integer.to_string().as_bytes() == argument)
            .ok_or_else(|| not_an_integer(name))?
            .into();
        if least(name, way).is_some_and(|least| *integer < least) {
            return Err(below_least(name));
        }
    }
    let [max_burst, count, period, quantity] = integers;
    let period = period * unit;
    let asked = Asked { way, now, max_burst, count, period, quantity };
    asked.limiter().map_err(text)?;
    Ok(asked)
}

/// The five integers, also those of the only group.
pub fn integers(reply: &Value) -> Option<[i128; 5]> {
    if let Some((limited, groups)) = limited_and_groups(reply) {
        let [group] = groups.try_into().ok()?;
        return Some(group).filter(|group| group[0] == i128::from(limited));
    }
    five(reply)
}

/// Of a `CL.MTHROTTLE`: whether the whole was limited, and each group's five integers.
pub fn limited_and_groups(reply: &Value) -> Option<(bool, Vec<[i128; 5]>)> {
    let Value::Array(items) = reply else {
        return None;
    };
    let (Value::Int(limited @ 0..=1), groups) = items.split_first()? else {
        return None;
    };
    let groups = groups.iter().map(five);
    Some((*limited == 1, groups.collect::<Option<_>>()?))
}

fn five(reply: &Value) -> Option<[i128; 5]> {
    let Value::Array(items) = reply else {
        return None;
    };
    let integers = items.iter().map(|item| match item {
        Value::Int(integer) => Some(i128::from(*integer)),
        _ => None,
    });
    integers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// An error as the server sent it.
pub fn error_text(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

fn text(refused: Refused) -> String {
    match refused {
        Refused::TooFast => TOO_FAST.into(),
        Refused::TooLarge => TOO_LARGE.into(),
        Refused::DebtTooLong => DEBT_TOO_LONG.into(),
    }
}

/// As a reply has it.
pub fn in_units(told: Told, command: &Command) -> [i128; 5] {
    let units = |span: i128| (span + command.unit - 1) / command.unit;
    let first = if command.way == Way::Take { told.taken } else { told.limited.into() };
    [first, told.limit, told.remaining, told.retry_after.map_or(-1, units), units(told.reset_after)]
}

/// What a call has to get, and what becomes of each of its keys.
pub struct Answer {
    /// By the second statement of the rule, of each limiter.
    pub told: Vec<Told>,
    pub reply: Value,
    pub changes: Vec<(Vec<u8>, Change)>,
}

/// The answer to a call that is made now and finds this in its keys, or its error.
pub fn answer(call: &[Vec<u8>], now: i128, found: impl Fn(&[u8]) -> Found) -> Result<Answer, String> {
    let command = Command::of(call);
    let told = match command.several {
        true => expected_of_groups(call, now, found)?,
        false => vec![expected(call, now, call.get(1).map_or(Ok(None), |key| found(key)))?],
    };
    let integer = |integer| Value::Int(i64::try_from(integer).unwrap());
    let five = |told: &Told| Value::Array(in_units(*told, &command).map(integer).into());
    let mut reply: Vec<Value> = told.iter().map(five).collect();
    let reply = match command.several {
        true => {
            reply.insert(0, integer(told.iter().any(|told| told.limited).into()));
            Value::Array(reply)
        }
        false => reply.remove(0),
    };
    let keys = call[1..].iter().step_by(if command.several { 5 } else { call.len() });
    let changes = keys.cloned().zip(told.iter().map(|told| told.change)).collect();
    Ok(Answer { told, reply, changes })
}
