//! Settings of Felix seen one by one.

use std::collections::BTreeMap;

use calico_net::Port;

use super::{BpfConntrackTimeouts, HealthTimeoutOverride, ProtoPort, RouteTableRange};
use crate::numorstring::Dscp;
use crate::time::GoDuration;

/// What is known about a setting of Felix.
#[derive(Debug, PartialEq, Eq)]
pub struct FelixParam {
    /// Name of the field in a FelixConfiguration.
    pub field: &'static str,
    /// Name in the environment (`FELIX_<name>`, any case), in the configuration file and in the stored model.
    pub param: &'static str,
    /// Type of the field.
    pub param_type: ParamType,
    /// What Felix uses if the setting is nowhere given, in the text form of the configuration file; empty for unset.
    pub default: &'static str,
}

/// Type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// Truth value.
    Bool,
    /// Whole number.
    Int,
    /// Length of time.
    Duration,
    /// Text.
    Text,
    /// List of texts.
    TextList,
    /// Map of texts.
    TextMap,
    /// Port or range of ports.
    Port,
    /// List of ports and ranges.
    PortList,
    /// List of ports with protocols.
    ProtoPortList,
    /// DSCP value.
    Dscp,
    /// Timeouts of health reporters.
    HealthTimeouts,
    /// Timeouts of BPF conntrack.
    ConntrackTimeouts,
    /// Range of routing tables.
    RouteTableRange,
    /// List of ranges of routing tables.
    RouteTableRangeList,
}

/// A setting's value, borrowed from its FelixConfiguration.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the variants mirror those of ParamType")]
pub enum ParamValue<'a> {
    Bool(bool),
    Int(i64),
    Duration(GoDuration),
    Text(&'a str),
    TextList(&'a [String]),
    TextMap(&'a BTreeMap<String, String>),
    Port(&'a Port),
    PortList(&'a [Port]),
    ProtoPortList(&'a [ProtoPort]),
    Dscp(&'a Dscp),
    HealthTimeouts(&'a [HealthTimeoutOverride]),
    ConntrackTimeouts(&'a BpfConntrackTimeouts),
    RouteTableRange(&'a RouteTableRange),
    RouteTableRangeList(&'a [RouteTableRange]),
}

/// A type that a field of FelixConfiguration can have.
pub(super) trait Field {
    const TYPE: ParamType;

    /// The value, if set.
    fn value(&self) -> Option<ParamValue<'_>>;
}

macro_rules! field_types {
    ($($ty:ty => $kind:ident, |$v:ident| $value:expr;)*) => {
        $(
            impl Field for Option<$ty> {
                const TYPE: ParamType = ParamType::$kind;

                fn value(&self) -> Option<ParamValue<'_>> {
                    self.as_ref().map(|$v| ParamValue::$kind($value))
                }
            }
        )*
    };
}

field_types! {
    bool => Bool, |v| *v;
    i64 => Int, |v| *v;
    GoDuration => Duration, |v| *v;
    Vec<String> => TextList, |v| v;
    BTreeMap<String, String> => TextMap, |v| v;
    Port => Port, |v| v;
    Vec<Port> => PortList, |v| v;
    Vec<ProtoPort> => ProtoPortList, |v| v;
    Dscp => Dscp, |v| v;
    BpfConntrackTimeouts => ConntrackTimeouts, |v| v;
    RouteTableRange => RouteTableRange, |v| v;
    Vec<RouteTableRange> => RouteTableRangeList, |v| v;
}

impl Field for String {
    const TYPE: ParamType = ParamType::Text;

    fn value(&self) -> Option<ParamValue<'_>> {
        (!self.is_empty()).then_some(ParamValue::Text(self))
    }
}

impl Field for Vec<HealthTimeoutOverride> {
    const TYPE: ParamType = ParamType::HealthTimeouts;

    fn value(&self) -> Option<ParamValue<'_>> {
        (!self.is_empty()).then_some(ParamValue::HealthTimeouts(self))
    }
}
