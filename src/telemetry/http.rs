//! A small HTTP server: metrics for Prometheus, health for whoever restarts brokers.

use std::fmt::Write;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::metrics::Metrics;
use super::render::{Format, PageLimits, PageOptions, Scrape};
use super::samples::ScrapeSource;
use crate::time::Clock;

/// Requests are a line and a few headers.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const CONNECTIONS_MAX: usize = 16;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What the server shows.
#[derive(Debug, Clone)]
pub struct Pages {
    pub metrics: Arc<Metrics>,
    pub source: Arc<dyn ScrapeSource>,
    pub clock: Arc<dyn Clock>,
    pub limits: PageLimits,
}

/// Serves until `stop` resolves; connections that are open then are dropped. Whatever goes wrong with
/// a connection ends that connection only.
pub async fn serve(listener: TcpListener, pages: Pages, stop: impl Future<Output = ()> + Send) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tasks = tokio_util::task::TaskTracker::new();
    let stopped = tokio_util::sync::CancellationToken::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((socket, _)) = accepted else {
            // Out of file descriptors, most likely: no busy loop.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Over the limit the connection is closed: a scraper comes again.
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            continue;
        };
        let pages = pages.clone();
        let stopped = stopped.clone();
        tasks.spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = answer(socket, &pages) => {}
                () = stopped.cancelled() => {}
            }
        });
    }
    stopped.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Reads one request, writes one answer.
async fn answer(mut socket: impl AsyncRead + AsyncWrite + Unpin, pages: &Pages) {
    let reading = tokio::time::timeout(READ_TIMEOUT, read_head(&mut socket));
    let Ok(Some(head)) = reading.await else {
        return;
    };
    let writing = respond(&mut socket, &head, pages);
    // A client that does not read is left alone after a while; what it got is what it got.
    let _ = tokio::time::timeout(WRITE_TIMEOUT, writing).await;
}

/// The head of a request; `None` if there was none of a reasonable size.
async fn read_head(socket: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    let mut chunk = [0; 512];
    loop {
        let count = socket.read(&mut chunk).await.ok()?;
        if count == 0 {
            return None;
        }
        head.extend_from_slice(&chunk[..count]);
        if head.windows(4).any(|window| window == b"\r\n\r\n")
            || head.windows(2).any(|window| window == b"\n\n")
        {
            return Some(head);
        }
        if head.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
}

async fn respond(
    socket: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    pages: &Pages,
) -> std::io::Result<()> {
    let line = head.split(|&byte| byte == b'\r' || byte == b'\n').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let (path, query) = target
        .and_then(|target| target.split_once('?'))
        .unwrap_or((target.unwrap_or_default(), ""));
    let (status, body) = match (method, path) {
        ("GET", "/" | "/metrics") => return page(socket, pages, format(head, query)).await,
        ("HEAD", "/" | "/metrics") => ("200 OK", String::new()),
        ("GET" | "HEAD", "/healthz") => ("200 OK", health(pages)),
        ("GET" | "HEAD", "/readyz") => readiness(pages),
        ("GET" | "HEAD", "/v1/ready") if pages.metrics.is_running() => {
            ("204 No Content", String::new())
        }
        ("GET" | "HEAD", "/v1/ready") => ("503 Service Unavailable", "not ready\n".to_string()),
        ("GET" | "HEAD", "/config") => ("200 OK", pages.source.config()),
        ("GET" | "HEAD", "/v1/broker-state") => (
            "200 OK",
            format!("{{\"brokerState\":{}}}\n", pages.metrics.state()),
        ),
        ("GET" | "HEAD", _) => ("404 Not Found", "not found\n".to_string()),
        _ => ("405 Method Not Allowed", "only GET and HEAD\n".to_string()),
    };
    let mut answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    let content = match body.starts_with('{') {
        true => "application/json",
        false => "text/plain; charset=utf-8",
    };
    if !status.starts_with("204") {
        // Writing to a `String` cannot fail.
        let _ = write!(
            answer,
            "Content-Type: {content}\r\nContent-Length: {}\r\n",
            body.len()
        );
    }
    answer.push_str("\r\n");
    if method != "HEAD" {
        answer.push_str(&body);
    }
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await
}

/// What a scraper wants. Prometheus asks for OpenMetrics, and gets Kafka's own spelling of labels with it;
/// `?labels=kafka` and `?labels=snake` say which, whoever asks.
fn format(head: &[u8], query: &str) -> Format {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let open = headers
        .any(|(name, value)| name == "accept" && value.contains("application/openmetrics-text"));
    let mut format = if open {
        Format::OPEN_METRICS
    } else {
        Format::TEXT
    };
    for parameter in query.split('&') {
        match parameter {
            "labels=kafka" => format.kafka_labels = true,
            "labels=snake" => format.kafka_labels = false,
            _ => {}
        }
    }
    format
}

/// Whether clients can be sent here, and what is missing: a line each.
fn readiness(pages: &Pages) -> (&'static str, String) {
    let readiness = pages.source.readiness();
    if readiness.is_ready() {
        return ("200 OK", "ready\n".to_string());
    }
    let mut text = "not ready\n".to_string();
    for missing in readiness.missing {
        text.push_str(&missing);
        text.push('\n');
    }
    ("503 Service Unavailable", text)
}

/// Alive, and a line for each log directory with a trouble. The status stays 200: what is left is served,
/// and a restart would mend nothing.
fn health(pages: &Pages) -> String {
    let mut text = "ok\n".to_string();
    for log_dir in pages.source.log_dirs() {
        let state = match (log_dir.offline, log_dir.full) {
            (true, _) => "offline",
            (false, true) => "full",
            (false, false) => continue,
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "log directory {} is {state}", log_dir.path);
    }
    text
}

/// The metrics, part by part: the end of the connection is the end of the page.
async fn page(
    socket: &mut (impl AsyncWrite + Unpin),
    pages: &Pages,
    format: Format,
) -> std::io::Result<()> {
    let options = PageOptions {
        limits: pages.limits,
        format,
        now: pages.clock.now(),
    };
    let mut scrape = Scrape::new(&pages.metrics, pages.source.as_ref(), options).await;
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {}\r\n\r\n",
        format.content_type()
    );
    socket.write_all(head.as_bytes()).await?;
    while let Some(part) = scrape.next_part() {
        socket.write_all(part.as_bytes()).await?;
        // Requests wait for the same threads.
        tokio::task::yield_now().await;
    }
    socket.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::BrokerState;
    use crate::telemetry::samples::{
        ClusterSample, GroupSample, LogDirSample, PartitionSample, Readiness,
    };
    use crate::time::ManualClock;

    #[derive(Debug, Default)]
    struct Nothing(parking_lot::Mutex<Vec<String>>);

    impl ScrapeSource for Nothing {
        fn cluster(&self) -> ClusterSample {
            ClusterSample::default()
        }
        fn readiness(&self) -> Readiness {
            let missing = self.0.lock().clone();
            Readiness { missing }
        }
        fn config(&self) -> String {
            "{}\n".to_string()
        }
        fn damage_found(&self) -> u64 {
            0
        }

        fn log_dirs(&self) -> Vec<LogDirSample> {
            let log_dir = |path: &str, full, offline| LogDirSample {
                path: path.to_owned(),
                full,
                offline,
            };
            vec![
                log_dir("/good", false, false),
                log_dir("/small", true, false),
                log_dir("/bad", true, true),
            ]
        }
        fn partitions(&self) -> Vec<PartitionSample> {
            Vec::new()
        }
        fn groups(&self) -> futures_util::future::BoxFuture<'_, Vec<GroupSample>> {
            Box::pin(std::future::ready(Vec::new()))
        }
    }

    fn pages() -> Pages {
        Pages {
            metrics: Arc::new(Metrics::new()),
            source: Arc::new(Nothing::default()),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            limits: PageLimits {
                series: 100_000,
                bytes: 8 << 20,
            },
        }
    }

    async fn ask(pages: &Pages, request: &str) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(request.as_bytes()).await.unwrap();
        answer(server, pages).await;
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn metrics_and_health_are_served() {
        let pages = pages();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let metrics = ask(&pages, &get("/metrics")).await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("version=0.0.4"));
        assert!(metrics.contains("\nprocess_cpu_seconds_total "));
        assert!(ask(&pages, &get("/")).await.contains("process_open_fds"));
        let health = ask(&pages, &get("/healthz")).await;
        assert!(health.contains(" 200 OK"));
        let troubles = "log directory /small is full\nlog directory /bad is offline\n";
        assert!(health.ends_with(&format!("\r\nok\n{troubles}")), "{health}");
        assert!(ask(&pages, &get("/v1/ready")).await.contains(" 503 "));
        let config = ask(&pages, &get("/config")).await;
        assert!(config.contains("application/json") && config.ends_with("{}\n"));
        pages.metrics.set_state(BrokerState::Running);
        assert!(
            ask(&pages, &get("/readyz?verbose"))
                .await
                .contains(" 200 OK")
        );
        let ready = ask(&pages, &get("/v1/ready")).await;
        assert_eq!(
            ready,
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
        );
        let state = ask(&pages, &get("/v1/broker-state")).await;
        assert!(state.ends_with("{\"brokerState\":3}\n"), "{state}");
        assert!(ask(&pages, &get("/favicon.ico")).await.contains(" 404 "));
        let post = ask(&pages, "POST /metrics HTTP/1.1\r\n\r\n").await;
        assert!(post.contains(" 405 "), "{post}");
        let head = ask(&pages, "HEAD /healthz HTTP/1.1\r\n\r\n").await;
        assert!(head.ends_with("\r\n\r\n"), "{head}");
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let source = Arc::new(Nothing::default());
        source.0.lock().push("registration: no".to_string());
        let pages = Pages {
            source: Arc::clone(&source) as Arc<dyn ScrapeSource>,
            ..pages()
        };
        let get = "GET /readyz HTTP/1.1\r\n\r\n";
        let answer = ask(&pages, get).await;
        assert!(answer.contains(" 503 "), "{answer}");
        assert!(
            answer.ends_with("\r\nnot ready\nregistration: no\n"),
            "{answer}"
        );
        source.0.lock().clear();
        let answer = ask(&pages, get).await;
        assert!(answer.contains(" 200 ") && answer.ends_with("\r\nready\n"));
    }

    #[tokio::test]
    async fn prometheus_gets_open_metrics_and_kafkas_labels() {
        let pages = pages();
        let listener = "PLAINTEXT".into();
        pages.metrics.listener(&listener).opened();
        let accept = "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1";
        let page = ask(
            &pages,
            &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"),
        )
        .await;
        assert!(page.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
        assert!(page.contains("networkProcessor=\"0\"") && page.ends_with("\n# EOF\n"));
        assert!(page.contains("\n# TYPE process_cpu_seconds counter\n"));
        let snake = ask(&pages, "GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(snake.contains("network_processor=\"0\"") && !snake.contains("# EOF"));
        let asked = ask(&pages, "GET /metrics?labels=kafka HTTP/1.1\r\n\r\n").await;
        assert!(asked.contains("networkProcessor=\"0\"") && asked.contains("version=0.0.4"));
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_are_dropped_without_an_answer() {
        let pages = pages();
        assert_eq!(ask(&pages, &"x".repeat(REQUEST_BYTES_MAX + 600)).await, "");
        // Half a request, and nothing more: five (paused) seconds later the connection is gone.
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"GET /metr").await.unwrap();
        answer(server, &pages).await;
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "");
    }

    #[tokio::test]
    async fn a_real_socket_is_served_and_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(serve(listener, pages(), async {
            let _ = stopped.await;
        }));
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX - 1 {
            idle.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"GET /healthz HTTP/1.0\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("\r\nok\n"), "{text}");
        stop.send(()).unwrap();
        serving.await.unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    }
}
