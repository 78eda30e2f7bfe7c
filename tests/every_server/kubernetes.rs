//! The manifests of docs/kubernetes: the server's arguments and the probes' commands, run here without a cluster.
//! scripts/test.d/schemas checks the manifests against the schemas of Kubernetes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::needs::needs;
use crate::support::programs::output;
use crate::support::{Server, module, throttle};

const MODULES: &str = "/usr/lib/redis/modules";

fn manifest(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubernetes").join(name)).unwrap()
}

/// Returns the words of the only line with this beginning, after these lines.
fn words(manifest: &str, after: &str, begin: &str) -> Vec<String> {
    let (_, rest) = manifest.split_once(after).unwrap_or_else(|| panic!("no {after}"));
    let line = rest.lines().find_map(|line| line.trim().strip_prefix(begin)).unwrap();
    line.trim_matches(['[', ']']).split(", ").map(|word| word.trim_matches('"').to_string()).collect()
}

#[test]
fn the_settings_load_the_module_and_the_probes_see_whether_it_answers() {
    needs!("redis-tools");
    let limits = manifest("limits.yaml");
    assert!(limits.contains(concat!(" ghcr.io/REPO:", env!("CARGO_PKG_VERSION"), "-redis8\n")));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kubernetes-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (_, settings) = limits.split_once("redis.conf: |\n").unwrap();
    let settings: Vec<_> = settings.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let settings = settings.join("\n").replace("/data", folder.to_str().unwrap());
    let file = folder.join("redis.conf");
    let start = |settings: &str| {
        fs::write(&file, settings).unwrap();
        let arguments = words(&limits, "command: [\"redis-server\"]", "args: ");
        assert_eq!(arguments, ["/settings/redis.conf", "--requirepass", "$(REDISCLI_AUTH)"]);
        Server::start_from(&file, &["--requirepass", "secret"])
    };
    let passes = |probe: &str, server: &Server| {
        let words = words(&limits, &format!("{probe}Probe:"), "command: ");
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
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_init_container_copies_the_library_to_where_the_settings_have_it() {
    let (limits, official) = (manifest("limits.yaml"), manifest("official-image.yaml"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("modules-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let command = words(&official, "initContainers:", "command: ");
    assert_eq!(command, ["cp", &format!("{MODULES}/libredis_cell.so"), "/modules/"]);
    output(Command::new("cp").arg(module()).arg(&folder));
    let library: PathBuf = folder.join(module().file_name().unwrap());
    let server = Server::start_bare(&["--loadmodule", library.to_str().unwrap()]);
    assert_eq!(throttle(&mut server.connect(), "key 4 1 60"), [0, 5, 4, -1, 60]);
    fs::remove_dir_all(folder).unwrap();

    // The two files differ only in the init container, its volume and the image.
    assert!(official.contains(&format!("- name: modules\n              mountPath: {MODULES}\n")));
    let (_, stateful_set) = limits.split_once("apiVersion: apps/v1\n").unwrap();
    let mut rest = official.lines();
    for line in stateful_set.lines().filter(|line| !line.contains("image: ")) {
        assert!(rest.any(|other| other == line), "official-image.yaml lacks this line, or has it elsewhere: {line}");
    }
}
