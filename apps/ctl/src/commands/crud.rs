//! `create`, `apply`, `replace`, `delete`, `validate`.

use calico_api::{AnyResource, Kind};

use super::CommandError;
use crate::actions::{self, Action};
use crate::cli::{Args, UsageError, Verb};
use crate::connect;
use crate::input::{InputError, Item, Origin, Sources};
use crate::kinds;
use crate::output::Out;
use crate::progress::Progress;
use crate::report;
use crate::scope::Scope;

pub(super) async fn run(verb: Verb, args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let action = match verb {
        Verb::Create => Action::Create { skip_exists: args.is_set("skip-exists") },
        Verb::Apply => Action::Apply,
        Verb::Replace => Action::Replace,
        Verb::Delete => Action::Delete {
            skip_missing: args.is_set("skip-not-exists"),
            recursive: args.is_set("recursive"),
        },
        _ => Action::Validate,
    };
    let scope = Scope::of(args)?;
    let items = items(args)?;
    if items.is_empty() {
        if args.is_set("skip-empty") {
            return Ok(out.print("No resources specified\n")?);
        }
        return Err(InputError::Empty { place: String::new() }.into());
    }
    let client = match action {
        Action::Validate => None,
        _ => Some(connect::checked_client(args).await?),
    };
    if let (Some(client), false) = (&client, verb == Verb::Delete) {
        // What is missing for good shows in the action itself.
        if let Err(error) = client.ensure_initialized("", "").await {
            tracing::debug!(%error, "the datastore could not be initialised");
        }
    }
    let mut progress = Progress::of(items.len());
    let outcome = actions::run(client.as_ref(), action, items, &scope, &mut progress).await;
    drop(progress);
    let report = report::report(action, &outcome);
    out.print(&report.stdout)?;
    report.stderr.map_or(Ok(()), |text| Err(CommandError::Report(text)))
}

/// The objects of a call: those of its files, else those that its words name.
pub(super) fn items(args: &Args) -> Result<Vec<Item>, CommandError> {
    let names = args.texts("filename");
    if !names.is_empty() {
        let sources =
            Sources { names, recursive: args.is_set("recursive"), skip_empty: args.is_set("skip-empty") };
        return Ok(sources.read()?);
    }
    let Some((word, names)) = args.words.split_first() else {
        let text = "name a kind of objects, or files with -f";
        return Err(UsageError::Refused(text.to_owned()).into());
    };
    let kind = kinds::lookup(word)?;
    if names.is_empty() {
        return Ok(vec![named(kind, "")?]);
    }
    if names.iter().any(String::is_empty) {
        return Err(CommandError::EmptyName);
    }
    names.iter().map(|name| named(kind, name)).collect()
}

/// An empty object of a name.
pub(super) fn named(kind: Kind, name: &str) -> Result<Item, CommandError> {
    let mut object = AnyResource::empty(kind).map_err(|_| kinds::UnknownKind(kind.to_string()))?;
    name.clone_into(&mut object.metadata_mut().name);
    Ok(Item { object, origin: Origin::Words })
}
