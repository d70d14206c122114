//! `label`.

use super::{CommandError, crud};
use crate::actions::{self, ActionError};
use crate::cli::Args;
use crate::connect;
use crate::kinds;
use crate::output::Out;
use crate::scope::Scope;

pub(super) async fn run(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let [word, name, label, ..] = args.words.as_slice() else { return Ok(()) };
    let failed = |text: String| CommandError::Report(text);
    let unread =
        |error: &dyn std::fmt::Display| failed(format!("failed to get {word} {name}, error {error}"));
    let remove = args.is_set("remove");
    let (key, value) = match label.split_once('=') {
        _ if remove => (label.as_str(), ""),
        Some(pair) => pair,
        None => return Err(failed(format!("invalid label {label}"))),
    };
    let kind = kinds::lookup(word).map_err(|error| unread(&error))?;
    let scope = Scope::of(args)?;
    let mut item = crud::named(kind, name)?;
    let client = connect::checked_client(args).await.map_err(|error| unread(&error))?;
    scope.settle(&mut item).map_err(|error| unread(&error))?;
    let mut tries = 0;
    loop {
        tries += 1;
        let stored = match client.objects(kind).get(item.object.namespace(), name).await {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() => return Err(failed(format!("{word} {name} not found"))),
            Err(error) => return Err(unread(&error)),
        };
        let mut object = stored.clone();
        let labels = &mut object.metadata_mut().labels;
        let done = match labels.get(key) {
            None if remove => {
                return Err(failed(format!(
                    "cannot remove label of {word} {name}, key {key} does not exist"
                )));
            }
            Some(_) if remove => {
                labels.remove(key);
                format!("Successfully removed label {key} from {word} {name}\n")
            }
            Some(old) if old != value && !args.is_set("overwrite") => {
                return Err(failed(format!(
                    "failed to update label of {word} {name}, key {key} is already present. please use \
                     '--overwrite' to set a new value"
                )));
            }
            old => {
                let verb = if old.is_some() { "updated" } else { "set" };
                labels.insert(key.to_owned(), value.to_owned());
                format!("Successfully {verb} label {key} on {word} {name}\n")
            }
        };
        let result = if object == stored { Ok(()) } else { actions::replace_as_is(&client, object).await };
        match result {
            Ok(()) => return Ok(out.print(&done)?),
            Err(ActionError::Client(error)) if error.is_conflict() && tries < actions::TRIES => {
                actions::pause(tries).await;
            }
            Err(error) => {
                return Err(failed(format!("failed to update {word} {name}, label not changed: {error}")));
            }
        }
    }
}
