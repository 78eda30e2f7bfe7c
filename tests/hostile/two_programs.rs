//! Two versions of a program call on one key, and one has a second quota: each is decided by its own quotas.

use super::visit::{Text, packed};
use crate::support::clock::{Clock, START};
use crate::support::expected::{MILLISECOND, SECOND, expiry, state};
use crate::support::hostile::{Bytes, Command, words};
use crate::support::model::{Asked, Change, Told, Way};
use crate::support::random::Random;
use crate::support::setting;

#[test]
fn an_old_program_with_one_quota_and_a_new_one_with_two_share_a_key() {
    let seed = setting("FUZZ_SEED", 1);
    let mut random = Random::new(seed);
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let (mut now, mut tats, mut limited_by) = (i128::from(START), [None; 2], [0; 2]);
    for _ in 0..500 {
        now += i128::from(random.of_any_length() % 5_000_000_000);
        clock.set(now as i64);
        if tats.iter().flatten().all(|&tat| expiry(tat) < now / MILLISECOND) {
            tats = [None; 2];
        }
        let calls: Vec<(bool, usize)> = (0..20).map(|_| (random.one_in(2), random.below(4))).collect();
        let command = |&(new, quantity): &(bool, usize)| -> Command {
            let old = ["CL.THROTTLE", "key", "9", "10", "1", &quantity.to_string()];
            words(&[&old[..], if new { &["29", "60", "60"] } else { &[] }].concat())
        };
        let commands = calls.iter().map(command).chain([words(&["GET", "key"])]);
        connection.send_packed_command(&packed(commands)).unwrap();
        for (new, quantity) in calls {
            let reply: Vec<i128> = redis::from_redis_value(connection.recv_response().unwrap()).unwrap();
            let quota = |max_burst, count, seconds: i128| Asked {
                way: Way::Throttle,
                now,
                max_burst,
                count,
                period: seconds * SECOND,
                quantity: quantity as i128,
            };
            let quotas = if new { vec![quota(9, 10, 1), quota(29, 60, 60)] } else { vec![quota(9, 10, 1)] };
            let told: Vec<Told> = quotas.iter().zip(tats).map(|(quota, tat)| quota.told(tat).unwrap()).collect();
            let limited = told.iter().any(|told| told.limited);
            let call = format!("FUZZ_SEED={seed}, by {quotas:?} on {tats:?}: {reply:?}, {told:?}");
            assert_eq!(reply[0], i128::from(limited), "{call}");
            // The index of the quota that decides.
            let by = reply.get(5).map_or(0, |number| *number as usize - 1);
            assert_eq!((reply[1], reply.len()), (told[by].limit, if new { 6 } else { 5 }), "{call}");
            assert_eq!((told[by].limited, new || by == 0), (limited, true), "{call}");
            limited_by[by] += usize::from(limited);
            for (tat, told) in tats.iter_mut().zip(told).filter(|_| !limited) {
                if let Change::Store(new) = told.change {
                    *tat = Some(new);
                }
            }
        }
        let text: Option<Bytes> = redis::from_redis_value(connection.recv_response().unwrap()).unwrap();
        let tats: Vec<i128> = tats.into_iter().flatten().collect();
        let expected = Some(tats).filter(|tats| !tats.is_empty()).map(|tats| Text(state(&tats)));
        assert_eq!(text.map(Text), expected, "FUZZ_SEED={seed}, at {now}");
    }
    assert!(limited_by.iter().all(|&times| times > 200), "{limited_by:?}");
}
