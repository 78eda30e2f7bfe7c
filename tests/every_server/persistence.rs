//! The state after a restart or a crash, from the append-only file and from snapshots.

use std::thread::sleep;
use std::time::Duration;

use crate::support::aof::AOF;
use crate::support::ledger::Ledger;
use crate::support::traffic::under_load;
use crate::support::{Server, info, run, snapshot, wait_until};

const CLIENTS: usize = 4;

#[test]
#[ignore = "slow: crashes"]
fn appendfsync_always_loses_no_acknowledged_call_in_20_crashes() {
    let mut server = Server::start_with(&[&AOF[..], &["--appendfsync", "always"]].concat());
    let ledgers = Ledger::open_some(&server, CLIENTS);
    for crash in 0..20 {
        let before = acknowledged(&ledgers);
        crash_under_load(&mut server, &ledgers, |server| {
            // Half of the crashes are in the middle of a rewrite, or just after it.
            if crash % 2 == 0 {
                run::<()>(&mut server.connect(), "BGREWRITEAOF").unwrap();
            }
            wait_for_load(&ledgers, &before);
            sleep(Duration::from_millis(crash * 5));
        });
        let state = snapshot(&mut server.connect());
        for (ledger, before) in ledgers.iter().zip(before) {
            let (taken, acknowledged) = (ledger.taken(&state), ledger.acknowledged());
            assert!(acknowledged > before, "no load");
            assert!((acknowledged..=acknowledged + 1).contains(&taken), "{taken} taken, {acknowledged} acknowledged");
            ledger.settle(taken);
        }
    }
}

#[test]
fn a_background_snapshot_under_load_holds_the_states_of_one_moment() {
    let mut server = Server::start();
    let ledgers = Ledger::open_some(&server, CLIENTS);
    let (before, after) = crash_under_load(&mut server, &ledgers, |server| {
        let mut connection = server.connect();
        let before = acknowledged(&ledgers);
        wait_for_load(&ledgers, &before);
        let before = acknowledged(&ledgers);
        run::<()>(&mut connection, "BGSAVE").unwrap();
        let after = acknowledged(&ledgers);
        wait_until("the snapshot is done", || info(&mut connection, "rdb_bgsave_in_progress") == "0");
        wait_for_load(&ledgers, &after);
        (before, after)
    });
    let state = snapshot(&mut server.connect());
    for (ledger, (before, after)) in ledgers.iter().zip(before.into_iter().zip(after)) {
        let taken = ledger.taken(&state);
        assert!((before..=after + 1).contains(&taken), "{taken}, not {before} to {after}");
        assert!(before > 1 && ledger.acknowledged() > taken, "no load");
    }
}

/// Lets each client call a limiter of its own until `body` is over and the server is killed; then restarts the server.
fn crash_under_load<T>(server: &mut Server, ledgers: &[Ledger], body: impl FnOnce(&Server) -> T) -> T {
    let client = server.client();
    let (answer, _) = under_load(
        CLIENTS,
        |number, _| {
            let mut connection = client.get_connection().unwrap();
            while ledgers[number].take(&mut connection).is_ok() {}
        },
        || {
            let before = acknowledged(ledgers);
            let answer = body(server);
            wait_for_load(ledgers, &before);
            server.kill();
            answer
        },
    );
    server.restart();
    answer
}

/// Waits until every client has made some more calls than these.
fn wait_for_load(ledgers: &[Ledger], calls: &[i64]) {
    wait_until("load", || {
        let more = acknowledged(ledgers);
        more.iter().zip(calls).all(|(more, calls)| *more > calls + 2)
    });
}

fn acknowledged(ledgers: &[Ledger]) -> Vec<i64> {
    ledgers.iter().map(Ledger::acknowledged).collect()
}
