//! docs/monitoring.md with its own lines and files: the real exporter reads the counts, the real Prometheus gathers
//! them and answers the dashboard, and promtool plays hours of the alerts.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use redis::Value;
use serde_json::Value as Json;

use crate::support::needs::{EVERYWHERE, UVICORN, needs};
use crate::support::pages::{ROOT, block, create_exporter, text_of};
use crate::support::programs::output;
use crate::support::{Process, Server, ends_with_the_test, free_port, new_folder, run, wait_until};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring");
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/project/limits.test.yml");

/// Returns the folder of Prometheus, its promtool and the exporter.
fn executables() -> PathBuf {
    let prometheus = output(Command::new("scripts/servers").arg("monitoring").current_dir(ROOT));
    Path::new(&prometheus).parent().unwrap().to_path_buf()
}

#[test]
fn each_alert_fires_in_the_hours_that_promtool_plays() {
    needs!(EVERYWHERE);
    output(Command::new(executables().join("promtool")).args(["test", "rules", CASES]));
}

/// Returns the dashboard's queries, for the address of an exporter and of an application: each variable's; each panel's,
/// for all addresses and for these.
fn queries(addresses: [&str; 2]) -> Vec<String> {
    let dashboard: Json = serde_json::from_str(&text_of("docs/monitoring/dashboard.json")).unwrap();
    let mut queries = Vec::new();
    // The first variable is the source of the data.
    let variables = &dashboard["templating"]["list"].as_array().unwrap()[1..];
    for (variable, address) in variables.iter().zip(addresses) {
        let query = variable["query"]["query"].as_str().unwrap();
        let metric = query.strip_prefix("label_values(").unwrap().strip_suffix(", instance)").unwrap();
        queries.push(format!("{metric}{{instance=\"{address}\"}}"));
    }
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    for expression in targets.map(|target| target["expr"].as_str().unwrap()) {
        assert!(expression.contains("{instance=~'$"), "{expression}");
        for [instance, application] in [[".+"; 2], addresses] {
            queries.push(expression.replace("$instance", instance).replace("$application", application));
        }
    }
    queries
}

#[test]
fn the_dashboard_has_queries() {
    let queries = queries(["10.0.0.1:9121", "10.0.0.2:8000"]);
    assert!(queries.len() >= 14, "{queries:#?}");
}

/// The server, the application of docs/protect.md, the exporter and Prometheus are started by the page's lines and
/// files, with a second for every 15.
#[test]
fn prometheus_answers_the_dashboard_from_the_counts_that_it_gathers() {
    needs!(EVERYWHERE);
    needs!(UVICORN);
    let (server, mut connection) = Server::start().connected();
    run::<()>(&mut connection, &create_exporter()).unwrap();
    let executables = executables();
    let [exporter_at, application_at, prometheus_at] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));

    // The page's lines copy the application's files into a folder, and the last one starts it.
    let folder = new_folder();
    let lines = block("sh", "uvicorn").replace("/tmp/protect", folder.path().to_str().unwrap());
    let (copy, _) = lines.rsplit_once("\ncd ").unwrap();
    output(Command::new("bash").args(["-ec", copy]).current_dir(ROOT));
    let mut uvicorn = ends_with_the_test("/usr/bin/python3");
    uvicorn.args(["-B", "-m", "uvicorn", "--no-proxy-headers", "protect:app", "--port", &application_at[10..]]);
    uvicorn
        .current_dir(folder.path())
        .env("PYTHONPATH", ".")
        .env("REDIS_URL", format!("redis://127.0.0.1:{}", server.port))
        .stdout(Stdio::null());
    let _application = Process::start(&mut uvicorn);
    wait_until("the application answers", || TcpStream::connect(&application_at).is_ok());
    // Returns whether the application allows a visit.
    let visit = || {
        let mut curl = Command::new("curl");
        output(curl.args(["-so/dev/null", "-w%{http_code}", &format!("http://{application_at}/items/7")])) == "200"
    };

    let line = block("sh", "prometheus-redis-exporter");
    let line = line.replace("6379", &server.port.to_string()).replace("127.0.0.1:9121", &exporter_at);
    let mut exporter = ends_with_the_test("sh");
    let path = format!("{}:{}", executables.display(), std::env::var("PATH").unwrap());
    exporter.arg("-c").arg(format!("exec {line}")).current_dir(FILES).env("PATH", path);
    let _exporter = Process::start(&mut exporter);

    let folder = server.folder.join("prometheus");
    fs::create_dir(&folder).unwrap();
    fs::copy(Path::new(FILES).join("limits.rules.yml"), folder.join("limits.rules.yml")).unwrap();
    let settings = fs::read_to_string(Path::new(FILES).join("prometheus.yml")).unwrap().replace("15s", "1s");
    let settings = settings.replace("127.0.0.1:9121", &exporter_at).replace("127.0.0.1:8000", &application_at);
    fs::write(folder.join("prometheus.yml"), settings).unwrap();
    let mut prometheus = ends_with_the_test(executables.join("prometheus"));
    prometheus.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]).current_dir(&folder);
    prometheus.arg(format!("--web.listen-address={prometheus_at}"));
    let _prometheus = Process::start(&mut prometheus);

    // Returns a line for each series: {key="throttle_allowed"} => 1 @[1700000000]
    let query = |expression: &str| {
        let mut promtool = Command::new(executables.join("promtool"));
        promtool.args(["query", "instant", &format!("http://{prometheus_at}"), expression]);
        String::from_utf8(promtool.output().unwrap().stdout).unwrap()
    };
    let throttle = |connection: &mut redis::Connection| run::<Value>(connection, "CL.THROTTLE key 0 1 600").unwrap();

    let allowed = (0..6).filter(|_| visit()).count();
    (0..3).for_each(|_| drop(throttle(&mut connection)));
    run::<Value>(&mut connection, "CL.CHARGE key 0 1 0 1").unwrap_err();
    for (series, count) in [
        ("redis_script_values{key='throttle_allowed'}", allowed + 1),
        ("redis_script_values{key='throttle_limited'}", 6 - allowed + 2),
        ("redis_script_values{key='charge_errors'}", 1),
        ("limit_calls_total{limit='visitor', result='allowed'}", allowed),
        ("limit_calls_total{limit='visitor', result='limited'}", 6 - allowed),
    ] {
        wait_until(series, || !query(&format!("{series} == {count}")).trim().is_empty());
    }

    for expression in queries([&exporter_at, &application_at]) {
        // The rates need calls in several of Prometheus's rounds.
        wait_until(&expression, || {
            throttle(&mut connection);
            let _ = (visit(), run::<Value>(&mut connection, "CL.CHARGE key 0 1 0 1"));
            sleep(Duration::from_millis(100));
            // The time of a command without recent calls is 0 / 0.
            query(&expression).lines().any(|line| line.contains("} => ") && !line.contains("NaN"))
        });
    }
}
