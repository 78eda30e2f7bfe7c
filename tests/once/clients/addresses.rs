//! The address by which an example limits a caller: behind a proxy, and in a network of IPv6.

use crate::support::examples::{
    Example, Http, express, fastapi, flask, http_server, of_test, phpredis, predis, python_program, redigo_with,
};
use crate::support::{Server, run};

/// An address that the caller makes up is ignored, and any header of a proxy, however malformed, gets an answer.
#[test]
#[ignore = "slow: other languages"]
fn an_http_server_flask_and_fastapi_limit_an_address_behind_their_own_proxy() {
    let server = Server::start();
    for (example, prefix) in [(http_server().next(), "address"), (flask().next(), "hello"), (fastapi().next(), "GET /")]
    {
        for proxy in ["127.0.0.1", "192.0.2.1"] {
            let Some(example) = &example else { return };
            let http = Http::start(&example.with("PROXY", proxy), server.port);
            for (headers, trusting) in [
                ("", "127.0.0.1"),
                ("X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 10.0.0.1, 192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 192.0.2.7:5678\r\n", "192.0.2.7"),
                ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 64:ff9b::192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 2001:db8:1:2:3::4\r\n", "2001:db8:1:2::/64"),
                ("X-Forwarded-For: [2001:db8:1:2:3::4]:80\r\n", "2001:db8:1:2::/64"),
                ("X-Forwarded-For: fe80::1%eth0\r\n", "fe80::/64"),
                ("X-Forwarded-For: unknown\r\n", "127.0.0.1"),
                ("X-Forwarded-For: 192.0.2.7,\r\n", "127.0.0.1"),
                ("X-Forwarded-For:\r\n", "127.0.0.1"),
                ("X-Forwarded-For: [\r\n", "127.0.0.1"),
            ] {
                assert_eq!(http.get("/", headers).0, 200, "{example:?}, {headers}");
                let key = format!("{prefix}:{}", if proxy == "127.0.0.1" { trusting } else { "127.0.0.1" });
                assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{headers}");
                run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
            }
        }
    }
}

/// A server on IPv6 that also accepts IPv4 sees a proxy of IPv4 by an address of IPv6. "" stands for a Unix socket.
#[test]
#[ignore = "slow: other languages"]
fn a_proxy_is_known_however_its_address_is_written() {
    let [caller, mapped] = ["192.0.2.7", "::ffff:192.0.2.1"];
    for (proxy, peer, limited) in [
        ("192.0.2.1", mapped, caller),
        (mapped, "192.0.2.1", caller),
        (mapped, mapped, caller),
        ("192.0.2.1", "::ffff:192.0.2.2", "192.0.2.2"),
        ("192.0.2.1", "64:ff9b::192.0.2.1", "192.0.2.1"),
        ("2001:DB8::1", "2001:db8:0::1", caller),
        ("2001:DB8::1", "2001:db8::2", "2001:db8::/64"),
        ("unix", "", caller),
        ("unix", "192.0.2.1", "192.0.2.1"),
        ("", "", "unix"),
        ("", "testclient", "testclient"),
    ] {
        for example in python_program("clients/proxies.py") {
            let example = example.with_arguments(&[peer]).with("PROXY", proxy);
            assert_eq!(example.output(0).trim(), limited, "{proxy} {peer}");
        }
    }
    for example in python_program("clients/proxies.py") {
        let output = example.with("PROXY", "proxy.example").command(0).output().unwrap();
        assert!(!output.status.success(), "a proxy without an address would be none: {output:?}");
    }
}

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
