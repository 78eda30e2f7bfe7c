//! The memory of a key.

use redis::Value;

use crate::support::{Server, info, run};

/// A key takes no more than a native string of as many bytes that is not an integer, and a header of 16 bytes. The
/// first call makes this final form, and later calls keep it. A second quota takes 19 bytes more.
#[test]
fn a_key_is_hardly_larger_than_a_string_from_its_first_call_on() {
    let server = Server::start();
    let mut connection = server.connect();
    // The Redis 6.2 of the tests uses libc's malloc, which sometimes gives 16 bytes more than requested.
    let chance = if info(&mut connection, "mem_allocator") == "libc" { 16 } else { 0 };
    for (quotas, text) in [("15 30 60", "x"), ("15 30 60 1 999 1000 86400", "18000000000000000000x")] {
        let plain = format!("SET plain:0000000 180000000000000000{text} PX 1000000");
        run::<()>(&mut connection, &plain).unwrap();
        let mut bytes = |name: &str| -> i64 { run(&mut connection, &format!("MEMORY USAGE {name}:0000000")).unwrap() };
        let plain = bytes("plain");
        let sizes = [(); 3].map(|()| {
            run::<Value>(&mut server.connect(), &format!("CL.THROTTLE fresh:0000000 {quotas}")).unwrap();
            bytes("fresh")
        });
        let small = sizes[0] <= plain + 16 + chance;
        let same = sizes.iter().all(|size| (size - sizes[0]).abs() <= chance);
        assert!(small && same, "{quotas}: {sizes:?} bytes after each call, a plain string takes {plain}");
    }
}
