//! The parser: one pass over the bytes of the text, no recursion, no copy of any label or value.
//!
//! In: text. Out: a list of [`Op`]s that points into that text, with one difference from the final form:
//! each pair of parentheses, and the whole, has an `Or` of `And`s even where these have a single operand,
//! and their `a` is the place where they end in the list. [`crate::build`] drops the needless ones.

use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::error::{ParseError, Reason};
use crate::ops::{Kind, Op};

/// Longest label name in bytes.
pub const MAX_LABEL_BYTES: usize = 512;

/// Deepest nesting of parentheses. A selector of the 1,024 bytes that the API allows cannot reach it, not
/// even with what the internal model adds around it; recursion over an expression of this depth is safe on
/// any usual stack.
pub const MAX_DEPTH: usize = 600;

/// Longest selector in bytes.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// The list of a text, on the stack for all but large selectors.
pub(crate) type Source = SmallVec<[Op; 24]>;

/// The list of `all()`.
pub(crate) fn all() -> Source {
    let mut ops = Source::new();
    ops.push(Op::bare(Kind::All));
    ops
}

/// Parses a selector.
pub(crate) fn parse(text: &str) -> Result<Source, ParseError> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0, ops: Source::new() };
    if text.len() > MAX_TEXT_BYTES {
        return Err(parser.error(0, Reason::TooLong));
    }
    parser.skip_blanks();
    if parser.peek().is_none() {
        return Ok(all());
    }
    parser.expression()?;
    Ok(parser.ops)
}

/// True for the bytes of label names.
fn is_label_byte(byte: u8) -> bool {
    const TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 128 {
            let b = byte as u8;
            table[byte] = b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b'-');
            byte += 1;
        }
        table
    };
    TABLE[byte as usize]
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    ops: Source,
}

/// A pair of parentheses that is open: the places of its `Or` and of the `And` being filled.
struct Group {
    or: usize,
    and: usize,
}

/// Start and length of a piece of the text.
type Span = (usize, usize);

impl<'a> Parser<'a> {
    fn expression(&mut self) -> Result<(), ParseError> {
        let mut outer: SmallVec<[Group; 4]> = SmallVec::new();
        let mut group = self.open();
        'operand: loop {
            let mut negated = false;
            self.skip_blanks();
            while self.peek() == Some(b'!') && self.bytes.get(self.at + 1) != Some(&b'=') {
                negated = !negated;
                self.at += 1;
                self.skip_blanks();
            }
            self.ops[group.and].b += 1;
            if negated {
                self.ops.push(Op::bare(Kind::Not));
            }
            match self.peek() {
                Some(b'(') => {
                    if outer.len() == MAX_DEPTH {
                        return Err(self.error(self.at, Reason::TooDeep));
                    }
                    self.at += 1;
                    outer.push(group);
                    group = self.open();
                    continue 'operand;
                }
                Some(byte) if is_label_byte(byte) => self.condition()?,
                _ => return Err(self.error(self.at, Reason::Condition)),
            }
            loop {
                self.skip_blanks();
                match (self.peek(), self.bytes.get(self.at + 1)) {
                    (Some(b'&'), Some(b'&')) => {
                        self.at += 2;
                        continue 'operand;
                    }
                    (Some(b'|'), Some(b'|')) => {
                        self.at += 2;
                        self.ops[group.and].a = self.ops.len() as u32;
                        group.and = self.open_and(group.or);
                        continue 'operand;
                    }
                    (Some(b')'), _) if !outer.is_empty() => {
                        self.at += 1;
                        self.close(&group);
                        if let Some(enclosing) = outer.pop() {
                            group = enclosing;
                        }
                    }
                    (None, _) if outer.is_empty() => {
                        self.close(&group);
                        return Ok(());
                    }
                    _ => {
                        let reason = if outer.is_empty() { Reason::End } else { Reason::GroupEnd };
                        return Err(self.error(self.at, reason));
                    }
                }
            }
        }
    }

    fn open(&mut self) -> Group {
        let or = self.ops.len();
        self.ops.push(Op::bare(Kind::Or));
        Group { or, and: self.open_and(or) }
    }

    fn open_and(&mut self, or: usize) -> usize {
        self.ops[or].b += 1;
        self.ops.push(Op::bare(Kind::And));
        self.ops.len() - 1
    }

    fn close(&mut self, group: &Group) {
        let end = self.ops.len() as u32;
        self.ops[group.and].a = end;
        self.ops[group.or].a = end;
    }

    /// A comparison, or one of the words that a parenthesis must touch.
    fn condition(&mut self) -> Result<(), ParseError> {
        let label = self.label()?;
        if self.peek() == Some(b'(') {
            let kind = match self.bytes_of(label) {
                b"has" => Kind::Has,
                b"all" => Kind::All,
                b"global" => Kind::Global,
                _ => return Err(self.no_operator(label)),
            };
            self.at += 1;
            return self.call(kind);
        }
        self.skip_blanks();
        let kind = self.operator(label)?;
        self.skip_blanks();
        if matches!(kind, Kind::In | Kind::NotIn) {
            self.set(kind, label)
        } else {
            self.comparison(kind, label)
        }
    }

    /// The rest of `has(label)`, `all()` or `global()`.
    fn call(&mut self, kind: Kind) -> Result<(), ParseError> {
        self.skip_blanks();
        let (call, label) = match kind {
            Kind::Has => ("has", self.label()?),
            Kind::All => ("all", (0, 0)),
            _ => ("global", (0, 0)),
        };
        self.skip_blanks();
        if self.peek() != Some(b')') {
            return Err(self.error(self.at, Reason::CallEnd { call }));
        }
        self.at += 1;
        self.push(kind, label, 0, 0);
        Ok(())
    }

    fn operator(&mut self, label: Span) -> Result<Kind, ParseError> {
        let start = self.at;
        let kind = match (self.peek(), self.bytes.get(self.at + 1)) {
            (Some(b'='), Some(b'=')) => Some((Kind::Eq, start + 2)),
            (Some(b'!'), Some(b'=')) => Some((Kind::Ne, start + 2)),
            _ => {
                let word = self.word();
                let one = |kind, parser: &Self| Some((kind, parser.at));
                match self.bytes_of(word) {
                    b"in" => one(Kind::In, self),
                    b"contains" => one(Kind::Contains, self),
                    b"notin" => one(Kind::NotIn, self),
                    b"startswith" => one(Kind::StartsWith, self),
                    b"endswith" => one(Kind::EndsWith, self),
                    b"not" => self.second_word(b"in", Kind::NotIn),
                    b"starts" => self.second_word(b"with", Kind::StartsWith),
                    b"ends" => self.second_word(b"with", Kind::EndsWith),
                    _ => None,
                }
            }
        };
        match kind {
            Some((kind, end)) => {
                self.at = end;
                Ok(kind)
            }
            None => {
                self.at = start;
                Err(self.no_operator(label))
            }
        }
    }

    fn second_word(&mut self, expected: &[u8], kind: Kind) -> Option<(Kind, usize)> {
        self.skip_blanks();
        let word = self.word();
        (self.bytes_of(word) == expected).then_some((kind, self.at))
    }

    fn comparison(&mut self, kind: Kind, label: Span) -> Result<(), ParseError> {
        let (start, len) = self.string(Reason::String)?;
        self.push(kind, label, start, len);
        Ok(())
    }

    fn set(&mut self, kind: Kind, label: Span) -> Result<(), ParseError> {
        if self.peek() != Some(b'{') {
            return Err(self.error(self.at, Reason::Set));
        }
        self.at += 1;
        let set = self.ops.len();
        self.push(kind, label, 0, 0);
        loop {
            self.skip_blanks();
            if self.peek() == Some(b'}') {
                break;
            }
            let (start, len) = self.string(Reason::SetValue)?;
            self.push(Kind::Item, (0, 0), start, len);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.error(self.at, Reason::SetSeparator)),
            }
        }
        self.at += 1;
        let text = self.text;
        let items = &mut self.ops[set + 1..];
        items.sort_unstable_by(|x, y| x.value(text).cmp(y.value(text)));
        let mut unique = 0;
        for i in 0..items.len() {
            if i == 0 || items[i].value(text) != items[unique - 1].value(text) {
                items[unique] = items[i];
                unique += 1;
            }
        }
        self.ops.truncate(set + 1 + unique);
        self.ops[set].a = unique as u32;
        Ok(())
    }

    /// A quoted string; the span leaves the quotes out.
    fn string(&mut self, missing: Reason) -> Result<Span, ParseError> {
        let Some(quote @ (b'"' | b'\'')) = self.peek() else {
            return Err(self.error(self.at, missing));
        };
        let start = self.at + 1;
        match self.bytes[start..].iter().position(|&b| b == quote) {
            Some(len) => {
                self.at = start + len + 1;
                Ok((start, len))
            }
            None => Err(self.error(self.at, Reason::Unterminated)),
        }
    }

    fn label(&mut self) -> Result<Span, ParseError> {
        let word = self.word();
        match word.1 {
            0 => Err(self.error(word.0, Reason::Label)),
            1..=MAX_LABEL_BYTES => Ok(word),
            _ => Err(self.error(word.0, Reason::LabelTooLong)),
        }
    }

    /// The longest run of label bytes from here, which may be empty.
    fn word(&mut self) -> Span {
        let start = self.at;
        while self.peek().is_some_and(is_label_byte) {
            self.at += 1;
        }
        (start, self.at - start)
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn bytes_of(&self, (start, len): Span) -> &'a [u8] {
        &self.bytes[start..start + len]
    }

    fn push(&mut self, kind: Kind, label: Span, a: usize, b: usize) {
        // The limits on texts and labels make every number fit.
        let op = Op { kind, label_len: label.1 as u16, at: label.0 as u32, a: a as u32, b: b as u32 };
        self.ops.push(op);
    }

    #[cold]
    fn no_operator(&self, label: Span) -> ParseError {
        let label = SmolStr::new(&self.text[label.0..label.0 + label.1]);
        self.error(self.at, Reason::Operator { label })
    }

    #[cold]
    fn error(&self, position: usize, reason: Reason) -> ParseError {
        ParseError { position, token: token_at(&self.text[position..]), reason }
    }
}

/// What a message shows of the text at an error: a word, an operator, a string or a character, cut to 24
/// characters.
fn token_at(rest: &str) -> SmolStr {
    const SHOWN: usize = 24;
    let mut chars = rest.chars();
    let word = |c: char| u8::try_from(c).is_ok_and(is_label_byte);
    let len = match chars.next() {
        None => 0,
        Some(quote @ ('"' | '\'')) => 1 + chars.take_while(|&c| c != quote).take(SHOWN).count() + 1,
        Some(c @ ('&' | '|')) => 1 + usize::from(chars.next() == Some(c)),
        Some('=' | '!') => 1 + usize::from(chars.next() == Some('=')),
        Some(c) if word(c) => 1 + chars.take_while(|&c| word(c)).take(SHOWN).count(),
        Some(_) => 1,
    };
    if len > SHOWN {
        rest.chars().take(SHOWN).chain("...".chars()).collect()
    } else {
        rest.chars().take(len).collect()
    }
}
