//! Tests the alerts and the dashboard in docs/monitoring with promtool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::support::needs::{EVERYWHERE, needs};
use crate::support::pages::{ROOT, block, code, text_of, typed};
use crate::support::programs::output;
use crate::support::{Process, Server, ends_with_the_test, free_port, new_folder, run, throttle, wait_for, wait_until};

/// Returns the folder that contains promtool and the exporter.
fn executables() -> PathBuf {
    let prometheus = output(Command::new("scripts/servers").arg("monitoring").current_dir(ROOT));
    Path::new(&prometheus).parent().unwrap().to_path_buf()
}

fn promtool_tests(cases: &Path) {
    output(Command::new(executables().join("promtool")).args(["test", "rules"]).arg(cases));
}

#[test]
fn each_alert_fires_when_it_should() {
    needs!(EVERYWHERE);
    promtool_tests(&Path::new(ROOT).join("tests/project/limits.test.yml"));
}

/// docs/monitoring.md says that the Alertmanager listens on port 9093.
#[test]
fn prometheus_started_by_the_page_sends_alerts_to_the_alertmanager() {
    needs!(EVERYWHERE);
    let (folder, port) = (new_folder(), free_port());
    let page = text_of("docs/monitoring.md");
    let line = code(&page).find(|code| code.starts_with("prometheus ")).unwrap();
    let line = format!("{line} --web.listen-address 127.0.0.1:{port} --storage.tsdb.path {}", folder.path().display());
    let mut prometheus = ends_with_the_test("sh");
    prometheus.args(["-c", &format!("PATH={}:$PATH; exec {line}", executables().display())]);
    let _prometheus = Process::start(prometheus.current_dir(Path::new(ROOT).join("docs/monitoring")));
    wait_until("Prometheus knows the Alertmanager", || {
        let address = format!("127.0.0.1:{port}/api/v1/alertmanagers");
        let answer = Command::new("curl").args(["-sf", &address]).output().unwrap();
        String::from_utf8(answer.stdout).unwrap().contains("http://127.0.0.1:9093/")
    });
}

/// Starts the exporter with the command and the user from docs/monitoring.md. Returns the exported metrics.
fn metrics() -> Vec<String> {
    let (server, mut connection) = Server::start().connected();
    run::<()>(&mut connection, &typed("ACL SETUSER exporter")).unwrap();
    throttle(&mut connection, "key 0 1 60");
    let address = format!("127.0.0.1:{}", free_port());
    let line = block("sh", "prometheus-redis-exporter").replace("127.0.0.1:9121", &address);
    let line = line.replace("127.0.0.1:6379", &format!("127.0.0.1:{}", server.port));
    let mut exporter = ends_with_the_test("sh");
    exporter.args(["-c", &format!("PATH={}:$PATH; exec {line}", executables().display())]);
    let _exporter = Process::start(exporter.current_dir(Path::new(ROOT).join("docs/monitoring")));
    let metrics = wait_for("the exporter exports", || {
        let answer = Command::new("curl").args(["-sf", &format!("{address}/metrics")]).output().unwrap();
        answer.status.success().then(|| String::from_utf8(answer.stdout).unwrap())
    });
    metrics.lines().filter(|line| line.starts_with("redis_")).map(String::from).collect()
}

/// For each panel, promtool checks that the query has a value when every series grows by one every 15 seconds.
#[test]
fn the_rules_and_the_dashboard_query_metrics_that_the_exporter_exports() {
    needs!(EVERYWHERE);
    let metrics = metrics();
    let (page, dashboard) = (text_of("docs/monitoring.md"), text_of("docs/monitoring/dashboard.json"));
    for text in [&page, &dashboard, &text_of("docs/monitoring/limits.rules.yml")] {
        let is_exported = |series: &str| metrics.iter().any(|metric| metric.starts_with(series));
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names = words.filter(|word| word.starts_with("redis_")).map(String::from);
        for series in names.chain(code(text).filter(|code| code.starts_with("redis_"))) {
            assert!(is_exported(&series), "the exporter does not export {series}");
        }
    }

    let series = metrics.iter().map(|metric| metric.rsplit_once(' ').unwrap().0);
    let series = series.map(|series| {
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        json!({"series": format!("{name}{{instance='a', {labels}"), "values": "0+1x40"})
    });
    let dashboard: Json = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().unwrap()).map(|target| {
        let query = target["expr"].as_str().unwrap().replace("$instance", "a");
        let found = json!([{"labels": "{}", "value": 1}]);
        json!({"expr": format!("count({query}) > bool 0"), "eval_time": "10m", "exp_samples": found})
    });
    let queries: Vec<_> = queries.collect();
    assert!(!queries.is_empty(), "no panel has a query");
    let test = json!({"interval": "15s", "input_series": series.collect::<Vec<_>>(), "promql_expr_test": queries});
    let folder = new_folder();
    let file = folder.path().join("dashboard.test.yml");
    // Write JSON, which is also valid YAML.
    fs::write(&file, json!({"tests": [test]}).to_string()).unwrap();
    promtool_tests(&file);
}
