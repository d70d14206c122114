//! What the plugin must know of the node it runs on.

use std::io;
use std::path::{Path, PathBuf};

use calico_host::hostname;

use crate::config::{HostPaths, NetConf};
use crate::error::PluginError;

/// Fails unless the node's agent has written its name, or may leave that out.
pub fn require_nodename_file(conf: &NetConf, paths: &HostPaths) -> Result<(), PluginError> {
    let path = nodename_path(conf, paths);
    match std::fs::metadata(&path) {
        Err(source) if !conf.nodename_file_optional => Err(PluginError::NodenameFile { path, source }),
        _ => Ok(()),
    }
}

/// The node's name: from the workload's arguments, `nodename`, the nodename file, `hostname`, or the host's own name in
/// lower case, whichever comes first.
pub fn node_name(conf: &NetConf, paths: &HostPaths) -> Result<String, PluginError> {
    if let Some(node) = conf.workload.as_ref().map(|w| &w.node).filter(|n| !n.is_empty()) {
        return Ok(node.clone());
    }
    if !conf.nodename.is_empty() {
        return Ok(conf.nodename.clone());
    }
    let path = nodename_path(conf, paths);
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(PluginError::NodenameFile { path, source }),
    }
    if !conf.hostname.is_empty() {
        return Ok(conf.hostname.clone());
    }
    hostname().map(|name| name.trim().to_lowercase()).map_err(PluginError::Nodename)
}

/// MTU for the container: `mtu`, else the MTU file's, else 0 for the kernel's default.
pub fn mtu(conf: &NetConf, paths: &HostPaths) -> Result<u32, PluginError> {
    let failed = |reason: String| PluginError::MtuFile { path: paths.mtu.clone(), reason };
    match std::fs::read_to_string(&paths.mtu) {
        Ok(text) => {
            let number = text.trim();
            let from_file = number.parse().map_err(|_| failed(format!("{number:?} is no number")))?;
            Ok(if conf.mtu == 0 { from_file } else { conf.mtu })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound && !conf.require_mtu_file => Ok(conf.mtu),
        Err(e) => Err(failed(e.to_string())),
    }
}

fn nodename_path(conf: &NetConf, paths: &HostPaths) -> PathBuf {
    if conf.nodename_file.is_empty() {
        paths.nodename.clone()
    } else {
        Path::new(&conf.nodename_file).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn setup() -> (tempfile::TempDir, HostPaths) {
        let dir = tempfile::tempdir().expect("directory");
        let paths = HostPaths {
            nodename: dir.path().join("nodename"),
            mtu: dir.path().join("mtu"),
            ..HostPaths::default()
        };
        (dir, paths)
    }

    fn conf(extra: &str) -> NetConf {
        NetConf::parse(&format!(r#"{{"name": "n"{extra}}}"#)).expect("configuration")
    }

    #[test]
    fn the_file_is_needed_even_where_the_name_is_configured() {
        let (dir, paths) = setup();
        let named = conf(r#", "nodename": "a""#);
        let error = require_nodename_file(&named, &paths).expect_err("no file");
        assert!(error.to_string().contains("nodename cannot be read"), "{error}");
        let optional = conf(r#", "nodename_file_optional": true"#);
        require_nodename_file(&optional, &paths).expect("optional");
        let other = dir.path().join("other");
        fs::write(&other, "b").expect("write");
        require_nodename_file(&conf(&format!(r#", "nodename_file": "{}""#, other.display())), &paths)
            .expect("another file");
        fs::write(&paths.nodename, "b").expect("write");
        require_nodename_file(&named, &paths).expect("there");
    }

    #[test]
    fn sources_of_the_name_in_order() {
        let (_dir, paths) = setup();
        let everything =
            r#", "hostname": "d", "nodename": "b", "args": {"projectcalico.org": {"node": "a"}}"#;
        assert_eq!(node_name(&conf(everything), &paths).expect("name"), "a");
        assert_eq!(node_name(&conf(r#", "hostname": "d", "nodename": "b""#), &paths).expect("name"), "b");
        assert_eq!(node_name(&conf(r#", "hostname": "d""#), &paths).expect("name"), "d");
        let own = node_name(&conf(""), &paths).expect("name");
        assert!(!own.is_empty() && own == own.to_lowercase());
        fs::write(&paths.nodename, "c\n").expect("write");
        assert_eq!(node_name(&conf(r#", "hostname": "d""#), &paths).expect("name"), "c");
        fs::write(&paths.nodename, "\n").expect("write");
        assert_eq!(node_name(&conf(r#", "hostname": "d""#), &paths).expect("name"), "d");
    }

    #[test]
    fn sources_of_the_mtu_in_order() {
        let (_dir, paths) = setup();
        assert_eq!(mtu(&conf(""), &paths).expect("default"), 0);
        assert_eq!(mtu(&conf(r#", "mtu": 1333"#), &paths).expect("configured"), 1333);
        let error = mtu(&conf(r#", "require_mtu_file": true"#), &paths).expect_err("absent");
        assert!(error.to_string().contains("mtu: No such file"), "{error}");
        fs::write(&paths.mtu, " 1412\n").expect("write");
        assert_eq!(mtu(&conf(""), &paths).expect("file"), 1412);
        assert_eq!(mtu(&conf(r#", "mtu": 1333"#), &paths).expect("configured"), 1333);
        fs::write(&paths.mtu, "big").expect("write");
        let error = mtu(&conf(r#", "mtu": 1333"#), &paths).expect_err("broken");
        assert!(error.to_string().ends_with("\"big\" is no number"), "{error}");
    }
}
