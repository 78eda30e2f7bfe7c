//! What docs/commands.md and docs/replication.md say of a server that cannot save: it refuses calls, and answers looks.

use std::fs;

use crate::support::{Server, command, error_of, info, run, throttle, wait_until};

#[test]
fn a_failed_snapshot_refuses_calls_but_no_looks_until_a_snapshot_succeeds() {
    let server = Server::start();
    let mut connection = server.connect();
    command("CONFIG SET save").arg("3600 1").query::<()>(&mut connection).unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);

    // A folder of that name is in the file's way.
    let file = server.folder.join("dump.rdb");
    let _ = fs::remove_file(&file);
    fs::create_dir(&file).unwrap();
    run::<()>(&mut connection, "BGSAVE").unwrap();
    wait_until("the snapshot fails", || info(&mut server.connect(), "rdb_last_bgsave_status") == "err");
    for call in ["CL.THROTTLE key 4 1 60", "CL.THROTTLE key 4 1 60 0", "CL.CHARGE key 4 1 60 1", "CL.TAKE key 4 1 60 1"]
    {
        let error = error_of(&mut connection, call);
        assert!(error.starts_with("MISCONF "), "{call}: {error}");
    }
    let looked: [i64; 5] = run(&mut connection, "CL.LOOK key 4 1 60").unwrap();
    assert_eq!(looked[..4], [0, 5, 4, -1]);

    fs::remove_dir(&file).unwrap();
    run::<()>(&mut connection, "BGSAVE").unwrap();
    wait_until("a snapshot succeeds", || info(&mut server.connect(), "rdb_last_bgsave_status") == "ok");
    assert_eq!(throttle(&mut connection, "key 4 1 60")[..3], [0, 5, 3]);
}
