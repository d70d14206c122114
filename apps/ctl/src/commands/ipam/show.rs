//! `ipam show`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_client::Client;
use calico_client::ipam::{Assignment, IpamError, PoolUtilization};
use calico_ipam::ops::ORPHANS;
use calico_model::ipam::{AllocationBlock, IpamConfig};
use calico_model::{ListOptions, Value};
use smol_str::SmolStr;

use super::{CommandError, address};
use crate::cli::Args;
use crate::connect;
use crate::output::{Align, Out, boxed};

pub(in crate::commands) async fn run(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let ip = address(args)?;
    let client = connect::checked_client(args).await?;
    let ipam = super::ipam(&client);
    let text = if let Some(ip) = ip {
        owner(ip, ipam.get_assignment(ip).await)?
    } else if args.is_set("show-blocks") {
        utilization(&ipam.utilization(Vec::new()).await?, true)
    } else if args.is_set("show-borrowed") {
        borrowed(&blocks(&client).await?)
    } else if args.is_set("show-configuration") {
        configuration(&ipam.get_config().await?)
    } else {
        utilization(&ipam.utilization(Vec::new()).await?, false)
    };
    Ok(out.print(&text)?)
}

async fn blocks(client: &Client) -> Result<Vec<AllocationBlock>, CommandError> {
    let list = client.backend().list(&ListOptions::Blocks { version: None }, None).await;
    let list = list.map_err(|error| CommandError::Client(error.into()))?;
    let mut blocks: Vec<AllocationBlock> = list
        .items
        .into_iter()
        .filter_map(|kv| match kv.value {
            Some(Value::Block(block)) => Some(AllocationBlock::clone(&block)),
            _ => None,
        })
        .collect();
    blocks.sort_by_key(|block| block.cidr);
    Ok(blocks)
}

/// Who holds an address.
fn owner(ip: IpAddr, found: Result<Assignment, IpamError>) -> Result<String, CommandError> {
    let attribute = match found {
        Ok(assignment) => assignment.attribute,
        Err(IpamError::InCooldown { .. }) => {
            return Ok(format!("{ip} is not assigned (released a short time ago, in cooldown)\n"));
        }
        Err(error) if super::is_unassigned(&error) => return Ok(format!("{ip} is not assigned\n")),
        Err(error) => return Err(error.into()),
    };
    let handle = attribute.handle_id.as_deref().unwrap_or("<none>");
    let mut text = format!("IP {ip} is in use\nHandle ID: {handle}\n");
    if attribute.active_owner_attrs.is_empty() {
        text.push_str("No Active Owner attributes defined\n");
    } else {
        text.push_str("Active Owner Attributes:\n");
        attributes(&mut text, &attribute.active_owner_attrs);
    }
    if !attribute.alternate_owner_attrs.is_empty() {
        text.push_str("Alternate Owner Attributes:\n");
        attributes(&mut text, &attribute.alternate_owner_attrs);
    }
    Ok(text)
}

fn attributes(text: &mut String, attributes: &BTreeMap<SmolStr, SmolStr>) {
    for (key, value) in attributes {
        text.push_str(&format!("  {key}: {value}\n"));
    }
}

/// How full pools and, if asked for, blocks are.
fn utilization(pools: &[PoolUtilization], with_blocks: bool) -> String {
    let mut rows = Vec::new();
    let row = |group: &str, cidr: String, [total, used, reserved, free]: [u128; 4]| {
        let share = |part: u128| {
            let percent = if total == 0 { 0.0 } else { 100.0 * part as f64 / total as f64 };
            format!("{} ({percent:.0}%)", five_digits(part as f64))
        };
        let total = five_digits(total as f64);
        vec![group.to_owned(), cidr, total, share(used), share(reserved), share(free)]
    };
    for pool in pools {
        if pool.name != ORPHANS {
            let numbers = [pool.capacity, pool.in_use, pool.reserved, pool.available];
            rows.push(row("IP Pool", pool.cidr.to_string(), numbers));
        }
        for block in pool.blocks.iter().filter(|_| with_blocks) {
            let numbers = [block.capacity, block.in_use, block.reserved, block.available];
            rows.push(row("Block", block.cidr.to_string(), numbers));
        }
    }
    let headings = [
        ("GROUPING", Align::Left),
        ("CIDR", Align::Left),
        ("IPS TOTAL", Align::Right),
        ("IPS IN USE", Align::Right),
        ("IPS RESERVED", Align::Right),
        ("IPS FREE", Align::Right),
    ];
    boxed(&headings, &rows)
}

/// Addresses in use on another node than their block's.
fn borrowed(blocks: &[AllocationBlock]) -> String {
    let mut rows = Vec::new();
    let mut nowhere = 0;
    for block in blocks {
        let owner =
            block.affinity.as_deref().and_then(|affinity| affinity.strip_prefix("host:")).unwrap_or_default();
        for (ordinal, index) in block.allocations.iter().enumerate() {
            let Some(attribute) = index.and_then(|index| block.attributes.get(index as usize)) else {
                continue;
            };
            if attribute.released_at.is_some() {
                continue;
            }
            let of =
                |key: &str| attribute.active_owner_attrs.get(key).map(SmolStr::as_str).unwrap_or_default();
            let node = of("node");
            if node.is_empty() {
                nowhere += 1;
                continue;
            }
            if node == owner {
                continue;
            }
            let (kind, to) = match of("pod") {
                "" => (of("type").to_owned(), String::new()),
                pod => ("pod".to_owned(), format!("{}/{pod}", of("namespace"))),
            };
            let ip = block.cidr.nth(ordinal as u128).map(|ip| ip.to_string()).unwrap_or_default();
            rows.push(vec![ip, node.to_owned(), block.cidr.to_string(), owner.to_owned(), kind, to]);
        }
    }
    let headings = ["IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"];
    let mut text = boxed(&headings.map(|heading| (heading, Align::Left)), &rows);
    if nowhere > 0 {
        text.push_str(&format!(
            "\nNote: found {nowhere} IP allocations without an explicit node association. Unable to determine if \
             they are borrowed.\n"
        ));
    }
    text
}

/// The settings.
fn configuration(config: &IpamConfig) -> String {
    let persistence = config.kubevirt_vm_address_persistence.as_deref().unwrap_or("Enabled");
    let rows = [
        ("StrictAffinity", config.strict_affinity.to_string()),
        ("AutoAllocateBlocks", config.auto_allocate_blocks.to_string()),
        ("MaxBlocksPerHost", config.max_blocks_per_host.to_string()),
        ("KubeVirtVMAddressPersistence", persistence.to_owned()),
        ("IPCooldownSeconds", config.ip_cooldown_seconds.to_string()),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    boxed(&[("PROPERTY", Align::Left), ("VALUE", Align::Left)], &rows)
}

/// A number with at most five digits that count: `256`, `6.5536e+04` becomes `65536`, `1.3107e+05`.
fn five_digits(value: f64) -> String {
    let text = format!("{value:.4e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (0..5).contains(&exponent) {
        return value.to_string();
    }
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}e+{exponent:02}")
}

#[cfg(test)]
mod tests {
    use calico_ipam::ops::BlockUtilization;

    use super::*;

    #[test]
    fn counts_are_short() {
        for (value, want) in [
            (0.0, "0"),
            (4.0, "4"),
            (256.0, "256"),
            (65536.0, "65536"),
            (131_072.0, "1.3107e+05"),
            (100_000.0, "1e+05"),
            (18_446_744_073_709_551_616.0, "1.8447e+19"),
        ] {
            assert_eq!(five_digits(value), want);
        }
    }

    #[test]
    fn pools_and_blocks_in_a_box() {
        let block = BlockUtilization {
            cidr: "10.7.0.0/26".parse().unwrap(),
            capacity: 64,
            in_use: 3,
            reserved: 4,
            available: 57,
        };
        let pool = PoolUtilization {
            name: "p".into(),
            cidr: "10.7.0.0/24".parse().unwrap(),
            capacity: 256,
            in_use: 5,
            reserved: 4,
            available: 247,
            blocks: vec![block.clone()],
        };
        let orphans = PoolUtilization { name: ORPHANS.into(), blocks: vec![block], ..pool.clone() };
        assert_eq!(
            utilization(&[pool.clone(), orphans.clone()], false),
            "+----------+-------------+-----------+------------+--------------+-----------+\n\
             | GROUPING | CIDR        | IPS TOTAL | IPS IN USE | IPS RESERVED | IPS FREE  |\n\
             +----------+-------------+-----------+------------+--------------+-----------+\n\
             | IP Pool  | 10.7.0.0/24 |       256 |     5 (2%) |       4 (2%) | 247 (96%) |\n\
             +----------+-------------+-----------+------------+--------------+-----------+\n"
        );
        let text = utilization(&[pool, orphans], true);
        assert_eq!(
            text.matches("| Block    | 10.7.0.0/26 |        64 |     3 (5%) |       4 (6%) |  57 (89%) |")
                .count(),
            2
        );
    }

    #[test]
    fn owners_are_told() {
        use calico_model::ipam::AllocationAttribute;
        let ip: IpAddr = "10.0.0.5".parse().unwrap();
        let attribute = AllocationAttribute {
            handle_id: Some("h".into()),
            active_owner_attrs: [("pod".into(), "a".into()), ("node".into(), "n".into())].into(),
            ..AllocationAttribute::default()
        };
        assert_eq!(
            owner(ip, Ok(Assignment { attribute, sequence: 1 })).unwrap(),
            "IP 10.0.0.5 is in use\nHandle ID: h\nActive Owner Attributes:\n  node: n\n  pod: a\n"
        );
        let bare = Assignment { attribute: AllocationAttribute::default(), sequence: 1 };
        assert_eq!(
            owner(ip, Ok(bare)).unwrap(),
            "IP 10.0.0.5 is in use\nHandle ID: <none>\nNo Active Owner attributes defined\n"
        );
        assert_eq!(owner(ip, Err(IpamError::Unassigned { ip })).unwrap(), "10.0.0.5 is not assigned\n");
        assert_eq!(owner(ip, Err(IpamError::NotInPool { ip })).unwrap(), "10.0.0.5 is not assigned\n");
    }
}
