//! What a server short of memory does to limiters.

use redis::Value;

use crate::support::{Server, info, run, snapshot, throttle, wait_until};

#[test]
fn without_memory_or_eviction_a_call_fails_and_takes_nothing() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 3600 2");
    let before = snapshot(&mut connection);
    let changes = info(&mut connection, "rdb_changes_since_last_save");
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    for call in [
        "CL.THROTTLE key 4 1 3600",
        "CL.THROTTLE key 4 1 3600 9",
        "CL.THROTTLE key 4 1 3600 0",
        "CL.THROTTLE new 4 1 3600",
        "CL.TAKE key 4 1 3600 0",
        "CL.CHARGE key 4 1 3600 -1",
        "CL.MTHROTTLE key 4 1 3600 0",
    ] {
        let error = run::<Value>(&mut connection, call).unwrap_err();
        assert_eq!(error.code(), Some("OOM"), "{error}");
    }
    run::<()>(&mut connection, "CONFIG SET maxmemory 0").unwrap();
    assert_eq!(snapshot(&mut connection), before);
    assert_eq!(info(&mut connection, "rdb_changes_since_last_save"), changes);
    assert_eq!(throttle(&mut connection, "key 4 1 3600")[..3], [0, 5, 2]);
}

#[test]
fn scripts_and_transactions_without_memory_fail_and_take_nothing() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 3600 2");
    let before = snapshot(&mut connection);
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    let script = redis::Script::new("return redis.call('CL.THROTTLE', KEYS[1], 4, 1, 3600)");
    let error = script.key("key").invoke::<Value>(&mut connection).unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    let transaction =
        redis::pipe().atomic().cmd("CL.THROTTLE").arg(&["key", "4", "1", "3600"]).query::<Value>(&mut connection);
    transaction.unwrap_err();
    run::<()>(&mut connection, "CONFIG SET maxmemory 0").unwrap();
    assert_eq!(snapshot(&mut connection), before);
}

#[test]
fn every_policy_but_noeviction_may_forget_a_limiter() {
    let server = Server::start();
    let mut connection = server.connect();
    for policy in [
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
    ] {
        assert_eq!(throttle(&mut connection, "key 0 1 3600")[0], 0);
        assert_eq!(throttle(&mut connection, "key 0 1 3600")[0], 1);
        run::<()>(&mut connection, &format!("CONFIG SET maxmemory-policy {policy}")).unwrap();
        run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
        wait_until(policy, || {
            // A write makes the server look for memory.
            let _ = run::<Value>(&mut connection, "SET other 1");
            !run::<bool>(&mut connection, "EXISTS key").unwrap()
        });
        run::<()>(&mut connection, "CONFIG SET maxmemory 0").unwrap();
        assert_eq!(throttle(&mut connection, "key 0 1 3600")[0], 0, "{policy}");
        run::<()>(&mut connection, "FLUSHALL").unwrap();
    }
}
