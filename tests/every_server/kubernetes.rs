//! The manifest of docs/kubernetes: the server's settings and the probes' commands, run here without a cluster.

use std::fs;
use std::process::{Command, Stdio};

use saphyr::{LoadableYamlNode, YamlOwned as Yaml};

use crate::support::needs::{FAST, needs};
use crate::support::pages::text_of;
use crate::support::{MODULES, Server, module, new_folder, throttle};

#[test]
fn the_settings_load_the_module_and_the_probes_see_whether_it_answers() {
    needs!(FAST);
    needs!("redis-tools");
    let text = text_of("docs/kubernetes/limits.yaml");
    let parts = Yaml::load_from_str(&text).unwrap();
    let container = &parts[2]["spec"]["template"]["spec"]["containers"][0];
    let image = concat!("ghcr.io/REPO:", env!("CARGO_PKG_VERSION"), "-redis8");
    assert_eq!(container["image"].as_str(), Some(image));
    let folder = new_folder();
    let settings = parts[0]["data"]["redis.conf"].as_str().unwrap().replace("/data", folder.path().to_str().unwrap());
    let file = folder.path().join("redis.conf");
    let start = |settings: &str| {
        fs::write(&file, settings).unwrap();
        Server::start_from(&file, &["--requirepass", "secret"])
    };
    let probes = |server: &Server| {
        ["startupProbe", "readinessProbe", "livenessProbe"].map(|probe| {
            let words = container[probe]["exec"]["command"].as_vec().unwrap().iter().filter_map(Yaml::as_str);
            let line: Vec<_> = words.skip_while(|word| ["sh", "-c"].contains(word)).collect();
            let line = line.join(" ").replace("redis-cli", &format!("redis-cli -p {}", server.port));
            let mut command = Command::new("sh");
            command.args(["-c", &line]).env("REDISCLI_AUTH", "secret").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().unwrap().success()
        })
    };
    let server = start(&settings.replace(&format!("{MODULES}/libredis_cell.so"), module()));
    assert_eq!(probes(&server), [true; 3]);
    let mut connection = redis::Client::open(format!("redis://:secret@127.0.0.1:{}/", server.port)).unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);

    let (_, without) = settings.split_once('\n').unwrap();
    let mut server = start(without);
    assert_eq!(probes(&server), [true, false, true]);
    server.kill();
    assert_eq!(probes(&server), [false; 3]);
}
