//! The manifests of docs/kubernetes: the server's arguments and the probes' commands, run here without a cluster.
//! scripts/test.d/schemas checks the manifests against the schemas of Kubernetes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use saphyr::{LoadableYamlNode, YamlOwned as Yaml};

use crate::support::needs::needs;
use crate::support::programs::output;
use crate::support::{MODULES, Server, module, new_folder, throttle};

const IMAGE: &str = concat!("ghcr.io/REPO:", env!("CARGO_PKG_VERSION"), "-redis8");

/// Returns the text of a manifest, and its parts.
fn manifest(name: &str) -> (String, Vec<Yaml>) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubernetes").join(name)).unwrap();
    let parts = Yaml::load_from_str(&text).unwrap();
    (text, parts)
}

fn words(list: &Yaml) -> Vec<&str> {
    list.as_vec().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn the_settings_load_the_module_and_the_probes_see_whether_it_answers() {
    needs!("redis-tools");
    let (_, parts) = manifest("limits.yaml");
    let container = &parts[2]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"].as_str(), Some(IMAGE));
    assert_eq!(words(&container["command"]), ["redis-server"]);
    assert_eq!(words(&container["args"]), ["/settings/redis.conf", "--requirepass", "$(REDISCLI_AUTH)"]);
    let folder = new_folder();
    let settings = parts[0]["data"]["redis.conf"].as_str().unwrap().replace("/data", folder.path().to_str().unwrap());
    let file = folder.path().join("redis.conf");
    let start = |settings: &str| {
        fs::write(&file, settings).unwrap();
        Server::start_from(&file, &["--requirepass", "secret"])
    };
    let passes = |probe: &str, server: &Server| {
        let words = words(&container[&*format!("{probe}Probe")]["exec"]["command"]);
        let words: Vec<_> =
            words.iter().map(|word| word.replace("redis-cli", &format!("redis-cli -p {}", server.port))).collect();
        let (program, arguments) = match words.as_slice() {
            [shell, arguments @ ..] if shell == "sh" => (shell.as_str(), arguments.to_vec()),
            words => ("sh", vec!["-c".to_string(), words.join(" ")]),
        };
        let mut command = Command::new(program);
        command.args(arguments).env("REDISCLI_AUTH", "secret").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    let probes = ["startup", "readiness", "liveness"];
    let server = start(&settings.replace(&format!("{MODULES}/libredis_cell.so"), module().to_str().unwrap()));
    assert!(probes.iter().all(|probe| passes(probe, &server)));
    let mut connection = redis::Client::open(format!("redis://:secret@127.0.0.1:{}/", server.port)).unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);

    let (_, without) = settings.split_once('\n').unwrap();
    let mut server = start(without);
    assert_eq!(probes.map(|probe| passes(probe, &server)), [true, false, true]);
    server.kill();
    assert!(!probes.iter().any(|probe| passes(probe, &server)));
}

#[test]
fn the_init_container_copies_the_library_to_where_the_settings_have_it() {
    let ((limits, _), (official, parts)) = (manifest("limits.yaml"), manifest("official-image.yaml"));
    let pod = &parts[0]["spec"]["template"]["spec"];
    let init = &pod["initContainers"][0];
    assert_eq!(init["image"].as_str(), Some(IMAGE));
    assert_eq!(words(&init["command"]), ["cp", &format!("{MODULES}/libredis_cell.so"), "/modules/"]);
    let folder = new_folder();
    output(Command::new("cp").arg(module()).arg(folder.path()));
    let library = folder.path().join(module().file_name().unwrap());
    let server = Server::start_bare(&["--loadmodule", library.to_str().unwrap()]);
    assert_eq!(throttle(&mut server.connect(), "key 4 1 60"), [0, 5, 4, -1, 60]);

    let mount = |container: &Yaml| {
        let mounts = container["volumeMounts"].as_vec().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"].as_str() == Some("modules")).unwrap();
        mount["mountPath"].as_str().unwrap().to_string()
    };
    assert_eq!([init, &pod["containers"][0]].map(mount), ["/modules", MODULES]);
    // The two files differ only in the init container, its volume and the image.
    let (_, stateful_set) = limits.split_once("apiVersion: apps/v1\n").unwrap();
    let mut rest = official.lines();
    for line in stateful_set.lines().filter(|line| !line.contains("image: ")) {
        assert!(rest.any(|other| other == line), "official-image.yaml lacks this line, or has it elsewhere: {line}");
    }
}
