//! CL.MTHROTTLE with thousands of limiters.

use redis::Value;

use crate::support::Server;

#[test]
fn many_groups_in_one_call() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut call = redis::cmd("CL.MTHROTTLE");
    for group in 0..10_000 {
        call.arg(format!("key{group}")).arg(4).arg(1).arg(60).arg(1);
    }
    let Value::Array(reply) = call.query(&mut connection).unwrap() else { panic!() };
    assert_eq!(reply.len(), 10_001);
    assert_eq!(reply[0], Value::Int(0));
    assert!(reply[1..].iter().all(|group| *group == Value::Array([0, 5, 4, -1, 60].map(Value::Int).to_vec())));
}
