//! An etcd of a test's own.
#![allow(dead_code)] // each test binary uses its part

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ottla::registry::{Etcd, EtcdConfig};

/// Killed when dropped.
pub struct EtcdProcess {
    child: Child,
    pub client_url: String,
    _directory: tempfile::TempDir,
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl EtcdProcess {
    /// Waits until it is there.
    pub async fn connect(&self, prefix: &str) -> Etcd {
        let config = EtcdConfig::new(vec![self.client_url.clone()], prefix);
        for _ in 0..100 {
            if let Ok(etcd) = Etcd::connect(&config).await {
                return etcd;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd does not come up");
    }

    /// It answers nobody until [`Self::resume`].
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// `None` where there is no etcd and none is required.
pub fn start_etcd() -> Option<EtcdProcess> {
    start_etcd_on(free_port())
}

/// The same with a port for its clients.
pub fn start_etcd_on(port: u16) -> Option<EtcdProcess> {
    let directory = tempfile::tempdir().unwrap();
    let client_url = format!("http://127.0.0.1:{port}");
    let peer_url = format!("http://127.0.0.1:{}", free_port());
    let spawned = Command::new("etcd")
        .args(["--name", "test", "--log-level", "error"])
        .args(["--listen-client-urls", &client_url])
        .args(["--advertise-client-urls", &client_url])
        .args(["--listen-peer-urls", &peer_url])
        .args(["--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &format!("test={peer_url}")])
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match spawned {
        Ok(child) => Some(EtcdProcess {
            child,
            client_url,
            _directory: directory,
        }),
        Err(error) => {
            let required = std::env::var("OTTLA_REQUIRE_ETCD").is_ok_and(|value| value == "1");
            assert!(
                !required,
                "OTTLA_REQUIRE_ETCD=1, but etcd cannot be started: {error}"
            );
            eprintln!(
                "NOT TESTED against etcd: it cannot be started ({error}); install etcd-server"
            );
            None
        }
    }
}
