//! Results of ADD, in the forms that the versions of the CNI specification know.
//!
//! Invariants: keys come in upstream's order (in the order of declaration up to 0.4.0, sorted from 1.0.0 on),
//! indented by four blanks, without a newline at the end.

use std::net::IpAddr;

use calico_net::cidr::parse_ip;
use calico_net::{Cidr, IpVersion};
use serde::Serialize;
use serde_json::Value;

use crate::version::SpecVersion;

#[cfg(test)]
mod tests;

/// A network device that ADD made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Hardware address; empty if not told.
    pub mac: String,
    /// MTU; 0 if not told.
    pub mtu: u32,
    /// Path of the network namespace; empty for the host's.
    pub sandbox: String,
}

/// An address of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpConfig {
    /// Address with prefix length.
    pub address: Cidr,
    /// Router.
    pub gateway: Option<IpAddr>,
    /// Place of the interface in the list.
    pub interface: Option<usize>,
}

/// A route of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteConfig {
    /// Destination, with host bits as the address manager wrote them.
    pub dst: Cidr,
    /// Router.
    pub gw: Option<IpAddr>,
}

/// What ADD made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddResult {
    /// Devices.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes.
    pub routes: Vec<RouteConfig>,
}

// === impl AddResult ===

impl AddResult {
    /// The text of this result for a configuration of `version`, which it names as `written`.
    pub fn render(&self, version: SpecVersion, written: &str) -> String {
        let text = if version <= SpecVersion::V0_2_0 {
            pretty(&self.one_per_family(written))
        } else if version < SpecVersion::V1_0_0 {
            pretty(&self.lists(written))
        } else {
            pretty(&self.sorted(written))
        };
        text.unwrap_or_default()
    }

    fn one_per_family(&self, written: &str) -> Old {
        let family = |version: IpVersion| {
            let ip = self.ips.iter().find(|ip| ip.address.version() == version)?;
            let routes = self.routes.iter().filter(|r| r.dst.version() == version).map(Route::from).collect();
            Some(OldIp { ip: ip.address.to_string(), gateway: ip.gateway, routes })
        };
        Old {
            cni_version: written.to_owned(),
            ip4: family(IpVersion::V4),
            ip6: family(IpVersion::V6),
            dns: Dns {},
        }
    }

    fn lists(&self, written: &str) -> Lists {
        let interface = |i: &Interface| ListInterface {
            name: i.name.clone(),
            mac: i.mac.clone(),
            sandbox: i.sandbox.clone(),
        };
        let ip = |ip: &IpConfig| ListIp {
            version: ip.address.version().number().to_string(),
            interface: ip.interface,
            address: ip.address.to_string(),
            gateway: ip.gateway,
        };
        Lists {
            cni_version: written.to_owned(),
            interfaces: self.interfaces.iter().map(interface).collect(),
            ips: self.ips.iter().map(ip).collect(),
            routes: self.routes.iter().map(Route::from).collect(),
            dns: Dns {},
        }
    }

    fn sorted(&self, written: &str) -> Sorted {
        let interface = |i: &Interface| SortedInterface {
            mac: i.mac.clone(),
            mtu: i.mtu,
            name: i.name.clone(),
            sandbox: i.sandbox.clone(),
        };
        let ip = |ip: &IpConfig| SortedIp {
            address: ip.address.to_string(),
            gateway: ip.gateway,
            interface: ip.interface,
        };
        Sorted {
            cni_version: written.to_owned(),
            interfaces: self.interfaces.iter().map(interface).collect(),
            ips: self.ips.iter().map(ip).collect(),
            routes: self.routes.iter().map(Route::from).collect(),
        }
    }

    /// Reads a result of any version, of another plugin or of an earlier call. The error is a text.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let mut result = Self::default();
        for (i, interface) in list(value, "interfaces")?.iter().enumerate() {
            let text = |key: &str| interface.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = text("name");
            if name.is_empty() {
                return Err(format!("interfaces[{i}] has no name"));
            }
            let mtu = interface.get("mtu").and_then(Value::as_u64).unwrap_or(0);
            result.interfaces.push(Interface {
                name,
                mac: text("mac"),
                mtu: u32::try_from(mtu).unwrap_or(0),
                sandbox: text("sandbox"),
            });
        }
        for (i, ip) in list(value, "ips")?.iter().enumerate() {
            result.ips.push(IpConfig {
                address: cidr(ip, "address").ok_or_else(|| format!("ips[{i}].address is no CIDR"))?,
                gateway: ip.get("gateway").and_then(Value::as_str).and_then(parse_ip),
                interface: ip.get("interface").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()),
            });
        }
        let mut add_routes = |holder: &Value, path: &str| {
            for (i, route) in list(holder, "routes")?.iter().enumerate() {
                result.routes.push(RouteConfig {
                    dst: cidr(route, "dst").ok_or_else(|| format!("{path}routes[{i}].dst is no CIDR"))?,
                    gw: route.get("gw").and_then(Value::as_str).and_then(parse_ip),
                });
            }
            Ok::<(), String>(())
        };
        add_routes(value, "")?;
        for key in ["ip4", "ip6"] {
            let Some(old) = value.get(key).filter(|v| !v.is_null()) else { continue };
            let address = cidr(old, "ip").ok_or_else(|| format!("{key}.ip is no CIDR"))?;
            let gateway = old.get("gateway").and_then(Value::as_str).and_then(parse_ip);
            add_routes(old, &format!("{key}."))?;
            result.ips.push(IpConfig { address, gateway, interface: None });
        }
        Ok(result)
    }
}

/// Text with an indent of four blanks, as upstream prints results and errors.
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))?;
    Ok(String::from_utf8(out).unwrap_or_default())
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{key} is no list")),
    }
}

fn cidr(value: &Value, key: &str) -> Option<Cidr> {
    Cidr::parse_strict(value.get(key)?.as_str()?).ok()
}

#[derive(Serialize)]
struct Old {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<OldIp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<OldIp>,
    dns: Dns,
}

#[derive(Serialize)]
struct OldIp {
    ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

#[derive(Serialize)]
struct Lists {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<ListInterface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<ListIp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Serialize)]
struct ListInterface {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    sandbox: String,
}

#[derive(Serialize)]
struct ListIp {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<usize>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

#[derive(Serialize)]
struct Sorted {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<SortedInterface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<SortedIp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

#[derive(Serialize)]
struct SortedInterface {
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: u32,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    sandbox: String,
}

#[derive(Serialize)]
struct SortedIp {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<usize>,
}

#[derive(Serialize)]
struct Route {
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

impl From<&RouteConfig> for Route {
    fn from(route: &RouteConfig) -> Self {
        Self { dst: route.dst.to_string(), gw: route.gw }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Name resolution is not Calico's: always empty.
#[derive(Serialize)]
struct Dns {}
