//! docs/monitoring.md with its own lines and files: the real exporter reads the counts, the real Prometheus gathers
//! them and answers the dashboard, and promtool plays hours of the alerts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
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
use crate::support::{Process, Server, ends_with_the_test, free_port, new_folder, run, wait_for, wait_until};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring");
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/one_server/monitoring/limits.test.yml");

/// Returns the folder of Prometheus, its promtool and the exporter.
fn executables() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers");
    let output = Command::new(script).arg("--monitoring").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "Prometheus and its exporter cannot be had: see above");
    let prometheus = String::from_utf8(output.stdout).unwrap();
    Path::new(prometheus.trim_end()).parent().unwrap().to_path_buf()
}

#[test]
fn each_alert_fires_in_the_hours_that_promtool_plays() {
    needs!(EVERYWHERE);
    output(Command::new(executables().join("promtool")).args(["test", "rules", CASES]));
}

/// Returns the dashboard's queries: each variable's; each panel's, for every address and for the one of an exporter or of
/// an application.
fn queries(addresses: [&str; 2]) -> Vec<String> {
    let dashboard: Json = serde_json::from_str(&text_of("docs/monitoring/dashboard.json")).unwrap();
    let list = |of: &Json| of.as_array().unwrap().clone();
    let variables = ["instance", "application"].into_iter().zip(addresses);
    let mut queries = Vec::new();
    // The first variable is the source of the data.
    for (variable, (name, address)) in list(&dashboard["templating"]["list"])[1..].iter().zip(variables.clone()) {
        let query = variable["query"]["query"].as_str().unwrap();
        let metric = query.strip_prefix("label_values(").unwrap().strip_suffix(", instance)").unwrap();
        assert_eq!(variable["name"], name);
        queries.push(format!("{metric}{{instance=\"{address}\"}}"));
    }
    for panel in list(&dashboard["panels"]) {
        assert!(["title", "description"].iter().all(|text| panel[text].as_str().is_some_and(|text| !text.is_empty())));
        for target in list(&panel["targets"]) {
            let expression = target["expr"].as_str().unwrap();
            let is_for = |name: &str| expression.contains(&format!("instance=~'${name}'"));
            let (name, address) = variables.clone().find(|(name, _)| is_for(name)).expect(expression);
            queries.extend([".+", address].map(|address| expression.replace(&format!("${name}"), address)));
        }
    }
    queries
}

#[test]
fn the_dashboard_has_titles_descriptions_and_queries() {
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
    // Returns whether the application allows a visit, once it answers.
    let visit = || {
        let mut stream = wait_for("the application answers", || TcpStream::connect(&application_at).ok());
        stream.write_all(b"GET /items/7 HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 200 ")
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

    // The exporter also tries the commands that the page names; the server refuses them, and the exporter goes on.
    let log: Vec<BTreeMap<String, Value>> = run(&mut connection, "ACL LOG 100").unwrap();
    let page = text_of("docs/monitoring.md");
    for entry in log {
        let refused: String = redis::from_redis_value_ref(&entry["object"]).unwrap();
        let command = refused.replace('|', " ").to_uppercase();
        assert!(page.contains(&format!("`{command}`")), "{command}");
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
