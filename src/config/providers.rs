//! `config.providers`: values that are looked up in the environment, in files and in directories.

use std::collections::BTreeMap;

use super::{ConfigError, properties};

/// What an alias stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    Environment,
    File,
    Directory,
}

/// The providers that the configuration names, by alias.
#[derive(Debug)]
pub(super) struct Providers<'a> {
    by_alias: BTreeMap<String, Provider>,
    env: &'a [(String, String)],
}

impl<'a> Providers<'a> {
    /// Kafka's three providers are told by their class names; other classes cannot be loaded.
    pub(super) fn of(raw: &BTreeMap<String, String>, env: &'a [(String, String)]) -> Self {
        let aliases = raw.get("config.providers").map_or("", String::as_str);
        let by_alias = aliases
            .split(',')
            .map(str::trim)
            .filter_map(|alias| {
                let class = raw.get(&format!("config.providers.{alias}.class"))?;
                let provider = match class.trim().rsplit('.').next()? {
                    "EnvVarConfigProvider" => Provider::Environment,
                    "FileConfigProvider" => Provider::File,
                    "DirectoryConfigProvider" => Provider::Directory,
                    _ => return None,
                };
                Some((alias.to_string(), provider))
            })
            .collect();
        Self { by_alias, env }
    }

    /// Replaces each `${alias:path:name}` or `${alias:name}` of a known alias; others stay as they are.
    pub(super) fn resolve(&self, key: &str, value: &str) -> Result<String, ConfigError> {
        let mut resolved = String::with_capacity(value.len());
        let mut rest = value;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else {
                break;
            };
            let reference = &rest[start + 2..start + length];
            resolved.push_str(&rest[..start]);
            match self.look_up(key, value, reference)? {
                Some(found) => resolved.push_str(&found),
                None => resolved.push_str(&rest[start..=start + length]),
            }
            rest = &rest[start + length + 1..];
        }
        resolved.push_str(rest);
        Ok(resolved)
    }

    /// `None` where the alias is not known.
    fn look_up(
        &self,
        key: &str,
        value: &str,
        reference: &str,
    ) -> Result<Option<String>, ConfigError> {
        let Some((alias, rest)) = reference.split_once(':') else {
            return Ok(None);
        };
        let Some(provider) = self.by_alias.get(alias) else {
            return Ok(None);
        };
        let (path, name) = rest.rsplit_once(':').unwrap_or(("", rest));
        let found = match provider {
            Provider::Environment => {
                let entry = self.env.iter().find(|(variable, _)| variable == name);
                entry.map(|(_, value)| value.clone())
            }
            Provider::File => read(path).and_then(|text| {
                let entries = properties::parse(&text);
                let entry = entries.into_iter().rev().find(|(entry, _)| entry == name);
                entry.map(|(_, value)| value)
            }),
            Provider::Directory if name.contains('/') || name == ".." => None,
            Provider::Directory => {
                read(&format!("{path}/{name}")).map(|text| text.trim_end().to_string())
            }
        };
        found.map(Some).ok_or_else(|| {
            ConfigError::new(
                key,
                value,
                format!(
                    "${{{reference}}} cannot be looked up: check that it exists and can be read"
                ),
            )
        })
    }
}

fn read(path: &str) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_looked_up_where_their_alias_says() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), "from-dir\n").unwrap();
        std::fs::write(directory.path().join("all.properties"), "user=from-file\n").unwrap();
        let base = directory.path().display();
        let raw: BTreeMap<String, String> = [
            ("config.providers", "env, file,dir,vault"),
            (
                "config.providers.env.class",
                "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            ),
            (
                "config.providers.file.class",
                "org.apache.kafka.common.config.provider.FileConfigProvider",
            ),
            (
                "config.providers.dir.class",
                "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            ),
            ("config.providers.vault.class", "com.example.Vault"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
        let env = [("RACK".to_string(), "r7".to_string())];
        let providers = Providers::of(&raw, &env);
        let resolve = |value: &str| providers.resolve("broker.rack", value);
        assert_eq!(resolve("a-${env:RACK}-z").unwrap(), "a-r7-z");
        assert_eq!(
            resolve(&format!("${{file:{base}/all.properties:user}}")).unwrap(),
            "from-file"
        );
        assert_eq!(
            resolve(&format!("${{dir:{base}:secret}}")).unwrap(),
            "from-dir"
        );
        assert_eq!(resolve("${vault:x:y} $5 ${").unwrap(), "${vault:x:y} $5 ${");
        let error = resolve("${env:NOPE}").unwrap_err();
        assert_eq!(error.key, "broker.rack");
        assert!(error.fix.contains("${env:NOPE}"), "{error}");
        assert!(resolve(&format!("${{dir:{base}/x:../secret}}")).is_err());
    }
}
