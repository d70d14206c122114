//! What people are told about the outcome of an action.

use crate::actions::{Action, Outcome};

/// Texts for the two streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// For standard output.
    pub(crate) stdout: String,
    /// For standard error; its presence makes the command fail.
    pub(crate) stderr: Option<String>,
}

/// The report of an outcome.
pub(crate) fn report(action: Action, outcome: &Outcome) -> Report {
    let (verb, past) = match action {
        Action::Create { .. } => ("create", "created"),
        Action::Apply => ("apply", "applied"),
        Action::Replace => ("replace", "replaced"),
        Action::Delete { .. } => ("delete", "deleted"),
        Action::Validate => ("validate", "validated"),
    };
    let kind = outcome.kind.map(|kind| format!("'{kind}' ")).unwrap_or_default();
    let Outcome { total, done, unchanged, taken_along, errors, .. } = outcome;
    let mut stdout = String::new();
    for id in taken_along {
        stdout.push_str(&format!("Deleted {id} with its tier\n"));
    }
    let success = match (*unchanged, done) {
        (0, _) => format!("Successfully {past} {done} {kind}resource(s)\n"),
        (n, done) if n == *done => format!("Successfully {past} {done} {kind}resource(s) (unchanged)\n"),
        (n, _) => format!("Successfully {past} {done} {kind}resource(s) ({n} unchanged)\n"),
    };
    if errors.is_empty() {
        stdout.push_str(&success);
        return Report { stdout, stderr: None };
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if verb == "delete" {
        if *done > 0 {
            stdout.push_str(&success);
        }
        let lines: String =
            texts.iter().map(|text| format!("Failed to delete {kind}resource: {text}\n")).collect();
        return Report { stdout, stderr: Some(lines) };
    }
    let list = texts.join(" ");
    let stderr = match (*done, *total) {
        (0, 1) => format!("failed to {verb} {kind}resource: [{list}]"),
        (0, _) => format!("failed to {verb} any {kind}resources: [{list}]"),
        _ => format!("hit error: [{list}]"),
    };
    if *done > errors.len() {
        stdout
            .push_str(&format!("Partial success: {past} the first {done} out of {total} {kind}resources:\n"));
    }
    Report { stdout, stderr: Some(stderr) }
}

#[cfg(test)]
mod tests {
    use calico_api::Kind;

    use super::*;
    use crate::actions::{ActionError, Refusal};

    fn outcome(kind: Option<Kind>, done: usize, unchanged: usize, failed: usize) -> Outcome {
        let error = |i| Refusal {
            id: String::new(),
            error: ActionError::NotSupported { operation: "x", id: format!("e{i}"), reason: "" },
        };
        let errors = (0..failed).map(error).collect();
        Outcome { kind, total: done + failed, done, unchanged, errors, ..Outcome::default() }
    }

    #[test]
    fn every_outcome_has_its_text() {
        let e = |i: usize| format!("operation x is not supported on e{i}");
        let (e0, e1) = (e(0), e(1));
        let create = Action::Create { skip_exists: false };
        let delete = Action::Delete { skip_missing: false, recursive: false };
        let tier = Some(Kind::Tier);
        for (action, outcome, stdout, stderr) in [
            (create, outcome(tier, 2, 0, 0), "Successfully created 2 'Tier' resource(s)\n", None),
            (create, outcome(None, 2, 0, 0), "Successfully created 2 resource(s)\n", None),
            (
                Action::Apply,
                outcome(tier, 1, 1, 0),
                "Successfully applied 1 'Tier' resource(s) (unchanged)\n",
                None,
            ),
            (
                Action::Apply,
                outcome(tier, 3, 1, 0),
                "Successfully applied 3 'Tier' resource(s) (1 unchanged)\n",
                None,
            ),
            (Action::Validate, outcome(tier, 1, 0, 0), "Successfully validated 1 'Tier' resource(s)\n", None),
            (create, outcome(tier, 0, 0, 1), "", Some(format!("failed to create 'Tier' resource: [{e0}]"))),
            (
                create,
                outcome(tier, 0, 0, 2),
                "",
                Some(format!("failed to create any 'Tier' resources: [{e0} {e1}]")),
            ),
            (
                Action::Replace,
                outcome(None, 0, 0, 2),
                "",
                Some(format!("failed to replace any resources: [{e0} {e1}]")),
            ),
            (create, outcome(tier, 1, 0, 1), "", Some(format!("hit error: [{e0}]"))),
            (
                create,
                outcome(tier, 3, 0, 1),
                "Partial success: created the first 3 out of 4 'Tier' resources:\n",
                Some(format!("hit error: [{e0}]")),
            ),
            (delete, outcome(tier, 0, 0, 1), "", Some(format!("Failed to delete 'Tier' resource: {e0}\n"))),
            (
                delete,
                outcome(None, 1, 0, 2),
                "Successfully deleted 1 resource(s)\n",
                Some(format!("Failed to delete resource: {e0}\nFailed to delete resource: {e1}\n")),
            ),
        ] {
            let got = report(action, &outcome);
            assert_eq!((got.stdout.as_str(), got.stderr), (stdout, stderr));
        }
        let mut outcome = outcome(tier, 1, 0, 0);
        outcome.taken_along.push("NetworkPolicy(a/b)".into());
        assert_eq!(
            report(delete, &outcome).stdout,
            "Deleted NetworkPolicy(a/b) with its tier\nSuccessfully deleted 1 'Tier' resource(s)\n"
        );
    }
}
