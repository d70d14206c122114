//! Against the running system. What needs rights that the tester lacks is skipped with its reason.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use calico_host::{
    FileLock, InterfaceNameError, NetNs, NetNsError, Process, Sysctl, SysctlError, check_interface_name,
    hostname,
};
use nix::sys::signal::Signal;

fn privileged() -> bool {
    let yes = nix::unistd::geteuid().is_root();
    if !yes {
        let _ = writeln!(std::io::stderr(), "skipped: needs root");
    }
    yes
}

fn links() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("table of links");
    table.lines().skip(2).filter_map(|l| l.split_once(':')).map(|(name, _)| name.trim().to_owned()).collect()
}

#[test]
fn work_in_a_namespace_leaves_the_caller_where_it_was() {
    if !privileged() {
        return;
    }
    let before = NetNs::current().expect("own");
    let ns = NetNs::new().expect("new");
    assert!(!ns.is_same(&before).expect("compare"));
    let (seen, inside) = ns.run(|| (links(), NetNs::current().expect("inside"))).expect("run");
    assert_eq!(seen, vec!["lo"]);
    assert!(inside.is_same(&ns).expect("compare"));
    assert!(NetNs::current().expect("own").is_same(&before).expect("compare"));
    assert!(inside.as_fd().try_clone_to_owned().is_ok());
}

#[test]
fn panics_cross_the_namespace() {
    if !privileged() {
        return;
    }
    let ns = NetNs::new().expect("new");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ns.run(|| panic!("inside"))));
    assert!(result.is_err());
}

#[test]
fn named_namespaces_stay_until_deleted() {
    if !privileged() {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let dir = dir.path().join("netns");
    let made = NetNs::create_named(&dir, "one").expect("create");
    let opened = NetNs::open(dir.join("one")).expect("open");
    assert!(made.is_same(&opened).expect("compare"));
    let again = NetNs::create_named(&dir, "one").expect_err("in use");
    assert!(matches!(again, NetNsError::Exists { .. }), "{again}");
    drop((made, opened));
    NetNs::open(dir.join("one")).expect("still there");
    assert!(NetNs::delete_named(&dir, "one").expect("delete"));
    assert!(!NetNs::delete_named(&dir, "one").expect("delete again"));
    let gone = NetNs::open(dir.join("one")).expect_err("gone");
    assert!(matches!(gone, NetNsError::Missing { .. }) && gone.is_gone(), "{gone}");
    // What a reboot leaves: a file without a mount.
    fs::write(dir.join("stale"), "").expect("write");
    let stale = NetNs::open(dir.join("stale")).expect_err("no namespace");
    assert!(matches!(stale, NetNsError::NotANamespace { .. }) && stale.is_gone(), "{stale}");
    assert!(NetNs::delete_named(&dir, "stale").expect("delete"));
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(matches!(NetNs::create_named(&dir, name), Err(NetNsError::Name { .. })), "{name:?}");
    }
}

#[test]
fn processes_run_in_the_namespace_and_end_with_their_owner() {
    if !privileged() {
        return;
    }
    let ns = NetNs::new().expect("new");
    let mut process = Process::spawn(Command::new("sleep").arg("1000"), Some(&ns)).expect("spawn");
    let id = process.id();
    assert!(NetNs::of_process(id).expect("its namespace").is_same(&ns).expect("compare"));
    assert_eq!(process.try_wait().expect("look"), None);
    assert_eq!(process.wait(Duration::from_millis(1)).expect("wait"), None);
    drop(process);
    assert!(!fs::exists(format!("/proc/{id}")).expect("look"));
}

#[test]
fn stopping_asks_first_and_kills_then() {
    use std::os::unix::process::ExitStatusExt as _;
    let mut polite = Process::spawn(Command::new("sleep").arg("1000"), None).expect("spawn");
    let status = polite.stop(Duration::from_secs(10)).expect("stop");
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(polite.kill().expect("again"), status);
    polite.signal(Signal::SIGTERM).expect("to one that has ended");

    // It says when it no longer listens.
    let mut deaf = Command::new("sh");
    deaf.args(["-c", "trap '' TERM; echo ready; read forever"]);
    deaf.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut deaf = Process::spawn(&mut deaf, None).expect("spawn");
    let mut line = String::new();
    let out = deaf.child_mut().stdout.take().expect("pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("ready");
    let status = deaf.stop(Duration::from_millis(20)).expect("stop");
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));

    let error = Process::spawn(&mut Command::new("/no/such/program"), None).expect_err("no program");
    assert!(error.to_string().starts_with("cannot start /no/such/program: "), "{error}");
}

#[test]
fn kernel_parameters_belong_to_the_namespace() {
    if !privileged() {
        return;
    }
    let sysctl = Sysctl::default();
    let name = "net/ipv4/conf/lo/route_localnet";
    let ns = NetNs::new().expect("new");
    let outside = sysctl.read(name).expect("read");
    ns.run(|| {
        assert_eq!(sysctl.read(name).expect("read"), "0");
        sysctl.write(name, "1").expect("write");
        assert_eq!(sysctl.read(name).expect("read"), "1");
    })
    .expect("run");
    assert_eq!(sysctl.read(name).expect("read"), outside);
    let error = sysctl.write("net/ipv4/conf/no-such-link/forwarding", "1").expect_err("no such link");
    assert!(error.is_missing(), "{error}");
    assert!(
        error.to_string().starts_with("cannot write kernel parameter net/ipv4/conf/no-such-link/forwarding")
    );
}

#[test]
fn kernel_parameters_are_never_made_or_left() {
    let root = tempfile::tempdir().expect("directory");
    fs::create_dir_all(root.path().join("net")).expect("directory");
    fs::write(root.path().join("net/known"), "7\n").expect("write");
    let sysctl = Sysctl::under(root.path());
    assert_eq!(sysctl.read("net/known").expect("read"), "7");
    sysctl.write("net/known", "8").expect("write");
    assert!(sysctl.write("net/unknown", "1").expect_err("unknown").is_missing());
    assert!(!fs::exists(root.path().join("net/unknown")).expect("look"));
    for name in ["", "/net/known", "net/../net/known", "../x", "net/", "a\0b", "."] {
        assert!(matches!(sysctl.read(name), Err(SysctlError::Name { .. })), "{name:?}");
    }
}

#[test]
fn locks_exclude_each_other() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("deep/er/lock");
    let held = FileLock::acquire(&path).expect("lock");
    assert!(FileLock::try_acquire(&path).expect("try").is_none());
    let (tx, rx) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _second = FileLock::acquire(&path).expect("lock");
            tx.send(Instant::now()).expect("send");
        });
        assert!(rx.recv_timeout(Duration::from_millis(30)).is_err(), "the second one waits");
        let released = Instant::now();
        drop(held);
        assert!(rx.recv_timeout(Duration::from_secs(10)).expect("the second one gets it") >= released);
    });
    assert!(FileLock::try_acquire(&path).expect("try").is_some());
    let error = FileLock::acquire("/proc/no/such/lock").expect_err("no directory can be made there");
    assert!(error.to_string().contains("/proc/no/such/lock"), "{error}");
}

#[test]
fn interface_names() {
    for good in ["a", "eth0", "cali12345678901", "vxlan.calico", "...", "a-b_c"] {
        assert_eq!(check_interface_name(good), Ok(()), "{good}");
    }
    for (bad, error) in [
        ("", InterfaceNameError::Empty),
        ("cali123456789012", InterfaceNameError::TooLong),
        (".", InterfaceNameError::Dots),
        ("..", InterfaceNameError::Dots),
        ("a/b", InterfaceNameError::Character),
        ("a:b", InterfaceNameError::Character),
        ("a b", InterfaceNameError::Character),
        ("a\tb", InterfaceNameError::Character),
    ] {
        assert_eq!(check_interface_name(bad), Err(error), "{bad:?}");
    }
}

#[test]
fn the_host_has_a_name() {
    assert!(!hostname().expect("host name").is_empty());
}
