//! A replica that is promoted after its primary's crash.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crate::support::ledger::Ledger;
use crate::support::replication::{SETTINGS, replicate};
use crate::support::traffic::under_load;
use crate::support::{Server, info, run, snapshot, wait_until};

#[test]
fn a_replica_promoted_after_a_crash_goes_on_from_what_it_was_sent() {
    let mut primary = Server::start_with(&SETTINGS);
    let replica = Server::start_with(&SETTINGS);
    replicate(&replica, &primary);
    let ledgers = Ledger::open_some(&primary, 4);
    let client = primary.client();

    // The tokens that the replica has confirmed to the primary's WAIT.
    let confirmed: [AtomicI64; 4] = Default::default();
    let calls = AtomicUsize::new(0);
    under_load(
        4,
        |number, _| {
            let mut connection = client.get_connection().unwrap();
            let ledger = &ledgers[number];
            while ledger.take(&mut connection).is_ok() {
                if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
                    && run::<i64>(&mut connection, "WAIT 1 5000").is_ok_and(|replicas| replicas == 1)
                {
                    confirmed[number].store(ledger.acknowledged(), Ordering::SeqCst);
                }
            }
        },
        || {
            wait_until("load", || {
                calls.load(Ordering::Relaxed) > 400 && confirmed.iter().all(|calls| calls.load(Ordering::SeqCst) > 1)
            });
            primary.kill();
        },
    );
    wait_until("the replica has read all", || info(&mut replica.connect(), "master_link_status") == "down");
    let mut connection = replica.connect();
    run::<()>(&mut connection, "REPLICAOF NO ONE").unwrap();
    let state = snapshot(&mut connection);
    for (ledger, confirmed) in ledgers.iter().zip(confirmed) {
        let (taken, confirmed) = (ledger.taken(&state), confirmed.into_inner());
        assert!(
            confirmed > 1 && (confirmed..=ledger.acknowledged() + 1).contains(&taken),
            "{taken} taken, {confirmed} confirmed"
        );
        ledger.take(&mut connection).unwrap();
        assert_eq!(ledger.taken(&snapshot(&mut connection)), taken + 1);
    }
}
