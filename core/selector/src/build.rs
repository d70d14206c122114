//! From the parser's list to the final one: canonical text, and a list that points into it.

use smallvec::SmallVec;

use crate::ops::{Kind, Op};

/// An operator whose operands are being written.
struct Open {
    /// Its place in the new list.
    op: usize,
    /// Where it ends in the parser's list.
    end: usize,
    separator: &'static str,
    /// True once an operand is written.
    started: bool,
}

/// Makes canonical text and list out of what the parser made of `source`.
pub(crate) fn build(source: &str, parsed: &[Op]) -> (Box<str>, Box<[Op]>) {
    let mut text = String::with_capacity(source.len() + 8 * parsed.len());
    let mut ops = Vec::with_capacity(parsed.len());
    let mut open: SmallVec<[Open; 4]> = SmallVec::new();
    let mut after_not = false;
    let mut at = 0;
    while let Some(&op) = parsed.get(at) {
        while let Some(done) = open.last()
            && done.end == at
        {
            finish(done, &mut ops, &mut text);
            open.pop();
        }
        if matches!(op.kind, Kind::And | Kind::Or) && op.b == 1 {
            at += 1;
            continue;
        }
        if let Some(parent) = open.last_mut()
            && !after_not
        {
            if parent.started {
                text.push_str(parent.separator);
            }
            parent.started = true;
        }
        after_not = op.kind == Kind::Not;
        at += 1;
        match op.kind {
            Kind::All => bare(&mut text, &mut ops, op, "all()"),
            Kind::Global => bare(&mut text, &mut ops, op, "global()"),
            Kind::Not => bare(&mut text, &mut ops, op, "!"),
            Kind::Has => {
                text.push_str("has(");
                let op = with_label(&mut text, source, op);
                ops.push(op);
                text.push(')');
            }
            Kind::And | Kind::Or => {
                let separator = if op.kind == Kind::And { " && " } else { " || " };
                open.push(Open { op: ops.len(), end: op.a as usize, separator, started: false });
                bare(&mut text, &mut ops, op, "(");
            }
            Kind::In | Kind::NotIn => {
                let set = with_label(&mut text, source, op);
                ops.push(set);
                text.push_str(if op.kind == Kind::In { " in {" } else { " not in {" });
                for (i, &item) in parsed[at..at + op.a as usize].iter().enumerate() {
                    if i > 0 {
                        text.push_str(", ");
                    }
                    let item = with_value(&mut text, source, item);
                    ops.push(item);
                }
                text.push('}');
                at += op.a as usize;
            }
            Kind::Eq | Kind::Ne | Kind::Contains | Kind::StartsWith | Kind::EndsWith | Kind::Item => {
                let op = with_label(&mut text, source, op);
                text.push_str(match op.kind {
                    Kind::Eq => " == ",
                    Kind::Ne => " != ",
                    Kind::Contains => " contains ",
                    Kind::StartsWith => " starts with ",
                    _ => " ends with ",
                });
                let op = with_value(&mut text, source, op);
                ops.push(op);
            }
        }
    }
    while let Some(done) = open.pop() {
        finish(&done, &mut ops, &mut text);
    }
    (text.into_boxed_str(), ops.into_boxed_slice())
}

/// An element without label; it starts here.
fn bare(text: &mut String, ops: &mut Vec<Op>, op: Op, written: &str) {
    ops.push(Op { at: text.len() as u32, ..op });
    text.push_str(written);
}

fn finish(open: &Open, ops: &mut [Op], text: &mut String) {
    text.push(')');
    ops[open.op].a = (ops.len() - open.op) as u32;
}

fn with_label(text: &mut String, source: &str, op: Op) -> Op {
    let at = text.len() as u32;
    text.push_str(op.label(source));
    Op { at, ..op }
}

fn with_value(text: &mut String, source: &str, op: Op) -> Op {
    let value = op.value(source);
    let quote = quote_for(value);
    text.push(quote);
    let a = text.len() as u32;
    text.push_str(value);
    text.push(quote);
    Op { a, ..op }
}

/// The quote that canonical text puts around a value.
fn quote_for(value: &str) -> char {
    if value.as_bytes().contains(&b'"') { '\'' } else { '"' }
}
