//! Stored values of address management without what the clock decides.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Numbers above this come from the clock.
const CLOCK: u64 = 1_000_000_000_000_000;

/// Largest distance of two numbers of the same block.
const NEAR: u64 = 1_000_000;

/// First numbers of blocks: how often each was made anew, and what it began with.
#[derive(Default)]
pub(crate) struct Sequences(BTreeMap<String, (u32, u64)>);

/// The state of a step as texts.
pub(crate) fn texts(state: &Value) -> BTreeMap<String, String> {
    let entries = state.as_object().into_iter().flatten();
    entries.map(|(path, value)| (path.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Takes the counts out of the handles of a state, as JSON by path.
pub(crate) fn take_counts(state: &mut Value) -> Value {
    let mut out = serde_json::Map::new();
    for (path, handle) in state.as_object_mut().into_iter().flatten() {
        if !path.contains("/ipam/v2/handle/") {
            continue;
        }
        if let Some(counts) = handle.get_mut("block").filter(|counts| counts.is_object()) {
            let blocks = counts.as_object().into_iter().flatten().map(|(block, _)| json!(block)).collect();
            out.insert(path.clone(), std::mem::replace(counts, blocks));
        }
    }
    out.into()
}

impl Sequences {
    /// The state as JSON, with numbers relative to the block's first one and times by a mark.
    pub(crate) fn comparable(&mut self, state: &BTreeMap<String, String>) -> Value {
        let mut out = serde_json::Map::new();
        for (path, text) in state {
            let value = match serde_json::from_str::<Value>(text) {
                Ok(mut value) => {
                    if value.get("sequenceNumber").is_some() {
                        self.block(path, &mut value);
                    }
                    value
                }
                Err(_) => json!(text),
            };
            out.insert(path.clone(), value);
        }
        out.into()
    }

    fn block(&mut self, path: &str, block: &mut Value) {
        let number = block["sequenceNumber"].as_u64().unwrap_or_default();
        let allocations: Vec<u64> = block["sequenceNumberForAllocation"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, number)| number.as_u64())
            .collect();
        if number > CLOCK {
            let lowest =
                allocations.iter().copied().filter(|n| number.abs_diff(*n) < NEAR).fold(number, u64::min);
            let (made, first) = match self.0.get(path) {
                Some((made, first)) if number >= *first && number - first < NEAR => (*made, *first),
                Some((made, _)) => (made + 1, lowest),
                None => (1, lowest),
            };
            self.0.insert(path.to_owned(), (made, first));
            let relative = |n: u64| {
                if n.abs_diff(first) < NEAR {
                    json!(format!("made {made} + {}", i128::from(n) - i128::from(first)))
                } else {
                    json!(n)
                }
            };
            let shown = relative(number);
            block["sequenceNumber"] = shown;
            if let Some(numbers) = block["sequenceNumberForAllocation"].as_object_mut() {
                for number in numbers.values_mut() {
                    *number = number.as_u64().map_or(Value::Null, relative);
                }
            }
        }
        // Go writes a list that was emptied and one that never was in two ways; readers take both for the same.
        if block["attributes"].as_array().is_some_and(Vec::is_empty) {
            block["attributes"] = Value::Null;
        }
        if block["sequenceNumberForAllocation"].is_null() {
            block["sequenceNumberForAllocation"] = json!({});
        }
        let old = |time: &str| time.starts_with("2019") || time.starts_with("2020");
        if block["affinity_claim_time"].as_str().is_some_and(|time| !old(time)) {
            block["affinity_claim_time"] = "a time".into();
        }
        for attribute in block["attributes"].as_array_mut().into_iter().flatten() {
            if attribute.get("releasedAt").is_some_and(|time| !time.is_null()) {
                attribute["releasedAt"] = "a time".into();
            }
        }
    }
}
