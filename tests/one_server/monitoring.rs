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

use crate::support::needs::{EVERYWHERE, UVICORN, needs};
use crate::support::pages::{ROOT, block, create_exporter, text_of};
use crate::support::programs::output;
use crate::support::{Process, Server, free_port, new_folder, run, wait_for, wait_until};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring");
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/one_server/monitoring/limits.test.yml");
const QUERIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/one_server/monitoring/queries.py");

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
    let mut uvicorn = Command::new("/usr/bin/python3");
    uvicorn.args(["-B", "-m", "uvicorn", "--no-proxy-headers", "protect:app", "--port", &application_at[10..]]);
    uvicorn
        .current_dir(folder.path())
        .env("PYTHONPATH", ".")
        .env("REDIS_PORT", server.port.to_string())
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
    let mut exporter = Command::new("sh");
    let path = format!("{}:{}", executables.display(), std::env::var("PATH").unwrap());
    exporter.arg("-c").arg(format!("exec {line}")).current_dir(FILES).env("PATH", path);
    let _exporter = Process::start(&mut exporter);

    let folder = server.folder.join("prometheus");
    fs::create_dir(&folder).unwrap();
    fs::copy(Path::new(FILES).join("limits.rules.yml"), folder.join("limits.rules.yml")).unwrap();
    let settings = fs::read_to_string(Path::new(FILES).join("prometheus.yml")).unwrap().replace("15s", "1s");
    let settings = settings.replace("127.0.0.1:9121", &exporter_at).replace("127.0.0.1:8000", &application_at);
    fs::write(folder.join("prometheus.yml"), settings).unwrap();
    let mut prometheus = Command::new(executables.join("prometheus"));
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

    // The dashboard's queries: each panel's, for every address, and for the one address that this test has started.
    let queries = output(Command::new("python3").args([QUERIES, &exporter_at, &application_at]).current_dir(FILES));
    assert!(queries.lines().count() >= 14, "{queries}");
    for expression in queries.lines() {
        // The rates need calls in several of Prometheus's rounds.
        wait_until(expression, || {
            throttle(&mut connection);
            let _ = (visit(), run::<Value>(&mut connection, "CL.CHARGE key 0 1 0 1"));
            sleep(Duration::from_millis(100));
            // The time of a command without recent calls is 0 / 0.
            query(expression).lines().any(|line| line.contains("} => ") && !line.contains("NaN"))
        });
    }
}
