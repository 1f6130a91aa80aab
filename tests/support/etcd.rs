//! An etcd of a test's own.
#![allow(dead_code)] // each test binary uses its part

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ottla::registry::{Etcd, EtcdConfig};

pub use super::support::free_port;

/// Killed when dropped.
pub struct EtcdProcess {
    child: Child,
    pub client_url: String,
    command: Vec<String>,
    directory: tempfile::TempDir,
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

impl EtcdProcess {
    /// Waits until it is there.
    pub async fn connect(&self, prefix: &str) -> Etcd {
        self.connect_as(EtcdConfig::new(vec![self.client_url.clone()], prefix))
            .await
    }

    /// The same with all that is to be said.
    pub async fn connect_as(&self, config: EtcdConfig) -> Etcd {
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

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// After [`Self::kill`], on what it left.
    pub fn spawn(&mut self) {
        self.child = spawn(&self.command).unwrap();
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// What `etcdctl` says of this etcd.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let (good, said) = self.run_ctl(arguments);
        assert!(good, "etcdctl {arguments:?}: {said}");
        said
    }

    /// `None` where that fails.
    pub fn try_ctl(&self, arguments: &[&str]) -> Option<String> {
        let (good, said) = self.run_ctl(arguments);
        good.then_some(said)
    }

    fn run_ctl(&self, arguments: &[&str]) -> (bool, String) {
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.client_url])
            .args(["--dial-timeout=1s", "--command-timeout=2s"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let error = String::from_utf8_lossy(&done.stderr);
        (done.status.success(), format!("{said}{error}"))
    }

    /// Makes its data anew from a snapshot.
    pub fn restore(&self, snapshot: &str) {
        let data = self.data();
        let of = |name: &str| {
            let at = self.command.iter().position(|argument| argument == name);
            self.command[at.unwrap() + 1].as_str()
        };
        self.ctl(&[
            "snapshot",
            "restore",
            snapshot,
            "--data-dir",
            data.to_str().unwrap(),
            "--name",
            of("--name"),
            "--initial-cluster",
            of("--initial-cluster"),
            "--initial-advertise-peer-urls",
            of("--initial-advertise-peer-urls"),
        ]);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// `None` where there is no etcd and none is required.
pub fn start_etcd() -> Option<EtcdProcess> {
    start_etcd_on(free_port())
}

/// The same with a port for its clients.
pub fn start_etcd_on(port: u16) -> Option<EtcdProcess> {
    start_etcd_with(&format!("http://127.0.0.1:{port}"), &[])
}

/// The same with more arguments.
pub fn start_etcd_with(client_url: &str, more: &[&str]) -> Option<EtcdProcess> {
    let peer_url = format!("http://127.0.0.1:{}", free_port());
    start_member(
        "test",
        client_url,
        &peer_url,
        &format!("test={peer_url}"),
        more,
    )
}

/// Members that know each other.
pub fn start_members<const COUNT: usize>() -> Option<[EtcdProcess; COUNT]> {
    let peers: [String; COUNT] =
        std::array::from_fn(|_| format!("http://127.0.0.1:{}", free_port()));
    let named = (0..).zip(&peers).map(|(n, peer)| format!("m{n}={peer}"));
    let all = named.collect::<Vec<_>>().join(",");
    let members = (0..).zip(&peers).map(|(n, peer)| {
        let client_url = format!("http://127.0.0.1:{}", free_port());
        start_member(&format!("m{n}"), &client_url, peer, &all, &[])
    });
    members.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn start_member(
    name: &str,
    client_url: &str,
    peer_url: &str,
    all: &str,
    more: &[&str],
) -> Option<EtcdProcess> {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let command = [
        &["--name", name, "--log-level", "error", "--data-dir", data][..],
        &["--listen-client-urls", client_url],
        &["--advertise-client-urls", client_url],
        &["--listen-peer-urls", peer_url],
        &["--initial-advertise-peer-urls", peer_url],
        &["--initial-cluster", all],
        more,
    ];
    let command: Vec<String> = command
        .concat()
        .iter()
        .map(|&text| text.to_owned())
        .collect();
    match spawn(&command) {
        Ok(child) => Some(EtcdProcess {
            child,
            client_url: client_url.to_owned(),
            command,
            directory,
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

fn spawn(command: &[String]) -> io::Result<Child> {
    Command::new("etcd")
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
