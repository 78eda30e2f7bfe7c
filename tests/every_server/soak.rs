//! Load: the server's memory stays constant, and a promotion loses no call. `SOAK_SECONDS` makes the load longer.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, ConnectionLike, Value};

use crate::support::needs::{FAST, needs};
use crate::support::replication::{SETTINGS, replicate};
use crate::support::traffic::under_load;
use crate::support::{COMMANDS, Server, command, info, run, setting, wait_for, wait_until};

#[test]
#[ignore = "slow: load"]
fn under_a_long_mixed_load_memory_stays_as_it_was() {
    needs!(FAST);
    let (server, mut connection) = Server::start().connected();
    let part = Duration::from_secs(setting("SOAK_SECONDS", 10)) / 4;
    // The first load warms up the server's own tables and the allocator.
    soak(&mut connection, part);
    let before = memory(&server, &mut connection);
    soak(&mut connection, 3 * part);
    // Without a leak, the server's own tables may grow a little, and the process for the allocator's sake.
    wait_until("the server needs no more memory than at the start", || {
        let after = memory(&server, &mut connection);
        println!("{before:?} bytes, then {after:?}");
        let [allocated, resident] = [0, 1].map(|of| after[of] - before[of]);
        allocated < 256 << 10 && resident < 1 << 20
    });
}

/// Makes every kind of call for this long, on new limiters, on keys that expire, and on keys that are no limiters. The
/// keys are few, so that a leak shows in the server's memory.
fn soak(connection: &mut Connection, duration: Duration) {
    let mut pipeline = redis::pipe();
    for line in ["DEL new list", "SET text hello", "RPUSH list 1", "CL.PTHROTTLE expires 0 1 1"] {
        pipeline.add_command(command(line));
    }
    for key in ["new", "text", "list"] {
        let calls = COMMANDS.iter().flat_map(|command| command.calls(key));
        let script = format!("EVAL return(redis.pcall('CL.THROTTLE',KEYS[1],9,1,1)) 1 {key}");
        for call in calls.chain([script, format!("CL.THROTTLE {key} 9 1 x")]) {
            pipeline.add_command(command(&call));
        }
    }
    let (packed, count) = (pipeline.get_packed_pipeline(), pipeline.len());
    let end = Instant::now() + duration;
    while Instant::now() < end {
        let replies = connection.req_packed_commands(&packed, 0, count).unwrap();
        assert!(replies.iter().any(|reply| matches!(reply, Value::Array(_))), "no call was answered: {replies:?}");
    }
}

/// Returns the bytes that the server has allocated, and those of its process, when all keys are gone.
fn memory(server: &Server, connection: &mut Connection) -> [i64; 2] {
    run::<()>(connection, "FLUSHALL SYNC").unwrap();
    // The server reads its allocator's figures ten times a second, if the machine is not too busy.
    let allocated = (0..5).map(|_| {
        sleep(Duration::from_millis(200));
        info(connection, "allocator_allocated").parse().unwrap()
    });
    let allocated = allocated.min().unwrap();
    let statm = fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: i64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    [allocated, pages * 4096]
}

/// No token comes back within the test.
#[test]
#[ignore = "slow: load"]
fn clients_get_exactly_the_tokens_of_one_limiter_through_a_failover() {
    needs!(FAST);
    const LIMIT: i64 = 1_000_000;
    let call = |quantity| format!("CL.THROTTLE key {} 1 3600 {quantity}", LIMIT - 1);
    let servers = [(); 2].map(|()| Server::start_with(&SETTINGS));
    let mut promoted = servers[1].connect();
    let mut remaining = || run::<[i64; 5]>(&mut promoted, &call(0)).map(|reply| reply[2]);
    let ((), passed) = under_load(
        4,
        |_, more| {
            let mut connections = [&servers[0], &servers[1]].map(Server::connect);
            let (mut at, mut passed) = (0, 0);
            while more() {
                match run::<[i64; 5]>(&mut connections[at], &call(1)) {
                    Ok(reply) => passed += 1 - reply[0],
                    Err(error) => {
                        assert_eq!(error.code(), Some("READONLY"), "{error}");
                        at = 1 - at;
                    }
                }
            }
            passed
        },
        || {
            replicate(&servers[1], &servers[0]);
            run::<()>(&mut servers[0].connect(), &format!("FAILOVER TO 127.0.0.1 {}", servers[1].port)).unwrap();
            let first = wait_for("promotion", || remaining().ok());
            wait_until("calls pass again", || remaining().unwrap() < first);
        },
    );
    assert_eq!(passed.iter().sum::<i64>() + remaining().unwrap(), LIMIT, "tokens let through, and those that are left");
}
