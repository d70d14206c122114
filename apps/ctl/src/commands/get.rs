//! `get`.

use calico_api::{AnyResource, Kind};
use calico_client::{Client, ClientError, Select};
use calico_schema::ColumnContext;

use super::{CommandError, crud};
use crate::cli::Args;
use crate::connect::{self, ConnectError};
use crate::format::{Form, Shown, export};
use crate::input::{InputError, Item, Origin};
use crate::output::Out;
use crate::scope::{Scope, ScopeError};

pub(super) async fn run(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let form = Form::parse(args.text("output"))?;
    let scope = Scope::of(args)?;
    let items = match crud::items(args) {
        Ok(items) if items.is_empty() && args.is_set("skip-empty") => {
            return Ok(out.print("No resources specified\n")?);
        }
        Ok(items) if items.is_empty() => return Err(InputError::Empty { place: String::new() }.into()),
        Ok(items) => items,
        Err(error @ (CommandError::Kind(_) | CommandError::EmptyName)) => return Err(wrapped(&error)),
        Err(error) => return Err(error),
    };
    let client = connect::checked_client(args).await.map_err(|error| match error {
        ConnectError::Mismatch { .. } | ConnectError::Unverified(_) => wrapped(&error.into()),
        other => other.into(),
    })?;
    let mut shown = Vec::new();
    let mut errors = Vec::new();
    for item in items {
        match one(&client, item, &scope, args.is_set("export")).await {
            Ok(found) => shown.push(found),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let text = form.render(&shown, scope.is_given(), &ColumnContext::default())?;
    out.print(&text)?;
    if errors.is_empty() {
        return Ok(());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        out.print("\n")?;
    }
    Err(CommandError::Report(errors.join("\n")))
}

fn wrapped(error: &CommandError) -> CommandError {
    CommandError::Report(format!("failed to get resources: {error}"))
}

/// The object that an item names, or without a name all objects of its kind.
async fn one(client: &Client, mut item: Item, scope: &Scope, exported: bool) -> Result<Shown, CommandError> {
    let kind = item.object.kind();
    if item.object.name().is_empty() {
        let namespace = match item.object.namespace() {
            "" => scope.of_list(kind)?,
            _ => {
                scope.settle(&mut item)?;
                item.object.namespace()
            }
        };
        let list = client.objects(kind).list(&Select { namespace, ..Select::default() }).await?;
        let mut items = list.items;
        if kind == Kind::Tier {
            sort_tiers(&mut items);
        }
        return Ok(Shown::List { kind, items, revision: list.revision.to_string() });
    }
    if kind.namespaced() && scope.all && item.object.namespace().is_empty() {
        return Err(ScopeError::AllForOne.into());
    }
    let wanted = if scope.all && kind.namespaced() { Scope::default() } else { scope.clone() };
    wanted.settle(&mut item)?;
    let mut object = client.objects(kind).get(item.object.namespace(), item.object.name()).await?;
    if item.origin == Origin::Kubernetes && !calico_model::kubernetes::is_converted(object.metadata()) {
        let error = calico_datastore::StoreError::DoesNotExist { id: crate::actions::id(&item.object) };
        return Err(ClientError::from(error).into());
    }
    if exported {
        export(&mut object);
    }
    Ok(Shown::One(Box::new(object)))
}

/// The order in which tiers are asked: by order, those without last, then by name.
fn sort_tiers(tiers: &mut [AnyResource]) {
    let order = |object: &AnyResource| match object {
        AnyResource::Tier(tier) => tier.spec.order.unwrap_or(f64::INFINITY),
        _ => f64::INFINITY,
    };
    tiers.sort_by(|a, b| order(a).total_cmp(&order(b)).then_with(|| a.name().cmp(b.name())));
}
