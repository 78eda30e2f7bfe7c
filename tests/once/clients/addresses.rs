//! The address by which an example limits a caller: behind a proxy, and in a network of IPv6.

use crate::support::examples::{Example, Http, express, of_test, phpredis, predis, redigo_with};
use crate::support::{Server, run};

/// Callers' addresses, and the part of each that an example limits. Python's examples have tests of their own.
const ADDRESSES: [(&str, &str); 5] = [
    ("192.0.2.7", "192.0.2.7"),
    ("::ffff:192.0.2.7", "192.0.2.7"),
    ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("2001:db8::4", "2001:db8::/64"),
];

#[test]
#[ignore = "slow: other languages"]
fn express_limits_the_network_of_an_ipv6_caller() {
    for example in express() {
        let server = Server::start();
        let http = Http::start(&example.with("PROXY", "127.0.0.1"), server.port);
        for (address, limited) in ADDRESSES {
            assert_eq!(http.get("/", &format!("X-Forwarded-For: 10.0.0.1, {address}\r\n")).0, 200, "{address}");
            let key = format!("hello:{}", limited.replace("db8::/64", "db8:0:0::/64"));
            assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{address}");
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
        }
    }
}

#[test]
#[ignore = "slow: other languages"]
fn phpredis_and_predis_limit_the_network_of_an_ipv6_caller() {
    for (example, file) in [(phpredis(), "phpredis.php"), (predis(), "predis.php")] {
        let Some(_) = example else { continue };
        let program = Example::new("php", &[&of_test("clients/network.php"), file]);
        let output = program.with_arguments(&ADDRESSES.map(|(address, _)| address)).output(Server::start().port);
        let limited = ADDRESSES.map(|(_, limited)| format!("{limited}\n")).concat();
        assert!(output.ends_with(&format!("\n{limited}")), "{file}: {output}");
    }
}

#[test]
#[ignore = "slow: other languages"]
fn redigo_limits_the_network_of_an_ipv6_caller() {
    let Some(example) = redigo_with("redigo-addresses", &["clients/redigo.go"]) else { return };
    let peers = ADDRESSES.map(|(address, _)| format!("[{address}]:80").replace("[192.0.2.7]", "192.0.2.7"));
    let example = example.with_arguments(&peers.each_ref().map(String::as_str));
    assert_eq!(example.output(0), ADDRESSES.map(|(_, limited)| format!("{limited}\n")).concat());
}
