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

/// A server, the application of docs/protect.md, the exporter and Prometheus, started by the page's lines and files, with
/// a second for every 15.
struct Monitored {
    server: Server,
    application: Http,
    exporter: Process,
    _prometheus: Process,
    /// The addresses of the exporter and of the application, and then that of Prometheus.
    addresses: [String; 3],
    promtool: PathBuf,
}

impl Monitored {
    fn start() -> Option<Self> {
        let application = examples::protect().next()?;
        let server = Server::start();
        create_exporter(&server);
        let application = Http::start(&application, server.port);
        let executables = executables();
        let path = format!("{}:{}", executables.display(), std::env::var("PATH").unwrap());
        let of = |port: u16| format!("127.0.0.1:{port}");
        let addresses = [of(free_port()), of(application.port), of(free_port())];
        let line = block("sh", "prometheus-redis-exporter");
        let line = line.replace("6379", &server.port.to_string()).replace("127.0.0.1:9121", &addresses[0]);
        let mut exporter = Command::new("sh");
        exporter.arg("-c").arg(format!("exec {line}")).current_dir(FILES).env("PATH", &path);
        let folder = server.folder.join("prometheus");
        fs::create_dir(&folder).unwrap();
        let settings = fs::read_to_string(Path::new(FILES).join("prometheus.yml")).unwrap().replace("15s", "1s");
        let settings = settings.replace("127.0.0.1:9121", &addresses[0]).replace("127.0.0.1:8000", &addresses[1]);
        fs::write(folder.join("prometheus.yml"), settings).unwrap();
        let rules = fs::read_to_string(Path::new(FILES).join("limits.rules.yml")).unwrap();
        let rules = rules.replace("for: 5m", "for: 1s").replace("for: 2m", "for: 1s");
        assert_eq!(rules.matches("for: 1s").count(), rules.matches("alert:").count());
        fs::write(folder.join("limits.rules.yml"), rules).unwrap();
        let promtool = executables.join("promtool");
        output(Command::new(&promtool).args(["check", "config", "prometheus.yml"]).current_dir(&folder));
        let mut prometheus = Command::new(executables.join("prometheus"));
        prometheus.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]).current_dir(&folder);
        prometheus.arg(format!("--web.listen-address={}", addresses[2]));
        let [exporter, _prometheus] = [exporter, prometheus].map(|mut command| Process::start(&mut command));
        let monitored = Self { server, application, exporter, _prometheus, addresses, promtool };
        monitored.wait_for("redis_script_values{key='throttle_allowed'} == 0");
        Some(monitored)
    }

    /// Returns a line for each series: {key="throttle_allowed"} => 1 @[1700000000]
    fn query(&self, expression: &str) -> String {
        let address = format!("http://{}", self.addresses[2]);
        let output = Command::new(&self.promtool).args(["query", "instant", &address, expression]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the query has an answer. Prometheus gathers once a second, and promtool takes 50 ms of CPU time to
    /// ask: to ask without a pause would only keep the machine busy.
    fn wait_for(&self, expression: &str) {
        wait_until(expression, || {
            let there = !self.query(expression).trim().is_empty();
            if !there {
                sleep(Duration::from_millis(250));
            }
            there
        });
    }

    fn wait_until_fires(&self, alert: &str) {
        self.wait_for(&firing(alert));
    }

    fn fires(&self, alert: &str) -> bool {
        !self.query(&firing(alert)).trim().is_empty()
    }

    /// Makes this many calls that are limited, but for the first, and this many that are wrong.
    fn call(&self, limited: usize, wrong: usize) {
        let mut connection = self.server.connect();
        for _ in 0..limited {
            run::<Value>(&mut connection, "CL.THROTTLE key 0 1 600").unwrap();
        }
        for _ in 0..wrong {
            run::<Value>(&mut connection, "CL.CHARGE key 0 1 0 1").unwrap_err();
        }
    }

    /// Makes a request of a visitor, who is allowed five.
    fn visit(&self) -> u16 {
        self.application.ask_once("GET /items/7 HTTP/1.0\r\n\r\n")
    }
}

fn firing(alert: &str) -> String {
    format!("ALERTS{{alertstate='firing', alertname='{alert}'}}")
}

/// promtool checks hours of the alerts at once.
#[test]
fn each_alert_fires_in_the_hours_that_promtool_plays() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/every_server/monitoring/limits.test.yml");
    output(Command::new(executables().join("promtool")).args(["test", "rules", tests]));
}

#[test]
fn prometheus_gathers_the_counts_of_the_server_and_of_an_application() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let Some(monitored) = Monitored::start() else { return };
    let mut connection = monitored.server.connect();
    run::<Value>(&mut connection, "CL.TAKE other 99 1 60 1").unwrap();
    for _ in 0..7 {
        run::<Value>(&mut connection, "CL.THROTTLE other 99 1 60").unwrap();
    }
    assert_eq!([(); 6].map(|()| monitored.visit()), [200, 200, 200, 200, 200, 429]);
    for (name, count) in [("throttle_allowed", 12), ("throttle_limited", 1), ("take_allowed", 1), ("charge_errors", 0)]
    {
        monitored.wait_for(&format!("redis_script_values{{key='{name}'}} == {count}"));
    }
    for (result, count) in [("allowed", 5), ("limited", 1)] {
        monitored.wait_for(&format!("limit_calls_total{{limit='visitor', result='{result}'}} == {count}"));
    }
    monitored.wait_for("sum(rate(redis_script_values{key='throttle_allowed'}[5m])) > 0");

    // The exporter also tries the commands that the page names; the server refuses them, and the exporter goes on.
    let log: Vec<BTreeMap<String, Value>> = run(&mut connection, "ACL LOG 100").unwrap();
    let refused: Vec<String> = log.iter().map(|entry| redis::from_redis_value_ref(&entry["object"]).unwrap()).collect();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring.md")).unwrap();
    for command in refused {
        let command = command.replace('|', " ").to_uppercase();
        assert!(page.contains(&format!("`{command}`")), "{command}");
    }
}

#[test]
fn alerts_fire_on_many_limited_and_wrong_calls_and_not_on_few() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let Some(monitored) = Monitored::start() else { return };
    monitored.call(6, 1);
    monitored.wait_for("redis_script_values{key='charge_errors'} == 1");
    // Wait longer than the condition of an alert has to hold here.
    sleep(Duration::from_secs(4));
    for alert in ["ManyCallsLimited", "CallsWithErrors", "CountsMissing", "ExporterGone", "LimitFailsOpen"] {
        assert!(!monitored.fires(alert), "{alert}");
    }
    monitored.call(1_000, 0);
    monitored.wait_until_fires("ManyCallsLimited");
    assert!(!monitored.fires("CallsWithErrors"));
    monitored.call(0, 50);
    monitored.wait_until_fires("CallsWithErrors");
}

#[test]
fn alerts_fire_without_the_server_and_without_the_exporter() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let Some(mut monitored) = Monitored::start() else { return };
    assert_eq!(monitored.visit(), 200);
    monitored.wait_for("limit_calls_total{limit='visitor', result='allowed'} == 1");
    monitored.server.kill();
    monitored.wait_until_fires("CountsMissing");
    wait_until("LimitFailsOpen", || {
        assert_eq!(monitored.visit(), 200);
        monitored.fires("LimitFailsOpen")
    });
    assert!(!monitored.fires("ExporterGone"));
    monitored.exporter.0.kill().unwrap();
    monitored.wait_until_fires("ExporterGone");
}

/// queries.py prints the dashboard's queries, one a line: those that list the exporters and the applications, and then
/// each panel's, once for every address and once for the one address that this test has started.
#[test]
fn each_query_of_the_dashboard_has_an_answer() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let Some(monitored) = Monitored::start() else { return };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/every_server/monitoring/queries.py");
    let addresses = &monitored.addresses[..2];
    let expressions = output(Command::new("python3").arg(program).args(addresses).current_dir(FILES));
    assert!(expressions.lines().count() >= 14, "{expressions}");
    for expression in expressions.lines() {
        // The rates need calls in several of Prometheus's rounds.
        wait_until(expression, || {
            monitored.call(2, 1);
            monitored.visit();
            // The time of a command without recent calls is 0 / 0.
            monitored.query(expression).lines().any(|line| line.contains("} => ") && !line.contains("NaN"))
        });
    }
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
