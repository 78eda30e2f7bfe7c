//! docs/budgets/reservation.lua: each call is charged once while answers are lost, servers killed and slots moved.

use std::collections::BTreeMap;
use std::fs;

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::needs::needs;
use crate::support::random::Random;
use crate::support::recipes::START;
use crate::support::replication::{catch_up, replicate};
use crate::support::reservations::{QUOTAS, RESERVE, integer, live_through, load};
use crate::support::{Server, command, error_of, run, wait_until};

/// Sends a line, and does not wait for the answer.
fn send(server: &Server, line: &str) {
    server.connect().send_packed_command(&command(line).get_packed_command()).unwrap();
}

#[test]
#[ignore = "slow: thousands of calls"]
fn calls_lost_late_and_repeated_are_those_of_a_model_through_kills_with_an_aof() {
    needs!("functions, Redis 7");
    let (clock, mut server) = Clock::start_with(START, &["--appendonly", "yes", "--appendfsync", "always"]);
    let (connection, mut random) = (load(&server), Random::new(7));
    live_through(&[&clock], connection, 6_000, |_, line| {
        random.one_in(300).then(|| {
            send(&server, line);
            server.restart();
            server.connect()
        })
    });
}

#[test]
#[ignore = "slow: thousands of calls"]
fn calls_lost_late_and_repeated_are_those_of_a_model_through_failovers() {
    needs!("functions, Redis 7");
    let [(clock, primary), (other_clock, replica)] = [(); 2].map(|()| Clock::start(START));
    let connection = load(&primary);
    replicate(&replica, &primary);
    let mut pair = [primary, replica];
    live_through(&[&clock, &other_clock], connection, 2_000, |step, line| {
        (step % 500 == 499).then(|| {
            catch_up(&pair[1], &pair[0]);
            let [there, here] = [0, 1].map(|at| integer(&mut pair[at].connect(), "FCALL_RO reservations 1 {a}:calls"));
            assert_eq!(there, here);
            send(&pair[0], line);
            pair[0].kill();
            pair.swap(0, 1);
            run::<()>(&mut pair[0].connect(), "REPLICAOF NO ONE").unwrap();
            pair[1].restart();
            replicate(&pair[1], &pair[0]);
            pair[0].connect()
        })
    });
}

/// Within each move of the slot, the line is sent again and again while the keys are on both nodes.
#[test]
#[ignore = "slow: thousands of calls"]
fn calls_lost_late_and_repeated_are_those_of_a_model_through_moves_of_their_slot() {
    needs!("functions, Redis 7");
    // The clock jumps further than a node may be silent.
    let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000000000"];
    let nodes = [(); 2].map(|()| Clock::start_with(START - 3_600_000 * MILLISECOND, &settings));
    let [(clock, first), (other_clock, second)] = &nodes;
    add_slots(&mut load(first), SLOTS / 2..SLOTS);
    add_slots(&mut load(second), 0..SLOTS / 2);
    run::<()>(&mut first.connect(), &format!("CLUSTER MEET 127.0.0.1 {}", second.port)).unwrap();
    let mut now = START - 3_600_000 * MILLISECOND;
    wait_until("both know the slots", || {
        now += 100 * MILLISECOND;
        nodes.iter().for_each(|(clock, _)| clock.set(now));
        is_ok(first) && is_ok(second)
    });
    let slot = integer(&mut first.connect(), "CLUSTER KEYSLOT {a}");
    let (mut from, mut to, mut random, mut tries) = (first, second, Random::new(8), BTreeMap::new());
    live_through(&[clock, other_clock], first.connect(), 2_000, |step, line| {
        (step % 100 == 99).then(|| {
            let [mut source, mut target] = [from, to].map(Server::connect);
            let [from_id, to_id] = [&mut source, &mut target].map(|node| run::<String>(node, "CLUSTER MYID").unwrap());
            let set = |node: &mut Connection, words: &str| run::<()>(node, &format!("CLUSTER SETSLOT {slot} {words}"));
            set(&mut target, &format!("IMPORTING {from_id}")).unwrap();
            set(&mut source, &format!("MIGRATING {to_id}")).unwrap();
            loop {
                let answer = run::<Value>(&mut source, line);
                let code = answer.err().and_then(|error| error.code().map(str::to_string)).unwrap_or_default();
                *tries.entry(code.clone()).or_insert(0) += 1;
                if code == "ASK" {
                    run::<()>(&mut target, "ASKING").unwrap();
                    let _ = run::<Value>(&mut target, line);
                }
                let keys: Vec<String> = run(&mut source, &format!("CLUSTER GETKEYSINSLOT {slot} 100")).unwrap();
                if keys.is_empty() {
                    break;
                }
                let key = &keys[random.below(keys.len())];
                run::<()>(&mut source, &format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port)).unwrap();
            }
            set(&mut target, &format!("NODE {to_id}")).unwrap();
            set(&mut source, &format!("NODE {to_id}")).unwrap();
            std::mem::swap(&mut from, &mut to);
            from.connect()
        })
    });
    println!("{tries:?}");
    assert!(["", "ASK", "TRYAGAIN"].iter().all(|code| tries[*code] > 5), "{tries:?}");
    let split = RESERVE.replace("{a}:tokens", "tokens");
    let error = error_of(&mut from.connect(), &format!("{split} new 30000 0 500 keep {QUOTAS}"));
    assert!(error.starts_with("CROSSSLOT "), "{error}");
}

/// Compares the server's CPU time, so that other processes count for little. Pipelines of the two calls take turns.
#[test]
#[ignore = "slow: measures CPU time"]
fn a_reservation_and_its_settlement_cost_as_many_plain_calls_as_the_page_says() {
    needs!("functions, Redis 7");
    let server = Server::start();
    let mut connection = load(&server);
    let mut cost = |lines: &[&str]| -> u64 {
        let cpu = || fs::read_to_string(format!("/proc/{}/schedstat", server.pid())).unwrap();
        let cpu = || cpu().split(' ').next().unwrap().parse::<u64>().unwrap();
        let mut pipeline = redis::pipe();
        for number in 0..2_000 {
            lines.iter().for_each(|line| {
                pipeline.add_command(command(&line.replace("NUMBER", &number.to_string())));
            });
        }
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let before = cpu();
        pipeline.query::<Vec<Value>>(&mut connection).unwrap();
        cpu() - before
    };
    let reserve = "FCALL reserve 2 calls userNUMBER NUMBER 30000 1000000 2 keep 99 100 60 amount";
    let [mut both, mut plain] = [u64::MAX; 2];
    for _ in 0..8 {
        both = both.min(cost(&[reserve, "FCALL settle 2 calls userNUMBER NUMBER 1"]));
        plain = plain.min(cost(&["CL.THROTTLE userNUMBER 99 100 60"]));
    }
    let ratio = both as f64 / plain as f64;
    assert!((40.0..75.0).contains(&ratio), "{ratio}, where docs/budgets.md says 40 to 75");
}
