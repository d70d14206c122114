//! `patch`.

use calico_api::{AnyResource, DecodeError};
use calico_client::ClientError;
use serde_json::Value;

use super::{CommandError, crud};
use crate::actions::{self, ActionError};
use crate::cli::Args;
use crate::connect;
use crate::kinds;
use crate::output::Out;
use crate::patch::{PatchError, PatchType};
use crate::scope::Scope;

pub(super) async fn run(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let [word, name] = args.words.as_slice() else { return Ok(()) };
    let kind = kinds::lookup(word)?;
    let form = PatchType::parse(args.text("type")).map_err(CommandError::Patch)?;
    let scope = Scope::of(args)?;
    let mut item = crud::named(kind, name)?;
    let client = connect::checked_client(args).await?;
    scope.settle(&mut item)?;
    let hit = |error: String| CommandError::Report(format!("hit error: {error}"));
    let objects = client.objects(kind);
    let mut tries = 0;
    loop {
        tries += 1;
        let stored = objects
            .get(item.object.namespace(), name)
            .await
            .map_err(|error: ClientError| hit(error.to_string()))?;
        let unpatchable = |reason: serde_json::Error| {
            CommandError::Patch(PatchError::Document { form: "any", reason: format!(": {reason}") })
        };
        let mut value: Value = serde_json::to_value(&stored).map_err(unpatchable)?;
        form.apply(&mut value, args.text("patch").unwrap_or_default()).map_err(CommandError::Patch)?;
        let object =
            AnyResource::from_value_strict(kind, &value).map_err(|error| hit(decode_words(&error)))?;
        let result = if actions::would_stay(&object, &stored) {
            Ok(())
        } else {
            actions::replace_as_is(&client, object).await
        };
        match result {
            Ok(()) => return Ok(out.print(&format!("Successfully patched 1 '{kind}' resource\n"))?),
            Err(ActionError::Client(error)) if error.is_conflict() && tries < actions::TRIES => {
                actions::pause(tries).await;
            }
            Err(error) => return Err(hit(format!("updating existing resource: {error}"))),
        }
    }
}

fn decode_words(error: &DecodeError) -> String {
    let error = match error {
        DecodeError::UnknownFields(fields) => {
            let names: Vec<String> = fields.iter().map(ToString::to_string).collect();
            format!("field in document is not recognized or is in the wrong location: {}", names.join(", "))
        }
        other => other.to_string(),
    };
    format!("creating resource from patched data: {error}")
}
