//! The promises of docs/monitoring.md, tested with its own lines and files: the real exporter reads the counts, the
//! real Prometheus gathers them, alerts and answers the dashboard, and a subscriber learns which keys are limited most.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use redis::Value;

use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::examples::{self, Http};
use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::pages::blocks;
use crate::support::programs::output;
use crate::support::replication::replicate;
use crate::support::traffic::under_load;
use crate::support::{COMMANDS, Process, Server, error_of, free_port, run, wait_until};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring");

/// Returns the page's only block in this language with these words in it.
fn block(language: &str, words: &str) -> String {
    let found = blocks(|block| block.language == language && block.text.contains(words));
    let [block] = &found[..] else { panic!("expected exactly one block with {words:?}") };
    block.text.clone()
}

/// Creates the page's user for the exporter.
fn create_exporter(server: &Server) {
    let session = block("console", "ACL SETUSER exporter");
    let line = session.lines().next().unwrap().split_once("> ").unwrap().1;
    run::<()>(&mut server.connect(), line).unwrap();
}

/// Returns the folder of Prometheus, its promtool and the exporter.
fn executables() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers");
    let output = Command::new(script).arg("--monitoring").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "Prometheus and its exporter cannot be had: see above");
    let prometheus = String::from_utf8(output.stdout).unwrap();
    Path::new(prometheus.trim_end()).parent().unwrap().to_path_buf()
}

/// The script runs on every server, as a user with only the page's permissions.
#[test]
fn the_exporters_user_reads_every_count_with_the_script() {
    let server = Server::start();
    let mut connection = server.connect();
    for call in ["CL.THROTTLE key 0 1 60", "CL.THROTTLE key 0 1 60", "CL.MTHROTTLE key 0 1 0 1"] {
        let _ = run::<Value>(&mut connection, call);
    }
    create_exporter(&server);
    run::<()>(&mut connection, "AUTH exporter secret").unwrap();
    let script = fs::read_to_string(Path::new(FILES).join("limits.lua")).unwrap();
    let counts: BTreeMap<String, u64> = redis::cmd("EVAL").arg(script).arg("0").query(&mut connection).unwrap();
    let mut expected = BTreeMap::new();
    for command in &COMMANDS {
        for outcome in ["allowed", "limited", "errors"] {
            let name = format!("{}_{outcome}", command.name.strip_prefix("cl.").unwrap());
            let count = ["throttle_allowed", "throttle_limited", "mthrottle_errors"].contains(&name.as_str());
            expected.insert(name, u64::from(count));
        }
    }
    assert_eq!(counts, expected);
}

/// Waits until Prometheus answers like this. It gathers once a second, and promtool takes 50 ms of CPU time to ask: to
/// ask without a pause would only keep the machine busy.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    wait_until(what, || {
        let there = holds();
        if !there {
            sleep(Duration::from_millis(250));
        }
        there
    });
}

#[test]
fn prometheus_gathers_the_counts_alerts_and_answers_the_dashboard() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let Some(application) = examples::protect().next() else { return };
    let mut server = Server::start();
    create_exporter(&server);
    // The application counts its calls by limit.
    let application = Http::start(&application, server.port);
    let executables = executables();
    let path = format!("{}:{}", executables.display(), std::env::var("PATH").unwrap());

    // Use the page's command line and settings, with other ports, and with a second for every 15.
    let port = free_port().to_string();
    let line = block("sh", "prometheus-redis-exporter");
    let line = line.replace("6379", &server.port.to_string()).replace("9121", &port);
    let exporter =
        Process::start(Command::new("sh").arg("-c").arg(format!("exec {line}")).current_dir(FILES).env("PATH", &path));
    let rules = Path::new(FILES).join("limits.rules.yml");
    let settings = fs::read_to_string(Path::new(FILES).join("prometheus.yml")).unwrap();
    let [of_exporter, of_application] = [&port, &application.port.to_string()].map(|port| format!("127.0.0.1:{port}"));
    let settings = settings.replace("15s", "1s");
    let settings = settings.replace("127.0.0.1:9121", &of_exporter).replace("127.0.0.1:8000", &of_application);
    let folder = server.folder.join("prometheus");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("prometheus.yml"), settings).unwrap();
    let rules = fs::read_to_string(rules).unwrap().replace("for: 5m", "for: 1s").replace("for: 2m", "for: 1s");
    assert_eq!(rules.matches("for: 1s").count(), rules.matches("alert:").count());
    fs::write(folder.join("limits.rules.yml"), rules).unwrap();
    let promtool = || {
        let mut command = Command::new(executables.join("promtool"));
        command.current_dir(&folder);
        command
    };
    output(promtool().args(["check", "config", "prometheus.yml"]));
    // promtool checks hours of the alerts at once.
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/every_server/monitoring/limits.test.yml");
    output(promtool().args(["test", "rules", tests]));
    let address = format!("127.0.0.1:{}", free_port());
    let _prometheus = Process::start(
        Command::new(executables.join("prometheus"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(&folder),
    );
    // The answer has a line for each series: {key="throttle_allowed"} => 1 @[1700000000]
    let query = |expression: &str| -> String {
        let address = format!("http://{address}");
        let output = promtool().args(["query", "instant", &address, expression]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    };
    let counts = |name: &str, count: u64| {
        let expression = format!("redis_script_values{{key='{name}'}} == {count}");
        wait_for(&expression, || !query(&expression).is_empty());
    };
    let fires = |alert: &str| {
        let firing = query("ALERTS{alertstate='firing'}");
        firing.contains(&format!("alertname=\"{alert}\""))
    };

    counts("throttle_allowed", 0);
    counts("mpthrottle_errors", 0);
    let mut connection = server.connect();
    run::<Value>(&mut connection, "CL.TAKE other 99 1 60 1").unwrap();
    for _ in 0..7 {
        run::<Value>(&mut connection, "CL.THROTTLE other 99 1 60").unwrap();
    }
    counts("throttle_allowed", 7);
    counts("take_allowed", 1);
    let share = "sum(rate(redis_script_values{key='throttle_allowed'}[5m])) > 0";
    wait_for(share, || !query(share).is_empty());
    let alerts = ["ManyCallsLimited", "CallsWithErrors", "CountsMissing", "ExporterGone"];
    for alert in alerts {
        assert!(!fires(alert), "{alert}");
    }

    // A few limited calls and one mistyped call raise no alert; many do.
    let mut limited_and_wrong = |limited: usize, wrong: usize| {
        for _ in 0..limited {
            run::<Value>(&mut connection, "CL.THROTTLE key 0 1 600").unwrap();
        }
        for _ in 0..wrong {
            run::<Value>(&mut connection, "CL.CHARGE key 0 1 0 1").unwrap_err();
        }
    };
    limited_and_wrong(6, 1);
    counts("throttle_limited", 5);
    counts("charge_errors", 1);
    // Wait longer than the condition of an alert has to hold here.
    sleep(Duration::from_secs(4));
    for alert in alerts {
        assert!(!fires(alert), "{alert}");
    }
    limited_and_wrong(1_000, 0);
    wait_for("ManyCallsLimited", || fires("ManyCallsLimited"));
    assert!(!fires("CallsWithErrors"));
    limited_and_wrong(0, 50);
    wait_for("CallsWithErrors", || fires("CallsWithErrors"));

    // Five visitors are allowed, and the others limited.
    let visit = || application.ask_once("GET /items/7 HTTP/1.0\r\n\r\n");
    assert_eq!([(); 6].map(|()| visit()), [200, 200, 200, 200, 200, 429]);
    for (result, count) in [("allowed", 5), ("limited", 1)] {
        let expression = format!("limit_calls_total{{limit='visitor', result='{result}'}} == {count}");
        wait_for(&expression, || !query(&expression).is_empty());
    }
    let more = "rate(limit_calls_total{limit='visitor', result='limited'}[5m]) > 0";
    wait_for(more, || {
        visit();
        !query(more).is_empty()
    });

    // The exporter also tries the commands that the page names; the server refuses them, and the exporter goes on.
    let log: Vec<BTreeMap<String, Value>> = run(&mut connection, "ACL LOG 100").unwrap();
    let refused: Vec<String> = log.iter().map(|entry| redis::from_redis_value_ref(&entry["object"]).unwrap()).collect();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring.md")).unwrap();
    for command in refused {
        let command = command.replace('|', " ").to_uppercase();
        assert!(page.contains(&format!("`{command}`")), "{command}");
    }

    for alert in ["CountsMissing", "LimitFailsOpen"] {
        assert!(!fires(alert), "{alert}");
    }
    server.kill();
    wait_for("CountsMissing", || fires("CountsMissing"));
    wait_for("LimitFailsOpen", || {
        assert_eq!(visit(), 200);
        fires("LimitFailsOpen")
    });

    // Print the dashboard's queries, one a line: those that list the exporters and the applications, and then each
    // panel's, once for every address and once for the address that this test has started.
    let print = format!(
        "import json; dashboard = json.load(open('dashboard.json'))
addresses = {{'instance': '{of_exporter}', 'application': '{of_application}'}}
datasource, *variables = dashboard['templating']['list']
assert [variable['name'] for variable in variables] == list(addresses), variables
for variable in variables:
    metric = variable['query']['query'].removeprefix('label_values(').removesuffix(', instance)')
    print(metric + '{{instance=\"' + addresses[variable['name']] + '\"}}')
for panel in dashboard['panels']:
    assert panel['title'] and panel['description']
    for target in panel['targets']:
        [name] = [name for name in addresses if f\"instance=~'${{name}}'\" in target['expr']]
        for address in '.+', addresses[name]: print(target['expr'].replace(f'${{name}}', address))"
    );
    let expressions = output(Command::new("python3").args(["-c", &print]).current_dir(FILES));
    assert!(expressions.lines().count() >= 14, "{expressions}");
    for expression in expressions.lines() {
        let answer = query(expression);
        // The time of a command without recent calls is 0 / 0.
        let figures = answer.lines().filter(|line| line.contains("} => ") && !line.contains("NaN"));
        assert!(figures.count() > 0, "{expression}: {answer}");
    }

    assert!(!fires("ExporterGone"));
    drop(exporter);
    wait_for("ExporterGone", || fires("ExporterGone"));
}

/// The page's line counts while clients call; the test runs it for six of its ten seconds.
#[test]
#[ignore = "slow: seconds of load"]
fn the_keys_that_are_limited_most_are_counted_under_load() {
    needs!("redis-tools");
    let server = Server::start_with(&["--notify-keyspace-events", "Ed"]);
    let line = block("sh", "cl.limited");
    let line = line.replace("redis-cli", &format!("redis-cli -p {}", server.port)).replace("timeout 10 ", "timeout 6 ");
    let counting = Command::new("sh").args(["-c", &line]).stdout(Stdio::piped()).spawn().unwrap();
    let mut connection = server.connect();
    wait_until("redis-cli subscribes", || run::<u64>(&mut connection, "PUBSUB NUMPAT").unwrap() == 1);

    // Four of every seven calls are for one key, two for another, and one for the third.
    let keys = ["most", "some", "most", "few", "most", "some", "most"];
    let (_, limited) = under_load(
        4,
        |_, more| {
            let mut connection = server.connect();
            let mut limited = BTreeMap::<&str, i64>::new();
            while more() {
                let mut pipeline = redis::pipe();
                for key in keys {
                    pipeline.cmd("CL.THROTTLE").arg(&[key, "0", "1", "3600"]);
                }
                let replies: Vec<[i64; 5]> = pipeline.query(&mut connection).unwrap();
                for (key, reply) in keys.iter().zip(replies) {
                    *limited.entry(key).or_default() += reply[0];
                }
            }
            limited
        },
        || sleep(Duration::from_secs(1)),
    );
    let mut expected = BTreeMap::<&str, i64>::new();
    for (key, count) in limited.into_iter().flatten() {
        *expected.entry(key).or_default() += count;
    }
    assert!(expected["few"] > 100, "no load: {expected:?}");

    // The lines read "  4000 "__keyevent@0__:cl.limited","most"", the largest count first.
    let counted = String::from_utf8(counting.wait_with_output().unwrap().stdout).unwrap();
    let counted: Vec<_> = counted.lines().map(str::trim).collect();
    let line = |key| format!("{} \"__keyevent@0__:cl.limited\",\"{key}\"", expected[key]);
    assert_eq!(counted, [line("most"), line("some"), line("few")]);
}

/// The health check is the line of docs/compose.yaml, word for word.
#[test]
#[ignore = "slow: restarts"]
fn the_health_check_passes_where_the_module_answers_and_fails_elsewhere() {
    let file = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/compose.yaml")).unwrap();
    let line = file.lines().find_map(|line| line.trim().strip_prefix("test: [\"CMD-SHELL\", \"")).unwrap();
    let line = line.trim_end_matches("\"]");
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring.md")).unwrap();
    assert!(page.contains(&format!("\n{line}\n")), "{line}");
    let healthy = |port: u16| {
        let line = line.replace("redis-cli", &format!("redis-cli -p {port}"));
        Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status().unwrap().success()
    };
    let server = Server::start();
    assert!(healthy(server.port));
    assert!(!run::<bool>(&mut server.connect(), "EXISTS health").unwrap());
    // A replica, and a server at maxmemory, answer only looks, but they are healthy.
    let full = Server::start_with(&["--maxmemory", "1"]);
    assert!(healthy(full.port), "under maxmemory");
    let replica = Server::start();
    replicate(&replica, &server);
    assert!(healthy(replica.port), "a replica");
    // A node stays healthy if the key's slot belongs to another node, or to none.
    let nodes = [(); 2].map(|()| Server::start_with(&["--cluster-enabled", "yes"]));
    assert!(error_of(&mut nodes[0].connect(), "CL.LOOK health 0 1 1").starts_with("CLUSTERDOWN"));
    assert!(healthy(nodes[0].port), "a slot that no node has");
    add_slots(&mut nodes[1].connect(), 0..SLOTS);
    run::<()>(&mut nodes[0].connect(), &format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port)).unwrap();
    wait_until("the cluster is there", || is_ok(&nodes[0]));
    assert!(error_of(&mut nodes[0].connect(), "CL.LOOK health 0 1 1").to_uppercase().starts_with("MOVED"));
    assert!(healthy(nodes[0].port), "a slot of another node");
    let bare_node = Server::start_bare(&["--cluster-enabled", "yes"]);
    assert!(!healthy(bare_node.port), "a node without the module");
    let bare = Server::start_bare(&[]);
    assert!(!healthy(bare.port), "without the module");
    let gone = server.port;
    drop(server);
    // A server under valgrind still answers while it ends.
    wait_until("the health check fails without a server", || !healthy(gone));
}
