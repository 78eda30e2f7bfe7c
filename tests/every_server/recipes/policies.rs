//! docs/recipes/policies.lua: policies by name.

use redis::{Connection, RedisResult};

use crate::support::needs::needs;
use crate::support::recipes::{load_function, read};
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, error_of, run};

#[test]
#[ignore = "slow: a replica and an AOF"]
fn named_policies_change_for_all_in_one_command_and_go_with_the_data() {
    needs!("functions, Redis 7");
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let replica = Server::start();
    let mut connection = server.connect();
    let library = read("policies.lua");
    load_function(&mut connection, &library).unwrap();
    replicate(&replica, &server);
    let ask = |connection: &mut Connection, arguments: &str| -> RedisResult<Vec<i64>> {
        run(connection, &format!("FCALL throttle 1 {arguments}"))
    };
    // A policy of several quotas replies with the number of the one that decides.
    assert_eq!(ask(&mut connection, "user123 gold").unwrap(), [0, 100, 99, -1, 1, 1]);
    assert_eq!(ask(&mut connection, "user124 gold 90").unwrap()[..3], [0, 100, 10]);
    assert_eq!(ask(&mut connection, "user7 free").unwrap(), [0, 10, 9, -1, 6]);
    for wrong in ["user7 silver", "user7"] {
        let error = error_of(&mut connection, &format!("FCALL throttle 1 {wrong}"));
        assert_eq!(error, "ERR no policy of that name", "{wrong}");
    }

    // A function does not extend the permissions of its caller.
    run::<()>(&mut connection, "ACL SETUSER app on nopass ~user* +fcall").unwrap();
    let mut app = server.connect();
    run::<()>(&mut app, "AUTH app x").unwrap();
    ask(&mut app, "user11 gold").unwrap_err();
    run::<()>(&mut connection, "ACL SETUSER app +cl.throttle").unwrap();
    assert_eq!(ask(&mut app, "user11 gold").unwrap()[..3], [0, 100, 99]);

    let gold = "99, 100, 60, 9999, 10000, 86400";
    let tats = |connection: &mut Connection| -> Vec<i64> {
        let text: String = run(connection, "GET user124").unwrap();
        text.as_bytes().chunks(19).map(|tat| str::from_utf8(tat).unwrap().parse().unwrap()).collect()
    };
    let before = tats(&mut connection);
    load_function(&mut connection, &library.replace(gold, "99, 100, 60, 9999, 10000, 86400, 5, 1, 1")).unwrap();
    assert_eq!(ask(&mut connection, "user9 gold").unwrap(), [0, 6, 5, -1, 1, 3]);
    // A quota that is added at the end begins full, and the others go on.
    assert_eq!(ask(&mut connection, "user124 gold 6").unwrap(), [0, 6, 0, -1, 6, 3]);
    let after = tats(&mut connection);
    let moved: Vec<_> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    assert_eq!((after.len(), moved), (3, vec![6 * 600_000_000, 6 * 8_640_000_000]));

    // The replica, which needs the library once it is promoted, and the append-only file hold it.
    catch_up(&replica, &server);
    server.restart();
    let mut promoted = replica.connect();
    run::<()>(&mut promoted, "REPLICAOF NO ONE").unwrap();
    for mut connection in [server.connect(), promoted] {
        assert_eq!(ask(&mut connection, "user10 gold").unwrap(), [0, 6, 5, -1, 1, 3]);
    }
}

#[test]
fn a_file_of_policies_with_a_mistake_is_refused_and_the_old_one_stays() {
    needs!("functions, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    let library = read("policies.lua");
    load_function(&mut connection, &library).unwrap();
    for (policy, mistake) in [
        ("{'free', 9, 10", "to close '{'"),
        ("{'free', 9, 10}", "not_three_numbers"),
        ("{'free', 9, 10, 60, 99}", "not_three_numbers"),
        ("{'free'}", "not_three_numbers"),
        (&format!("{{'free'{}}}", ", 9, 10, 60".repeat(9)), "1_to_8_quotas"),
        ("{'free', '9', 10, 60}", "compare"),
        ("{'free', 9, nil, 60}", "nil"),
        ("{'free', 9.5, 10, 60}", "not_whole"),
        ("{'free', 9, 10, 0.5}", "too_small"),
        ("{'free', -2, 10, 60}", "too_small"),
        ("{'free', 9, 0, 60}", "too_small"),
        ("{'free', 9, 10, 0}", "too_small"),
        ("{'free', 9, 1000000001, 1}", "more_than_one_token_a_nanosecond"),
        ("{'free', 9, 1, 1000000000}", "too_large"),
        ("{'free', -1, 10, 1e300}", "too_large"),
        ("{'fre', 9, 10, 60}", "no_policy_of_a_name_that_is_called"),
        ("{9, 10, 60, 1}", "no_policy_of_a_name_that_is_called"),
    ] {
        let mistaken = library.replace("{'free', 9, 10, 60}", policy);
        assert_ne!(mistaken, library);
        let error = load_function(&mut connection, &mistaken).expect_err(policy).to_string();
        assert!(error.contains(mistake), "{policy}: {error}");
        let answer: [i64; 5] = run(&mut connection, "FCALL throttle 1 key free 0").unwrap();
        assert_eq!(answer, [0, 10, 10, -1, 0], "{policy}");
    }
    // The module takes the least and the largest numbers that the file lets pass.
    for policy in ["-1, 1, 1", "0, 1000000000, 1", "0, 1, 6000000000", "5999999999, 1, 1"] {
        load_function(&mut connection, &library.replace("9, 10, 60}", &format!("{policy}}}"))).unwrap();
        run::<[i64; 5]>(&mut connection, "FCALL throttle 1 key free 0").unwrap();
    }
}
