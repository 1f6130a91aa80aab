//! Looks a request's body over before the codec does.
//!
//! The codec believes every array length (`Vec::with_capacity`), which a dozen bytes suffice to turn
//! into an abort of the process. So each body is first walked by its schema: a count or length must fit
//! what is left of the body, null may stand only where it may, and all elements together are bounded,
//! because an honest array costs memory many times its bytes too.

mod schema;

use schema::{Field, Kind, SCHEMAS, Schema};

use super::wire::{Cursor, MalformedBody};

/// What is known of a body that may be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyShape {
    /// Array elements and tagged fields of all levels: what the decoded request costs beyond the bytes
    /// of its frame is in proportion to these.
    pub elements: usize,
}

/// Checks a body without allocation. Bytes behind it are ignored, as Kafka does.
pub fn check(api_key: i16, version: i16, body: &[u8]) -> Result<BodyShape, MalformedBody> {
    let schema = find(api_key, version).ok_or(MalformedBody::UnknownApi)?;
    let walk = Walk {
        version,
        flexible: version >= schema.flexible,
    };
    let mut cursor = Cursor::new(body, walk.flexible);
    walk.structure(schema.body, &mut cursor)?;
    Ok(BodyShape {
        elements: cursor.elements(),
    })
}

fn find(api_key: i16, version: i16) -> Option<&'static Schema> {
    let index = SCHEMAS
        .binary_search_by_key(&api_key, |schema| schema.key)
        .ok()?;
    let schema = &SCHEMAS[index];
    let (min, max) = schema.versions;
    (min..=max).contains(&version).then_some(schema)
}

/// The version that is walked.
#[derive(Clone, Copy)]
struct Walk {
    version: i16,
    flexible: bool,
}

impl Walk {
    fn structure(
        self,
        fields: &'static [Field],
        cursor: &mut Cursor<'_>,
    ) -> Result<(), MalformedBody> {
        for field in fields {
            if field.is_in(self.version) && field.tag.is_none() {
                self.field(field, cursor)?;
            }
        }
        cursor.tags(|tag, content| {
            let known = fields
                .iter()
                .find(|field| field.tag == Some(tag) && field.is_in(self.version));
            if let Some(field) = known {
                self.field(field, content)?;
            }
            Ok(known.is_some())
        })
    }

    fn field(self, field: &'static Field, cursor: &mut Cursor<'_>) -> Result<(), MalformedBody> {
        let nullable = field.is_nullable(self.version);
        let present = match field.kind {
            Kind::Fixed(bytes) => {
                cursor.take(bytes)?;
                true
            }
            Kind::String => cursor.nullable_string_bytes()?.is_some(),
            Kind::Bytes => cursor.nullable_bytes()?.is_some(),
            Kind::List(fields) => {
                let count = cursor.nullable_count(self.bytes_min(fields))?;
                for _ in 0..count.unwrap_or(0) {
                    self.structure(fields, cursor)?;
                }
                count.is_some()
            }
            Kind::Items(item) => {
                let count = cursor.nullable_count(self.field_bytes_min(item))?;
                for _ in 0..count.unwrap_or(0) {
                    self.field(item, cursor)?;
                }
                count.is_some()
            }
            Kind::Group(fields) => {
                let present = !nullable || cursor.i8()? >= 0;
                if present {
                    self.structure(fields, cursor)?;
                }
                present
            }
        };
        if present || nullable {
            Ok(())
        } else {
            Err(MalformedBody::Null)
        }
    }

    /// The fewest bytes that such a structure has.
    fn bytes_min(self, fields: &'static [Field]) -> usize {
        let fields = fields
            .iter()
            .filter(|field| field.is_in(self.version) && field.tag.is_none());
        let bytes: usize = fields.map(|field| self.field_bytes_min(field)).sum();
        bytes + usize::from(self.flexible)
    }

    fn field_bytes_min(self, field: &'static Field) -> usize {
        match field.kind {
            Kind::Fixed(bytes) => bytes,
            Kind::String if !self.flexible => 2,
            Kind::Bytes | Kind::List(_) | Kind::Items(_) if !self.flexible => 4,
            Kind::Group(fields) if !field.is_nullable(self.version) => self.bytes_min(fields),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests;
