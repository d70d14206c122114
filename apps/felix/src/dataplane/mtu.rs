//! Sizes of packets: the node's own, those of tunnels, and the one for new workloads.

use std::path::Path;

use calico_net::IpVersion;
use regex::Regex;

use super::links::Links;

/// MTU where no interface of the node counts.
const FALLBACK: u32 = 1460;
/// Bytes that VXLAN adds to a packet, per family of the outer one.
const VXLAN_OVERHEAD: [(IpVersion, u32); 2] = [(IpVersion::V4, 50), (IpVersion::V6, 70)];

/// Smallest MTU of the interfaces that are up and whose names match.
pub(crate) fn of_node(links: &Links, pattern: &Regex) -> u32 {
    let counts = links.iter().filter(|(name, l)| l.is_up() && pattern.is_match(name));
    counts.map(|(_, l)| l.link.mtu).min().unwrap_or(FALLBACK)
}

/// MTU of the VXLAN device of `version`: the configured one, or what fits into the node's packets.
pub(crate) fn of_vxlan(node: u32, version: IpVersion, configured: u32) -> u32 {
    if configured != 0 {
        return configured;
    }
    let overhead = VXLAN_OVERHEAD.iter().find(|(v, _)| *v == version).map_or(0, |(_, o)| *o);
    node.saturating_sub(overhead)
}

/// Writes the MTU for new workloads where the CNI plugin looks for it. False if nobody can write there.
///
/// The file is replaced in one step, and left alone if it says the same already.
pub(crate) fn publish(path: &Path, mtu: u32) -> bool {
    let text = mtu.to_string();
    if std::fs::read_to_string(path).is_ok_and(|old| old.trim() == text) {
        return true;
    }
    let Some(dir) = path.parent() else { return false };
    let partial = path.with_extension("tmp");
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&partial, &text))
        .and_then(|()| std::fs::rename(&partial, path))
        .inspect_err(|_| drop(std::fs::remove_file(&partial)))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_leave_room_for_their_headers() {
        assert_eq!(of_vxlan(1500, IpVersion::V4, 0), 1450);
        assert_eq!(of_vxlan(1500, IpVersion::V6, 0), 1430);
        assert_eq!(of_vxlan(1500, IpVersion::V6, 1200), 1200);
        assert_eq!(of_vxlan(40, IpVersion::V4, 0), 0);
    }

    #[test]
    fn the_file_is_written_once_and_quietly_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("deep/mtu");
        assert!(publish(&path, 1450));
        assert_eq!(std::fs::read_to_string(&path).expect("file"), "1450");
        let before = std::fs::metadata(&path).expect("file").modified().expect("time");
        assert!(publish(&path, 1450));
        assert_eq!(std::fs::metadata(&path).expect("file").modified().expect("time"), before);
        assert!(publish(&path, 1400));
        assert_eq!(std::fs::read_to_string(&path).expect("file"), "1400");
        assert!(!publish(Path::new("/proc/nothing/mtu"), 1400));
    }
}
