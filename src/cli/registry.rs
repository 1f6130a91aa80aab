//! `ottla registry export` and `import`: what a cluster is made of, out of one registry and into another.
//!
//! One JSON object a line, sorted by key: `{"key":"/topics/t","value":{…}}`; a value that is no JSON stands as a
//! string. What belongs to running brokers (registrations, the controller's seat) stays behind.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::broker::etcd_config;
use crate::config::BrokerConfig;
use crate::log::LogManager;
use crate::registry::{Compare, Embedded, Etcd, Key, Op, Registry};
use crate::time::{Clock, SystemClock};

const PAGE_KEYS: usize = 1_000;
/// Keys in one transaction.
const BATCH_KEYS: usize = 100;
const BATCH_BYTES: usize = 1 << 20;

/// What can be done with a registry.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum RegistryCommand {
    /// Prints the registry that a configuration names: that of the data directory (whose broker must not
    /// run), or etcd where etcd.endpoints is set.
    Export(Source),
    /// Reads what `export` printed and writes it into the registry that a configuration names, which must
    /// be empty.
    Import {
        #[command(flatten)]
        source: Source,
        /// The file; without it standard input.
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
}

/// Which registry.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Source {
    /// Kafka's configuration file.
    #[arg(value_name = "server.properties")]
    file: Option<PathBuf>,
    /// Sets one key, whatever the file and the environment say; can be given many times.
    #[arg(long = "override", value_name = "key=value")]
    overrides: Vec<String>,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    key: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

impl RegistryCommand {
    pub(super) fn run(&self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let outcome = match runtime {
            Ok(runtime) => runtime.block_on(self.done()),
            Err(error) => Err(error).context("start the runtime"),
        };
        match outcome {
            Ok(count) => {
                eprintln!("ottla: {count} keys");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("ottla: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    async fn done(&self) -> anyhow::Result<usize> {
        match self {
            Self::Export(source) => {
                let opened = source.open().await?;
                let out = BufWriter::new(io::stdout().lock());
                let count = export(opened.registry.as_ref(), out).await?;
                opened.close().await?;
                Ok(count)
            }
            Self::Import { source, from } => {
                let lines: Box<dyn BufRead> = match from {
                    Some(path) => {
                        let file = std::fs::File::open(path)
                            .with_context(|| format!("open {}", path.display()))?;
                        Box::new(BufReader::new(file))
                    }
                    None => Box::new(io::stdin().lock()),
                };
                let opened = source.open().await?;
                let count = import(opened.registry.as_ref(), lines).await?;
                opened.close().await?;
                Ok(count)
            }
        }
    }
}

/// A registry, and what keeps others out of it meanwhile.
struct Opened {
    registry: Arc<dyn Registry>,
    _claimed: Vec<crate::log::ClaimedDirectory>,
}

impl Opened {
    async fn close(self) -> anyhow::Result<()> {
        self.registry.close().await.context("close the registry")
    }
}

impl Source {
    async fn open(&self) -> anyhow::Result<Opened> {
        let loaded =
            BrokerConfig::load(self.file.as_deref(), super::environment(), &self.overrides)?;
        let config = loaded.config;
        if !config.etcd_endpoints.is_empty() {
            let endpoints = config.etcd_endpoints.join(",");
            let etcd = Etcd::connect(&etcd_config(&config)?).await;
            let etcd = etcd.with_context(|| format!("etcd.endpoints={endpoints}"))?;
            return Ok(Opened {
                registry: Arc::new(etcd),
                _claimed: Vec::new(),
            });
        }
        let claimed = LogManager::claim(&config.log_dirs)?;
        let directory = config
            .log_dirs
            .first()
            .context("log.dirs names no directory")?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let registry = Embedded::open(directory.join("registry.redb"), clock)
            .await
            .with_context(|| format!("log.dirs={}: open the registry", directory.display()))?;
        Ok(Opened {
            registry: Arc::new(registry),
            _claimed: claimed,
        })
    }
}

/// Whether a key belongs to a broker that runs, or to this registry alone.
fn is_of_the_moment(key: &str) -> bool {
    matches!(
        Key::parse(key),
        Some(Key::Broker(_) | Key::Controller | Key::Imported)
    )
}

async fn export(registry: &dyn Registry, mut out: impl Write) -> anyhow::Result<usize> {
    let mut count = 0;
    let mut page = registry.range("/", "", PAGE_KEYS, 0).await?;
    let revision = page.revision;
    loop {
        for entry in &page.entries {
            if entry.lease != 0 || is_of_the_moment(&entry.key) {
                continue;
            }
            let text = std::str::from_utf8(&entry.value)
                .with_context(|| format!("{} is no text", entry.key))?;
            let value = match serde_json::from_str::<&RawValue>(text) {
                Ok(json) if json.get().starts_with(['{', '[']) => json.to_owned(),
                _ => RawValue::from_string(serde_json::to_string(text)?)?,
            };
            let line = Line {
                key: entry.key.clone(),
                value: &value,
            };
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
            count += 1;
        }
        let Some(from) = page.next_key else { break };
        page = registry.range("/", &from, PAGE_KEYS, revision).await?;
    }
    out.flush()?;
    Ok(count)
}

/// The cluster's id is written last, and is what makes a registry one: an import that was interrupted is
/// none, and is done again over what it left.
async fn import(registry: &dyn Registry, lines: impl BufRead) -> anyhow::Result<usize> {
    if let Some(id) = registry.get(&Key::ClusterId.to_string()).await? {
        bail!(
            "the registry belongs to the cluster {} already: import into an empty one (another \
             etcd.prefix or log.dirs)",
            String::from_utf8_lossy(&id.value)
        );
    }
    let mut count = 0;
    let mut batch = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line.with_context(|| format!("read line {number}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let Line { key, value } =
            serde_json::from_str(&line).with_context(|| format!("line {number}"))?;
        let Some(parsed) = Key::parse(&key) else {
            bail!("line {number}: {key} is not a key of this version");
        };
        if is_of_the_moment(&key) {
            continue;
        }
        // A string is a value that is no JSON of its own.
        let value = match serde_json::from_str::<String>(value.get()) {
            Ok(text) => Bytes::from(text),
            Err(_) => Bytes::copy_from_slice(value.get().as_bytes()),
        };
        count += 1;
        bytes += key.len() + value.len();
        let put = Op::Put {
            key,
            value,
            lease: 0,
        };
        if parsed == Key::ClusterId {
            last = Some(put);
            continue;
        }
        batch.push(put);
        if batch.len() >= BATCH_KEYS || bytes >= BATCH_BYTES {
            write(registry, std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
    }
    let Some(last) = last else {
        bail!(
            "there is no {} in it: this is not a whole export",
            Key::ClusterId
        );
    };
    batch.push(last);
    // Its revisions are its own: brokers do not compare them with those that they have seen elsewhere.
    batch.push(Op::Put {
        key: Key::Imported.into(),
        value: Bytes::from(uuid::Uuid::new_v4().to_string()),
        lease: 0,
    });
    write(registry, batch).await?;
    Ok(count)
}

async fn write(registry: &dyn Registry, ops: Vec<Op>) -> anyhow::Result<()> {
    let new = Compare::CreateRevision {
        key: Key::ClusterId.into(),
        revision: 0,
    };
    let outcome = registry.txn(vec![new], ops).await?;
    if !outcome.succeeded {
        bail!("somebody else began to use the registry meanwhile");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn registry(directory: &tempfile::TempDir, name: &str) -> Embedded {
        let path = directory.path().join(name);
        Embedded::open(path, Arc::new(SystemClock)).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_exported_can_be_imported_and_exports_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let old = registry(&directory, "old").await;
        let lease = old
            .lease_grant(std::time::Duration::from_secs(60))
            .await
            .unwrap();
        let put = |key: &str, value: &str, lease| Op::Put {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            lease,
        };
        let mut ops = vec![
            put("/cluster/id", "1234567890123456789012", 0),
            put("/layout", "1", 0),
            put("/producer_ids/next", "3000", 0),
            put("/brokers/1", r#"{"endpoints":[],"incarnation":"x"}"#, lease),
            put("/controller", r#"{"broker":1}"#, lease),
            put("/epoch/controller", "4", 0),
        ];
        for topic in 0..250 {
            let value = format!(r#"{{"id":"AAAAAAAAAAAAAAAAAAAAAA","replicas":[[{topic}]]}}"#);
            ops.push(put(&format!("/topics/t{topic}"), &value, 0));
        }
        old.txn(vec![], ops).await.unwrap();
        let mut exported = Vec::new();
        assert_eq!(export(&old, &mut exported).await.unwrap(), 254);
        let text = String::from_utf8(exported.clone()).unwrap();
        assert!(
            text.starts_with("{\"key\":\"/cluster/id\",\"value\":\"1234567890123456789012\"}\n"),
            "{text}"
        );
        assert!(!text.contains("/brokers/1") && !text.contains("\"/controller\""));

        let new = registry(&directory, "new").await;
        assert_eq!(import(&new, &exported[..]).await.unwrap(), 254);
        let id = new.get("/cluster/id").await.unwrap().unwrap();
        assert!(new.get("/cluster/imported").await.unwrap().is_some());
        assert_eq!(id.value, "1234567890123456789012");
        let mut again = Vec::new();
        export(&new, &mut again).await.unwrap();
        assert_eq!(again, exported);
        let error = import(&new, &exported[..]).await.unwrap_err().to_string();
        assert!(error.contains("import into an empty one"), "{error}");
        let half = registry(&directory, "half").await;
        let without_id = text.split_once('\n').unwrap().1;
        assert!(import(&half, without_id.as_bytes()).await.is_err());
        assert!(
            import(&half, &b"{\"key\":\"/what\",\"value\":1}"[..])
                .await
                .is_err()
        );
        assert_eq!(import(&half, &exported[..]).await.unwrap(), 254);
    }
}
