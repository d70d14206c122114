//! calicoctl: the real binary, run on stores that hold a start state.
//!
//! A record makes a case that compares exit codes, output and stored bytes (`ctl/cli`, `ctl/stored`, `ctl/validate`), and
//! a case of its own for each aspect of [`super::case::ASPECTS`] that shows in it, so that a wanted difference of one
//! aspect hides nothing else.

mod normal;
mod scripts;
mod store;
mod stored;
mod tool;
mod verdicts;

pub(crate) use scripts::run as scripts;
pub(crate) use store::{Server, State, Store};
pub(crate) use stored::run as stored;
pub(crate) use tool::binary;
pub(crate) use verdicts::run as verdicts;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::case::Case;
use super::text::{field, pretty};

/// Both sides of a record, with the aspects that are compared apart.
#[derive(Default)]
struct Sides {
    expected: Vec<Value>,
    ours: Vec<Value>,
    aspects: BTreeMap<&'static str, (Vec<Value>, Vec<Value>)>,
}

impl Sides {
    /// Adds a part that is compared as it is.
    fn part(&mut self, name: &str, expected: &Value, ours: &Value) {
        self.expected.push(json!([name, expected]));
        self.ours.push(json!([name, ours]));
    }

    /// Adds something that is compared apart.
    fn aspect(&mut self, aspect: &'static str, expected: Value, ours: Value) {
        let (theirs, own) = self.aspects.entry(aspect).or_default();
        theirs.push(expected);
        own.push(ours);
    }

    /// Adds a text; reasons in it go to the words.
    fn text(&mut self, name: &str, expected: &str, ours: &str) {
        let (expected, theirs) = normal::without_words(expected);
        let (ours, own) = normal::without_words(ours);
        if !theirs.is_empty() || !own.is_empty() {
            self.aspect("words", json!({name: theirs}), json!({name: own}));
        }
        self.part(name, &lines(&expected), &lines(&ours));
    }

    /// Adds a call: what `record` says of it and what ours gave.
    fn call(&mut self, call: &str, record: &Value, volatile: &Value, ours: &tool::Output) {
        let their = |stream| normal::theirs(field(record, stream), volatile);
        let mut theirs = [their("stdout"), their("stderr")];
        let mut own = [ours.stdout.clone(), ours.stderr.clone()];
        self.part(&format!("$ {call}"), &record["exit"], &json!(ours.exit));
        for (i, stream) in ["stdout", "stderr"].into_iter().enumerate() {
            if field(record, "help_printed_on") == stream && own[i].to_lowercase().contains("usage") {
                own[i].clone_from(&theirs[i]);
            }
        }
        if theirs[0].trim() == "null" && own[0].is_empty() {
            self.aspect("null", json!([call, "null"]), json!([call, ""]));
            theirs[0].clear();
        }
        if own[0].contains(UNCHANGED) {
            own[0] = own[0].replace(UNCHANGED, "");
            self.aspect("unchanged", json!([call, ""]), json!([call, UNCHANGED]));
        }
        if ours.exit != Some(0) && theirs[1].is_empty() && own[0].is_empty() && !own[1].is_empty() {
            self.aspect("streams", json!([call, "stdout"]), json!([call, "stderr"]));
            theirs.swap(0, 1);
        }
        if record["unordered"] == true {
            theirs = theirs.map(|text| normal::unordered(&text));
            own = own.map(|text| normal::unordered(&text));
        }
        self.text("stdout", &theirs[0], &own[0]);
        self.text("stderr", &theirs[1], &own[1]);
    }

    /// The cases: `area/name`, and one for each aspect that showed.
    fn cases(self, area: &str, name: &str, input: &Value) -> Vec<Case> {
        let input = pretty(input);
        let case = |id: String, expected: Vec<Value>, ours: Vec<Value>| {
            Case::json(id, input.clone(), &expected.into(), &ours.into())
        };
        let mut cases = vec![case(format!("{area}/{name}"), self.expected, self.ours)];
        for (aspect, (expected, ours)) in self.aspects {
            cases.push(case(format!("{area}-{aspect}/{name}"), expected, ours));
        }
        cases
    }
}

/// What the product adds where nothing changed.
const UNCHANGED: &str = " (unchanged)";

/// A text as a list of lines, the end of the last one included.
fn lines(text: &str) -> Value {
    text.split_inclusive('\n').collect()
}
