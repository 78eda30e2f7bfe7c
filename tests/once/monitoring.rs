//! The promises of docs/monitoring.md, tested with its own lines and files: the real exporter reads the counts, and the
//! real Prometheus gathers them, alerts and answers the dashboard.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use redis::Value;

use crate::support::examples::{self, Http};
use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::pages::{block, create_exporter};
use crate::support::programs::output;
use crate::support::{Process, Server, error_of, free_port, run, wait_until};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring");

/// Returns the folder of Prometheus, its promtool and the exporter.
fn executables() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers");
    let output = Command::new(script).arg("--monitoring").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "Prometheus and its exporter cannot be had: see above");
    let prometheus = String::from_utf8(output.stdout).unwrap();
    Path::new(prometheus.trim_end()).parent().unwrap().to_path_buf()
}

/// A server, the application of docs/protect.md, the exporter and Prometheus, started by the page's lines and files,
/// with a second for every 15.
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
        run::<()>(&mut server.connect(), &create_exporter()).unwrap();
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

    fn log_in(&self) -> u16 {
        let form = r#"{"name": "bob", "password": "wrong"}"#;
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}", form.len());
        self.application.ask_once(&format!("POST /login HTTP/1.0\r\n{headers}\r\n\r\n{form}"))
    }
}

fn firing(alert: &str) -> String {
    format!("ALERTS{{alertstate='firing', alertname='{alert}'}}")
}

/// promtool checks hours of the alerts at once.
#[test]
fn each_alert_fires_in_the_hours_that_promtool_plays() {
    needs!(SCRIPTS_TEST);
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/once/monitoring/limits.test.yml");
    output(Command::new(executables().join("promtool")).args(["test", "rules", tests]));
}

#[test]
fn prometheus_gathers_the_counts_of_the_server_and_of_an_application() {
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
    needs!(SCRIPTS_TEST);
    let Some(monitored) = Monitored::start() else { return };
    monitored.call(6, 1);
    monitored.wait_for("redis_script_values{key='charge_errors'} == 1");
    // Wait longer than the condition of an alert has to hold here.
    sleep(Duration::from_secs(4));
    let of_calls = ["ManyCallsLimited", "CallsWithErrors", "CallsRejected"];
    for alert in of_calls.iter().chain(&["CountsMissing", "ExporterGone", "LimitByShare", "LimitFailsClosed"]) {
        assert!(!monitored.fires(alert), "{alert}");
    }
    monitored.call(1_000, 0);
    monitored.wait_until_fires("ManyCallsLimited");
    assert!(!monitored.fires("CallsWithErrors"));
    monitored.call(0, 50);
    monitored.wait_until_fires("CallsWithErrors");
    assert!(!monitored.fires("CallsRejected"));
    let mut connection = monitored.server.connect();
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    for _ in 0..50 {
        assert!(error_of(&mut connection, "CL.THROTTLE key 0 1 600").starts_with("OOM "));
    }
    monitored.wait_until_fires("CallsRejected");
}

#[test]
fn alerts_fire_without_the_server_and_without_the_exporter() {
    needs!(SCRIPTS_TEST);
    let Some(mut monitored) = Monitored::start() else { return };
    assert_eq!(monitored.visit(), 200);
    monitored.wait_for("limit_calls_total{limit='visitor', result='allowed'} == 1");
    monitored.server.kill();
    monitored.wait_until_fires("CountsMissing");
    wait_until("LimitByShare and LimitFailsClosed", || {
        // The application's share of the visitor's limit is soon used up.
        assert!([200, 429].contains(&monitored.visit()));
        assert_eq!(monitored.log_in(), 503);
        monitored.fires("LimitByShare") && monitored.fires("LimitFailsClosed")
    });
    assert!(!monitored.fires("ExporterGone"));
    monitored.exporter.0.kill().unwrap();
    monitored.wait_until_fires("ExporterGone");
}

/// queries.py prints the dashboard's queries, one a line: those that list the exporters and the applications, and then
/// each panel's, once for every address and once for the one address that this test has started.
#[test]
fn each_query_of_the_dashboard_has_an_answer() {
    needs!(SCRIPTS_TEST);
    let Some(monitored) = Monitored::start() else { return };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/once/monitoring/queries.py");
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
