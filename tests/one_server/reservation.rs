//! docs/budgets/reservation.lua: each call is charged once while answers are lost and servers killed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use redis::Value;

use crate::support::clock::Clock;
use crate::support::needs::{FUNCTIONS, REDIS_7_0, SCRIPTS_TEST, needs};
use crate::support::recipes::START;
use crate::support::replication::{catch_up, replicate};
use crate::support::reservations::{ask, live_through, load};
use crate::support::{Server, command, executable, module, new_folder, run};

/// The primary is killed. It starts again from its file, or the replica takes its place.
#[test]
#[ignore = "slow: thousands of calls"]
fn calls_are_those_of_a_model_through_kills_and_failovers() {
    needs!(FUNCTIONS);
    let settings = ["--appendonly", "yes", "--appendfsync", "always"];
    let [(clock, primary, _), (other_clock, replica, _)] = [(); 2].map(|()| Clock::start_with(START, &settings));
    let connection = load(&primary);
    replicate(&replica, &primary);
    let mut pair = [primary, replica];
    live_through(&[&clock, &other_clock], connection, 5_000, |step, line| {
        (step % 250 == 249).then(|| {
            catch_up(&pair[1], &pair[0]);
            let held = |server: &Server| ask(&mut server.connect(), "FCALL_RO reservations 1 {a}:calls").unwrap();
            assert_eq!(held(&pair[1]), held(&pair[0]));
            pair[0].connect().send_packed_command(&command(line).get_packed_command()).unwrap();
            pair[0].kill();
            if step % 500 == 249 {
                pair.swap(0, 1);
                run::<()>(&mut pair[0].connect(), "REPLICAOF NO ONE").unwrap();
                pair[1].restart();
            } else {
                pair[0].restart();
            }
            replicate(&pair[1], &pair[0]);
            pair[0].connect()
        })
    });
}

/// Each ECHO makes callgrind write the instructions of all commands since the last one.
#[test]
fn a_reservation_and_its_settlement_take_at_most_20_times_the_instructions_of_a_plain_call() {
    needs!(REDIS_7_0);
    needs!(SCRIPTS_TEST);
    let folder = new_folder();
    let [script, counts] = ["server", "counts"].map(|file| folder.path().join(file).to_str().unwrap().to_string());
    // The server may be a shell script, so callgrind traces its children as well.
    let options = "--tool=callgrind --trace-children=yes --callgrind-out-file";
    let counted = "--collect-atstart=no --toggle-collect=processCommand --dump-before=echoCommand";
    let valgrind = format!("exec valgrind {options}={counts} {counted}");
    fs::write(&script, format!("#!/bin/sh\n{valgrind} {} \"$@\"\n", executable().display())).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_executable(script.as_ref(), &["--loadmodule", module(), "--hz", "1"]);
    let (mut connection, mut files) = (load(&server), 0);
    let mut count = |lines: &[&str]| {
        let mut pipeline = redis::pipe();
        for number in 0..300 {
            for line in lines {
                pipeline.add_command(command(&line.replace('#', &number.to_string())));
            }
        }
        run::<()>(&mut connection, "ECHO before").unwrap();
        pipeline.query::<Vec<Value>>(&mut connection).unwrap();
        run::<()>(&mut connection, "ECHO after").unwrap();
        files += 2;
        let file = fs::read_to_string(format!("{counts}.{files}")).unwrap();
        let total = file.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        total.parse::<f64>().unwrap() / 300.0
    };
    let plain = [(); 3].map(|()| count(&["CL.THROTTLE limiter:# 99 100 60"]))[2];
    for (keys, words, most) in [("2 a:# limiter:#", "30000", 20.0), ("3 b:# calls limiter:#", "30000 1000000", 32.0)] {
        let both = count(&[&format!("FCALL reserve {keys} {words} 99 100 60 2"), &format!("FCALL settle {keys} 1")]);
        println!("{keys}: {both} instructions, {} times a plain call's", both / plain);
        assert!(both / plain < most, "{both} instructions, where a plain call takes {plain}");
    }
}
