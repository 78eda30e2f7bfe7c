//! A program's connection leads to the old primary after a failover behind one address.

use crate::support::endpoint::Endpoint;
use crate::support::needs::needs;
use crate::support::recipes::{Dialogue, load_function, path, python, read};
use crate::support::{Server, run};

#[test]
#[ignore = "slow: Python"]
fn each_program_finds_the_new_primary_after_one_error() {
    needs!("functions, Redis 7");
    let [old, new] = [(); 2].map(|()| {
        let server = Server::start();
        for library in ["reservation.lua", "calendar_quota.lua"] {
            load_function(&mut server.connect(), &read(library)).unwrap();
        }
        server
    });
    let replicate = |primary: &str| run::<()>(&mut old.connect(), &format!("REPLICAOF {primary}")).unwrap();
    let clients = ["../clients/pipeline.py", "../clients/readme.py"];
    let recipes = ["ban.py", "calendar_quota.py", "fairness.py", "gateway.py", "module_or_script.py", "shadow.py"];
    for program in clients.into_iter().chain(recipes).chain(["waiting.py"]) {
        let address = Endpoint::to(old.port);
        let mut command = python("../../tests/once/recipes/failover.py", &old);
        command.arg(path(program)).env("REDIS_PORT", address.port.to_string());
        let mut client = Dialogue::start(command);
        let mut call = || client.ask("CL.THROTTLE key 15 30 60");
        assert_eq!(call(), "an answer", "{program}");
        address.lead_to(new.port);
        replicate("127.0.0.1 1");
        assert_eq!([(); 3].map(|()| call()), ["ReadOnlyError", "an answer", "an answer"], "{program}");
        replicate("NO ONE");
    }
}
