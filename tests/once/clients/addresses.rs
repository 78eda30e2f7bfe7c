//! The address by which each example that serves HTTP limits a caller.

use crate::support::examples::{Http, express, fastapi, flask, nginx};
use crate::support::traffic::side_by_side;
use crate::support::{Server, run};

/// Callers' addresses, and the address by which each is limited.
const ADDRESSES: &str = include_str!("addresses.txt");

/// Words that proxies add besides. One without an address counts as the proxy's own.
const WORDS: &str = "\
    192.0.2.7:5678 192.0.2.7\n\
    [2001:db8:1:2:3::4]:80 2001:db8:1:2::/64\n\
    1:0:0:2::9 1:0:0:2::/64\n\
    0:0:0:1::9 0:0:0:1::/64\n\
    [fe80::1%eth0]:80 fe80::/64\n\
    unknown 127.0.0.1\n\
    [ 127.0.0.1";

/// An address that the caller makes up is ignored, and any header of a proxy, however malformed, gets an answer.
#[test]
#[ignore = "slow: other languages"]
fn each_example_limits_the_same_address_or_network_behind_its_own_proxy() {
    let examples: Vec<_> =
        [express().next(), flask().next(), fastapi().next(), nginx()].into_iter().flatten().collect();
    side_by_side(examples, |example| {
        let server = Server::start();
        let limited_by = |http: &Http, header: &str| {
            assert_eq!(http.get("/", header).0, 200, "{example:?}, {header}");
            let keys = run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap();
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
            keys.concat()
        };
        let http = Http::start(&example.with("PROXY", "127.0.0.1"), server.port);
        let (_, cases) = ADDRESSES.split_once("\n\n").unwrap();
        // nginx itself reads the header, and knows no zone.
        let knows = |line: &&str| !line.contains('%') || !format!("{example:?}").contains("nginx");
        for line in cases.lines().chain(WORDS.lines()).filter(knows) {
            let (word, limited) = line.split_once(' ').unwrap();
            let limited = limited.trim();
            let header = format!("X-Forwarded-For: 10.0.0.1, {word}\r\n");
            assert_eq!(limited_by(&http, &header), format!("hello:{limited}"), "{example:?}, {word}");
        }
        let http = Http::start(&example.with("PROXY", "192.0.2.1"), server.port);
        assert_eq!(limited_by(&http, "X-Forwarded-For: 192.0.2.7\r\n"), "hello:127.0.0.1", "{example:?}");
    });
}
