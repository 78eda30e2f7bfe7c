//! A program's connection leads to the old primary after a failover behind one address, or there is none.

use crate::support::endpoint::Endpoint;
use crate::support::examples::{debian_python, ends_in_time, pypi_python};
use crate::support::losing::unanswered;
use crate::support::needs::needs;
use crate::support::recipes::{Dialogue, load_function, path, python, read};
use crate::support::traffic::side_by_side;
use crate::support::{Server, run};

const PROGRAMS: &str = "../clients/pipeline.py ban.py calendar_quota.py fairness.py ../budgets/gateway.py \
                        module_or_script.py shadow.py waiting.py";

#[test]
#[ignore = "slow: Python"]
fn each_program_finds_the_new_primary_after_one_error() {
    needs!("functions, Redis 7");
    let [old, new] = [(); 2].map(|()| {
        let server = Server::start();
        for library in ["../budgets/reservation.lua", "calendar_quota.lua"] {
            load_function(&mut server.connect(), &read(library)).unwrap();
        }
        server
    });
    let replicate = |primary: &str| run::<()>(&mut old.connect(), &format!("REPLICAOF {primary}")).unwrap();
    for program in PROGRAMS.split(' ').chain(["../clients/readme.py"]) {
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

/// redis-py 8 gives a connection five seconds of its own.
#[test]
#[ignore = "slow: Python"]
fn each_program_gives_up_in_time_where_nobody_answers() {
    let (port, _full) = unanswered();
    let programs = PROGRAMS.split(' ').chain(["../clients/cluster.py"]).map(|program| format!("../recipes/{program}"));
    side_by_side(programs.flat_map(|program| [debian_python(&program), pypi_python(&program)]).flatten(), |program| {
        ends_in_time(&program, || {
            assert!(!program.command(port).output().unwrap().status.success(), "{program:?}");
        });
    });
}
