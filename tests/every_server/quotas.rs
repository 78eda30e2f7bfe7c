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
