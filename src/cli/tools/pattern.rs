//! Lists of topics as Kafka's tools take them: regular expressions between commas.

use regex_lite::Regex;

use crate::types::is_internal_topic;

/// Kafka's `TopicFilter.IncludeList`.
#[derive(Debug, Clone)]
pub(crate) struct TopicPattern {
    whole: Regex,
}

impl TopicPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let quotes = ['"', '\''];
        let text = text.trim().replace(',', "|").replace(' ', "");
        let text = text.trim_start_matches(quotes).trim_end_matches(quotes);
        let whole = Regex::new(&format!("^(?:{text})$"));
        let whole = whole.map_err(|_| format!("{text} is an invalid regex."))?;
        Ok(Self { whole })
    }

    pub(crate) fn allows(&self, topic: &str, exclude_internal: bool) -> bool {
        self.whole.is_match(topic) && !(exclude_internal && is_internal_topic(topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_patterns() {
        let pattern = TopicPattern::parse(" \"a.*, b\" ").unwrap();
        let allowed = ["a", "abc", "b", "bc", "ba"].map(|topic| pattern.allows(topic, false));
        assert_eq!(allowed, [true, true, true, false, false]);
        let all = TopicPattern::parse(".*").unwrap();
        assert!(all.allows("__consumer_offsets", false));
        assert!(!all.allows("__consumer_offsets", true));
        assert_eq!(
            TopicPattern::parse("a[").unwrap_err(),
            "a[ is an invalid regex."
        );
    }
}
