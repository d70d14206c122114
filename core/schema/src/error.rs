//! Verdicts of validation.

use std::fmt;

/// One fault of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field: `spec.nets[0]`, or `Metadata.Name` and the like for metadata.
    pub field: String,
    /// The offending value as text, if it helps.
    pub value: Option<String>,
    /// What is wrong, in words; may be empty.
    pub reason: String,
}

impl FieldError {
    /// A fault with the value that is at fault.
    pub fn new(field: impl fmt::Display, value: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self { field: field.to_string(), value: Some(value.to_string()), reason: reason.into() }
    }

    /// A fault of a field as a whole.
    pub fn without_value(field: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self { field: field.to_string(), value: None, reason: reason.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        if let Some(value) = &self.value {
            write!(f, " = '{value}'")?;
        }
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        Ok(())
    }
}

/// All faults of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<FieldError>);

impl From<FieldError> for ValidationErrors {
    fn from(error: FieldError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("unknown validation error"),
            [one] => write!(f, "error with field {one}"),
            many => {
                f.write_str("error with the following fields:\n")?;
                for error in many {
                    writeln!(f, "-  {error}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ValidationErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_all_forms() {
        let full = FieldError::new("spec.cidr", "x", "must be a CIDR");
        let bare = FieldError::without_value("spec", "");
        assert_eq!(
            ValidationErrors::from(full.clone()).to_string(),
            "error with field spec.cidr = 'x' (must be a CIDR)"
        );
        assert_eq!(ValidationErrors::from(bare.clone()).to_string(), "error with field spec");
        assert_eq!(
            ValidationErrors(vec![full, bare]).to_string(),
            "error with the following fields:\n-  spec.cidr = 'x' (must be a CIDR)\n-  spec\n"
        );
        assert_eq!(ValidationErrors(vec![]).to_string(), "unknown validation error");
    }
}
