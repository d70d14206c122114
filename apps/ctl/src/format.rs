//! The forms in which `get` shows objects.

use calico_api::{API_VERSION, AnyResource, Kind, gojson};
use calico_schema::columns::{self, Column, ColumnContext};
use serde::Serialize;
use serde_json::Value;

use crate::output::{self, indented, to_yaml};

/// What to show.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    /// One object.
    One(Box<AnyResource>),
    /// All objects of a kind, and the revision at which they were read.
    List {
        /// Kind.
        kind: Kind,
        /// Objects in the order to show.
        items: Vec<AnyResource>,
        /// Revision.
        revision: String,
    },
}

/// How to show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// A table of the usual columns.
    Table,
    /// A table of more columns.
    Wide,
    /// A table of these columns.
    Custom(Vec<String>),
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// `kind/name`, one a line.
    Name,
}

/// A form that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    /// Not a form.
    #[error("unrecognized output format '{0}'")]
    Unknown(String),
    /// Custom columns without columns.
    #[error("need to specify at least one column")]
    NoColumns,
    /// A heading that the kind does not have.
    #[error("unknown heading {heading}, valid values are: {}", .valid.join(", "))]
    UnknownHeading {
        /// Heading.
        heading: String,
        /// Headings of the kind.
        valid: Vec<&'static str>,
    },
    /// Upstream's templates.
    #[error("output format 'go-template' is not in this version; use yaml, json, name or custom-columns")]
    Template,
    /// An object cannot be encoded.
    #[error("{id} cannot be shown: {reason}")]
    Encode {
        /// Object or list.
        id: String,
        /// Why.
        reason: String,
    },
}

/// A list as an object of its own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListObject<'a> {
    kind: String,
    api_version: &'static str,
    metadata: ListMetadata<'a>,
    items: &'a [AnyResource],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata<'a> {
    resource_version: &'a str,
}

// === impl Form ===

impl Form {
    /// The form that `-o` names.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, FormError> {
        let text = text.unwrap_or("ps");
        let (name, rest) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, rest) {
            ("ps" | "", None) => Ok(Self::Table),
            ("wide", None) => Ok(Self::Wide),
            ("yaml" | "yml", None) => Ok(Self::Yaml),
            ("json", None) => Ok(Self::Json),
            ("name", None) => Ok(Self::Name),
            ("custom-columns", None | Some("")) => Err(FormError::NoColumns),
            ("custom-columns", Some(list)) => Ok(Self::Custom(list.split(',').map(str::to_owned).collect())),
            ("go-template" | "go-template-file", _) => Err(FormError::Template),
            _ => Err(FormError::Unknown(text.to_owned())),
        }
    }

    /// The text that shows everything in `shown`; nothing for nothing.
    pub(crate) fn render(
        &self,
        shown: &[Shown],
        with_namespace: bool,
        context: &ColumnContext,
    ) -> Result<String, FormError> {
        if shown.is_empty() {
            return Ok(String::new());
        }
        match self {
            Self::Json => Ok(indented(&encoded(shown)?)),
            Self::Yaml => {
                let value: Value =
                    serde_json::from_str(&encoded(shown)?).map_err(|error| unreadable(&error))?;
                Ok(to_yaml(&value))
            }
            Self::Name => {
                let line =
                    |object: &AnyResource| format!("{}/{}\n", object.kind().info().singular(), object.name());
                Ok(shown.iter().flat_map(Shown::items).map(line).collect())
            }
            Self::Table | Self::Wide | Self::Custom(_) => {
                shown.iter().map(|part| self.table(part, with_namespace, context)).collect()
            }
        }
    }

    fn table(
        &self,
        shown: &Shown,
        with_namespace: bool,
        context: &ColumnContext,
    ) -> Result<String, FormError> {
        let table = columns::table(shown.kind());
        let picked: Vec<&Column> = match self {
            Self::Custom(headings) => {
                let find = |heading: &String| {
                    table.all().find(|column| column.heading == heading).ok_or_else(|| {
                        FormError::UnknownHeading {
                            heading: heading.clone(),
                            valid: table.all().map(|column| column.heading).collect(),
                        }
                    })
                };
                headings.iter().map(find).collect::<Result<_, _>>()?
            }
            Self::Wide => table.wide.iter().collect(),
            _ => table.default.iter().collect(),
        };
        let with_namespace = with_namespace && shown.kind().namespaced() && !matches!(self, Self::Custom(_));
        let headings: Vec<&str> = with_namespace
            .then_some("NAMESPACE")
            .into_iter()
            .chain(picked.iter().map(|column| column.heading))
            .collect();
        let row = |object: &AnyResource| {
            let namespace = with_namespace.then(|| object.namespace().to_owned());
            namespace.into_iter().chain(picked.iter().map(|column| (column.cell)(object, context))).collect()
        };
        let rows: Vec<Vec<String>> = shown.items().iter().map(row).collect();
        Ok(output::columns(&headings, &rows))
    }
}

// === impl Shown ===

impl Shown {
    fn kind(&self) -> Kind {
        match self {
            Self::One(object) => object.kind(),
            Self::List { kind, .. } => *kind,
        }
    }

    fn items(&self) -> &[AnyResource] {
        match self {
            Self::One(object) => std::slice::from_ref(object),
            Self::List { items, .. } => items,
        }
    }

    fn encoded(&self) -> Result<String, FormError> {
        let (id, json) = match self {
            Self::One(object) => (crate::actions::id(object), gojson::to_string(object)),
            Self::List { kind, items, revision } => {
                let list = ListObject {
                    kind: format!("{kind}List"),
                    api_version: API_VERSION,
                    metadata: ListMetadata { resource_version: revision },
                    items,
                };
                (list.kind.clone(), gojson::to_string(&list))
            }
        };
        json.map_err(|error| FormError::Encode { id, reason: error.to_string() })
    }
}

/// One part as it is, several as an array.
fn encoded(shown: &[Shown]) -> Result<String, FormError> {
    if let [one] = shown {
        return one.encoded();
    }
    let parts = shown.iter().map(Shown::encoded).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[{}]", parts.join(",")))
}

fn unreadable(error: &serde_json::Error) -> FormError {
    FormError::Encode { id: "the output".to_owned(), reason: error.to_string() }
}

/// Removes from an object what the store filled in.
pub(crate) fn export(object: &mut AnyResource) {
    let meta = object.metadata_mut();
    meta.namespace.clear();
    meta.uid.clear();
    meta.resource_version.clear();
    meta.creation_timestamp = None;
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str) -> AnyResource {
        let value = json!({"metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-11-30T00:00:00Z"}, "spec": {"nets": ["10.0.0.0/8", "a<b"]}});
        AnyResource::from_value(Kind::NetworkSet, &value).unwrap()
    }

    fn shown(form: &str, parts: &[Shown], with_namespace: bool) -> String {
        let form = Form::parse(Some(form)).unwrap();
        form.render(parts, with_namespace, &ColumnContext::default()).unwrap()
    }

    #[test]
    fn every_form_is_golden() {
        let one = [Shown::One(Box::new(set("s")))];
        let list =
            [Shown::List { kind: Kind::NetworkSet, items: vec![set("s"), set("t")], revision: "9".into() }];
        let none = [Shown::List { kind: Kind::NetworkSet, items: vec![], revision: "9".into() }];
        for (form, parts, with_namespace, want) in [
            ("ps", &one, false, "NAME   \ns      \n\n"),
            ("ps", &list, true, "NAMESPACE   NAME   \na           s      \na           t      \n\n"),
            ("wide", &one, false, "NAME   NETS             \ns      10.0.0.0/8,a<b   \n\n"),
            (
                "custom-columns=NETS,NAME",
                &one,
                true,
                "NETS             NAME   \n10.0.0.0/8,a<b   s      \n\n",
            ),
            ("name", &list, true, "networkset/s\nnetworkset/t\n"),
            ("ps", &none, false, "NAME   \n\n"),
            (
                "json",
                &none,
                false,
                "{\n  \"kind\": \"NetworkSetList\",\n  \"apiVersion\": \"projectcalico.org/v3\",\n  \"metadata\": {\n    \
                 \"resourceVersion\": \"9\"\n  },\n  \"items\": []\n}",
            ),
            (
                "json",
                &one,
                false,
                "{\n  \"kind\": \"NetworkSet\",\n  \"apiVersion\": \"projectcalico.org/v3\",\n  \"metadata\": {\n    \
                 \"name\": \"s\",\n    \"namespace\": \"a\",\n    \"uid\": \"u\",\n    \"resourceVersion\": \"7\",\n    \
                 \"creationTimestamp\": \"2026-11-30T00:00:00Z\"\n  },\n  \"spec\": {\n    \"nets\": [\n      \
                 \"10.0.0.0/8\",\n      \"a\\u003cb\"\n    ]\n  }\n}",
            ),
            (
                "yaml",
                &one,
                false,
                "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata:\n  creationTimestamp: \
                 \"2026-11-30T00:00:00Z\"\n  name: s\n  namespace: a\n  resourceVersion: \"7\"\n  uid: u\nspec:\n  nets:\n  \
                 - 10.0.0.0/8\n  - a<b\n",
            ),
            (
                "yml",
                &none,
                false,
                "apiVersion: projectcalico.org/v3\nitems: []\nkind: NetworkSetList\nmetadata:\n  resourceVersion: \"9\"\n",
            ),
        ] {
            assert_eq!(shown(form, parts, with_namespace), want, "{form}");
        }
        let two = [one[0].clone(), Shown::One(Box::new(set("t")))];
        assert_eq!(shown("ps", &two, false), "NAME   \ns      \n\nNAME   \nt      \n\n");
        assert!(
            shown("yaml", &two, false)
                .starts_with("- apiVersion: projectcalico.org/v3\n  kind: NetworkSet\n")
        );
        assert!(shown("json", &two, false).starts_with("[\n  {\n    \"kind\""));
        assert_eq!(shown("json", &[], false), "");
    }

    #[test]
    fn forms_are_told_apart() {
        for (text, want) in [
            ("xml", "unrecognized output format 'xml'"),
            ("YAML", "unrecognized output format 'YAML'"),
            ("custom-columns", "need to specify at least one column"),
            ("custom-columns=", "need to specify at least one column"),
            (
                "go-template={{.}}",
                "output format 'go-template' is not in this version; use yaml, json, name or custom-columns",
            ),
        ] {
            assert_eq!(Form::parse(Some(text)).unwrap_err().to_string(), want);
        }
        let form = Form::parse(Some("custom-columns=name")).unwrap();
        let one = [Shown::One(Box::new(set("s")))];
        assert_eq!(
            form.render(&one, false, &ColumnContext::default()).unwrap_err().to_string(),
            "unknown heading name, valid values are: NAME, NETS"
        );
    }

    #[test]
    fn exports_leave_out_what_the_store_filled_in() {
        let mut object = set("s");
        export(&mut object);
        assert_eq!(
            gojson::to_string(&object).unwrap(),
            r#"{"kind":"NetworkSet","apiVersion":"projectcalico.org/v3","metadata":{"name":"s"},"spec":{"nets":["10.0.0.0/8","a\u003cb"]}}"#
        );
    }
}
