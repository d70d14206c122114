//! UIDs of custom resources and of the v3 objects that they hold: two different numbers, one made of the other.

/// Why a text is not a UID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UidError {
    /// The text has no length that a UUID can have.
    #[error("failed to parse UID for resource: invalid UUID length: {0}")]
    Length(usize),
    /// The text is not of a UUID's form.
    #[error("failed to parse UID for resource: invalid UUID format")]
    Format,
}

/// The UID of the v3 object of a custom resource with this UID, or the other way round.
///
/// Reverses the bits of each byte except the two that hold version and variant, so applying it twice gives the
/// first UID back. Accepts the forms of RFC 9562, with or without dashes, braces or `urn:uuid:`.
pub fn convert_uid(uid: &str) -> Result<String, UidError> {
    let mut bytes = parse(uid)?;
    for (i, byte) in bytes.iter_mut().enumerate() {
        if i != 6 && i != 8 {
            *byte = byte.reverse_bits();
        }
    }
    let mut out = super::hex(&bytes);
    for at in [20, 16, 12, 8] {
        out.insert(at, '-');
    }
    Ok(out)
}

fn parse(uid: &str) -> Result<[u8; 16], UidError> {
    const URN: &str = "urn:uuid:";
    let text = uid.as_bytes();
    let (text, dashed) = match text.len() {
        32 => (text, false),
        36 => (text, true),
        38 if text.starts_with(b"{") && text.ends_with(b"}") => (&text[1..37], true),
        45 if text[..URN.len()].eq_ignore_ascii_case(URN.as_bytes()) => (&text[URN.len()..], true),
        38 | 45 => return Err(UidError::Format),
        other => return Err(UidError::Length(other)),
    };
    let mut out = [0; 16];
    let mut rest = text;
    for (i, byte) in out.iter_mut().enumerate() {
        if dashed && matches!(i, 4 | 6 | 8 | 10) {
            rest = rest.strip_prefix(b"-").ok_or(UidError::Format)?;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or(UidError::Format)?;
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        rest = tail;
    }
    Ok(out)
}

fn digit(byte: u8) -> Result<u8, UidError> {
    char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(UidError::Format)
}
