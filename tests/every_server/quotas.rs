//! Limiters of several quotas: one call takes from each quota or from none, and says which of them decides.

use redis::{Connection, Value};

use crate::support::aof::AOF;
use crate::support::clock::{Clock, SECOND, START};
use crate::support::replication::replicate;
use crate::support::{Server, command, info, run, snapshot, wait_until};

/// Makes a call of several quotas, and returns its six integers.
fn six(connection: &mut Connection, line: &str) -> [i64; 6] {
    run(connection, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Returns the TATs that a key holds.
fn tats(connection: &mut Connection, key: &str) -> Vec<i64> {
    let text: String = run(connection, &format!("GET {key}")).unwrap();
    text.as_bytes().chunks(19).map(|tat| str::from_utf8(tat).unwrap().parse().unwrap()).collect()
}

/// 3 at once and 1 a second; 5 at once and 5 an hour.
const PLAN: &str = "2 1 1 1 4 5 3600";

#[test]
fn the_quota_that_limits_decides_and_nothing_is_taken() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let call = format!("CL.THROTTLE user123 {PLAN}");
    assert_eq!(six(&mut connection, &call), [0, 3, 2, -1, 1, 1]);
    assert_eq!(six(&mut connection, &call), [0, 3, 1, -1, 2, 1]);
    assert_eq!(six(&mut connection, &call), [0, 3, 0, -1, 3, 1]);
    assert_eq!(six(&mut connection, &call), [1, 3, 0, 1, 3, 1]);
    // Each quota has two tokens now. The first of equals decides.
    clock.set(START + 2 * SECOND);
    assert_eq!(six(&mut connection, &call), [0, 3, 1, -1, 2, 1]);
    assert_eq!(six(&mut connection, &call), [0, 3, 0, -1, 3, 1]);
    // Both quotas limit now, the second for longer.
    assert_eq!(six(&mut connection, &call), [1, 5, 0, 718, 3598, 2]);
    clock.set(START + 5 * SECOND);
    let before = snapshot(&mut connection);
    assert_eq!(six(&mut connection, &call), [1, 5, 0, 715, 3595, 2]);
    assert_eq!(snapshot(&mut connection), before);
    // Neither quota can ever allow nine tokens. The first of equals decides.
    assert_eq!(six(&mut connection, "CL.THROTTLE new 2 1 1 9 4 5 3600"), [1, 3, 3, -1, 0, 1]);
}

#[test]
fn the_state_is_the_tat_of_each_quota_and_expires_with_the_last() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    for (call, expected) in [
        (format!("CL.THROTTLE key {PLAN}"), vec![START + SECOND, START + 720 * SECOND]),
        // A call of one quota leaves the other's TAT.
        ("CL.THROTTLE key 2 1 1 2".into(), vec![START + 3 * SECOND, START + 720 * SECOND]),
        // A further quota begins full.
        ("CL.CHARGE key 2 1 1 1 4 5 3600 9 1 60".into(), [4, 1440, 60].map(|wait| START + wait * SECOND).into()),
        // A call of two quotas leaves the TAT of the third.
        ("CL.THROTTLE key 9 1 1 2 4 5 3600".into(), [6, 2880, 60].map(|wait| START + wait * SECOND).into()),
        // The call gives back to each quota, but never more than was taken.
        ("CL.THROTTLE key 2 1 1 -4 4 5 3600 9 1 60".into(), [2, 0, 0].map(|wait| START + wait * SECOND).into()),
    ] {
        run::<Value>(&mut connection, &call).unwrap();
        assert_eq!(tats(&mut connection, "key"), expected, "{call}");
        let last = expected.iter().max().unwrap();
        let expiry: i64 = run(&mut connection, "PTTL key").unwrap();
        let milliseconds = (last - START / 1_000_000 * 1_000_000 + 999_999) / 1_000_000;
        assert!((expiry - milliseconds).abs() <= 1, "{call}: {expiry} of {milliseconds} ms");
    }
    assert_eq!(six(&mut connection, "CL.CHARGE key 2 1 1 -2 4 5 3600"), [0, 3, 3, -1, 0, 1]);
    assert_eq!(run::<i64>(&mut connection, "EXISTS key").unwrap(), 0);
    assert_eq!(six(&mut connection, "CL.THROTTLE key 2 1 1 -2 4 5 3600"), [0, 3, 3, -1, 0, 1]);
    assert_eq!(run::<i64>(&mut connection, "EXISTS key").unwrap(), 0);
}

#[test]
fn each_way_of_taking_has_its_own_answer() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    for (call, expected) in [
        // A take gets the tokens of the emptiest quota.
        ("CL.TAKE take 9 1 1 4 2 1 60", [3, 3, 0, 60, 180, 2]),
        ("CL.TAKE take 9 1 1 4 2 1 60", [0, 3, 0, 60, 180, 2]),
        ("CL.TAKE none 9 1 1 4 -1 1 60", [0, 0, 0, -1, 0, 2]),
        ("CL.PTAKE ptake 9 1 1 4 8 1 60", [4, 9, 5, -1, 240, 2]),
        // A charge always takes from both quotas: here one is in debt afterwards, and the other is not.
        ("CL.CHARGE charge 9 1 1 4 2 1 60", [1, 3, 0, 60, 240, 2]),
        ("CL.CHARGE charge 9 1 1 7 2 1 60", [1, 3, 0, 480, 660, 2]),
        ("CL.PCHARGE pcharge 9 1 1 2 2 1 60", [0, 3, 1, -1, 120, 2]),
        // A look takes nothing.
        ("CL.LOOK charge 9 1 1 1 2 1 60", [1, 3, 0, 540, 660, 2]),
        ("CL.LOOK charge 9 1 1 0 2 1 60", [1, 3, 0, 480, 660, 2]),
        ("CL.PLOOK new 9 1 1 3 2 1 60", [0, 3, 3, -1, 0, 2]),
        ("CL.LOOK new 9 1 1 3 1 1 60", [1, 2, 2, -1, 0, 2]),
        // A quantity that can never pass counts as the longest wait.
        ("CL.THROTTLE charge 2 1 1 4 2 1 60", [1, 3, 0, -1, 11, 1]),
    ] {
        assert_eq!(six(&mut connection, call), expected, "{call}");
    }
}

/// A call is replicated as one SET.
#[test]
fn a_replica_and_the_file_hold_the_primarys_bytes() {
    let mut server = Server::start_with(&AOF);
    let replica = Server::start_bare(&[]);
    replicate(&replica, &server);
    let mut connection = server.connect();
    for line in [
        "CL.THROTTLE one 9 1 60 1 99 1 3600",
        "CL.THROTTLE one 9 1 60",
        "CL.TAKE two 9 1 60 3 1 1 3600 9 9 9",
        "CL.CHARGE two 9 1 60 30",
        "CL.THROTTLE three 9 1 60 2 99 1 3600",
        "CL.THROTTLE three 9 1 60 -9 99 1 3600",
        "CL.MTHROTTLE one 9 1 60 1 two 99 1 60 1",
    ] {
        run::<Value>(&mut connection, line).unwrap();
    }
    let state = snapshot(&mut connection);
    assert_eq!(state.len(), 2);
    wait_until("the replica holds the state", || snapshot(&mut replica.connect()) == state);
    let stats: String = run(&mut replica.connect(), "INFO commandstats").unwrap();
    assert!(stats.contains("cmdstat_set:calls=7") && !stats.contains("cl."), "{stats}");
    server.restart();
    assert_eq!(snapshot(&mut server.connect()), state);
    assert_eq!(info(&mut server.connect(), "role"), "master");
}

#[test]
fn a_key_is_restored_and_migrated_whole() {
    let [server, other] = [(); 2].map(|()| Server::start());
    let mut connection = server.connect();
    six(&mut connection, "CL.THROTTLE key 9 1 60 3 99 1 3600");
    let held = tats(&mut connection, "key");
    let dump: Vec<u8> = run(&mut connection, "DUMP key").unwrap();
    let left: i64 = run(&mut connection, "PTTL key").unwrap();
    redis::cmd("RESTORE").arg("copy").arg(left).arg(dump).exec(&mut connection).unwrap();
    assert_eq!(tats(&mut connection, "copy"), held);
    run::<()>(&mut connection, &format!("MIGRATE 127.0.0.1 {} key 0 5000", other.port)).unwrap();
    assert_eq!(tats(&mut other.connect(), "key"), held);
    let transaction: Vec<Value> = redis::pipe()
        .atomic()
        .add_command(command("CL.LOOK copy 9 1 60 1 99 1 3600"))
        .add_command(command("CL.LOOK copy 9 1 60"))
        .query(&mut connection)
        .unwrap();
    let lengths = transaction.iter().map(|reply| reply.as_sequence().unwrap().len());
    assert_eq!(lengths.collect::<Vec<_>>(), [6, 5]);
}
