//! `calico-ipam`: addresses from Calico's pools. Runs inside the plugin, and as a program of its own for other plugins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use calico_client::Client;
use calico_host::FileLock;
use calico_ipam::IpamError;
use calico_ipam::ops::{AssignArgs, Assignments, AutoAssignArgs, AutoAssigned, ReleaseOptions};
use calico_net::{Cidr, IpVersion};
use smol_str::{SmolStr, format_smolstr};

use crate::config::{HostPaths, NetConf};
use crate::error::PluginError;
use crate::store::Store;
use crate::workload::Workload;

/// What the addresses are for, as pools' `allowedUses` name it.
const WORKLOAD_USE: &str = "Workload";
/// Limit for an assignment or release, without the wait for the lock.
const LIMIT: Duration = Duration::from_secs(90);
/// Limit for the return of addresses after a failure.
const CLEANUP_LIMIT: Duration = Duration::from_secs(30);

/// The address manager of one call.
#[derive(Debug, Clone, Copy)]
pub struct Ipam<'a> {
    /// Store.
    pub store: &'a Store,
    /// Configuration.
    pub conf: &'a NetConf,
    /// Places of files.
    pub paths: &'a HostPaths,
    /// Who gets addresses.
    pub workload: &'a Workload,
}

// === impl Ipam ===

impl Ipam<'_> {
    /// Assigns the address asked for, or one per family that the configuration turns on: IPv4 first. Each comes with
    /// the prefix length of its block; an address that was asked for as a single one.
    ///
    /// On failure nothing stays assigned.
    pub fn assign(&self, wanted: Option<IpAddr>) -> Result<Vec<Cidr>, PluginError> {
        match wanted {
            Some(ip) => self.assign_one(ip),
            None => self.auto_assign(),
        }
    }

    fn assign_one(&self, ip: IpAddr) -> Result<Vec<Cidr>, PluginError> {
        let mut args = AssignArgs::new(ip, self.workload.ids.node.clone());
        args.handle = Some(self.workload.handle().into());
        args.attributes = self.attributes();
        args.intended_use = WORKLOAD_USE.into();
        let _lock = self.lock();
        let ipam = self.store.ipam();
        self.store.run_for(LIMIT, "assign an address", ipam.assign_ip(args))??;
        Ok(vec![Cidr::host(ip)])
    }

    fn auto_assign(&self) -> Result<Vec<Cidr>, PluginError> {
        let conf = &self.conf.ipam;
        let client = self.store.client();
        let pools4 = self.pools(client, &conf.pools_v4, IpVersion::V4)?;
        let pools6 = self.pools(client, &conf.pools_v6, IpVersion::V6)?;
        let args = AutoAssignArgs {
            num4: u32::from(conf.assign_v4),
            num6: u32::from(conf.assign_v6),
            handle: Some(self.workload.handle().into()),
            attributes: self.attributes(),
            host: self.workload.ids.node.clone(),
            pools4,
            pools6,
            intended_use: WORKLOAD_USE.into(),
            ..AutoAssignArgs::default()
        };
        let assigned = {
            let _lock = self.lock();
            self.store.run_for(LIMIT, "assign addresses", self.store.ipam().auto_assign(args))?
        };
        let AutoAssigned { v4, v6, error } = assigned;
        let families = [v4, v6];
        let ips: Vec<Cidr> = families.iter().flatten().flat_map(|a| a.ips.iter().copied()).collect();
        match error.map(PluginError::from).or_else(|| shortage(&families)) {
            None => Ok(ips),
            Some(error) => {
                self.give_back(&ips);
                Err(error)
            }
        }
    }

    /// Releases every address of the container, also under the handle of very old plugins. Nothing to release is a
    /// success.
    pub fn release(&self) -> Result<(), PluginError> {
        let _lock = self.lock();
        let ipam = self.store.ipam();
        for handle in [self.workload.handle(), self.workload.legacy_handle()] {
            let released = self.store.run_for(LIMIT, "release addresses", ipam.release_by_handle(&handle))?;
            match released {
                Ok(()) => tracing::info!(handle, "Addresses released"),
                Err(IpamError::DoesNotExist { .. }) => tracing::debug!(handle, "Handle holds no addresses"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Releases addresses that this very call got. A failure is logged: the container's DEL releases them too.
    pub fn give_back(&self, ips: &[Cidr]) {
        if ips.is_empty() {
            return;
        }
        let handle = SmolStr::from(self.workload.handle());
        let requests = ips
            .iter()
            .map(|ip| ReleaseOptions {
                address: format_smolstr!("{}", ip.addr()),
                handle: handle.clone(),
                sequence: None,
            })
            .collect();
        let ipam = self.store.ipam();
        let released = self.store.run_for(CLEANUP_LIMIT, "give addresses back", ipam.release_ips(requests));
        let failure = match released {
            Ok(outcome) => outcome.error.map(PluginError::from),
            Err(error) => Some(error),
        };
        if let Some(error) = failure {
            tracing::error!(%error, "Addresses could not be given back");
        }
    }

    /// The handle under which `ip` is held; `None` if nobody holds it.
    pub fn holder(&self, ip: IpAddr) -> Result<Option<SmolStr>, PluginError> {
        let ipam = self.store.ipam();
        match self.store.run_for(LIMIT, "read an assignment", ipam.get_assignment(ip))? {
            Ok(assignment) => Ok(assignment.attribute.handle_id),
            Err(
                IpamError::Unassigned { .. } | IpamError::DoesNotExist { .. } | IpamError::NotInPool { .. },
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails unless the container holds each of `ips`.
    pub fn check(&self, ips: &[IpAddr]) -> Result<(), PluginError> {
        let own = [self.workload.handle(), self.workload.legacy_handle()];
        for ip in ips {
            match self.holder(*ip)? {
                Some(handle) if own.iter().any(|h| *h == handle) => {}
                Some(handle) => {
                    return Err(PluginError::Check(format!("address {ip} is held under handle {handle}")));
                }
                None => return Err(PluginError::Check(format!("address {ip} is not assigned"))),
            }
        }
        Ok(())
    }

    fn attributes(&self) -> BTreeMap<SmolStr, SmolStr> {
        let ids = &self.workload.ids;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC");
        let mut attributes = BTreeMap::from([
            ("node".into(), ids.node.clone()),
            ("timestamp".into(), format_smolstr!("{now}")),
        ]);
        if self.workload.is_kubernetes() {
            attributes.insert("pod".into(), ids.pod.clone());
            attributes.insert("namespace".into(), self.workload.namespace.as_str().into());
        }
        attributes
    }

    /// Pools as CIDRs: each is written as one or as a pool's name.
    fn pools(
        &self,
        client: &Client,
        written: &[String],
        version: IpVersion,
    ) -> Result<Vec<Cidr>, PluginError> {
        written
            .iter()
            .map(|pool| {
                let cidr = match Cidr::parse_strict(pool) {
                    Ok(cidr) => cidr,
                    Err(_) => self.pool_named(client, pool)?,
                };
                if cidr.version() == version {
                    Ok(cidr.masked())
                } else {
                    Err(PluginError::PoolFamily { ip: cidr.addr(), version: version.number() })
                }
            })
            .collect()
    }

    fn pool_named(&self, client: &Client, name: &str) -> Result<Cidr, PluginError> {
        let unknown = || PluginError::Pool { pool: name.to_owned() };
        let pools = client.ip_pools();
        let pool = match self.store.run_for(LIMIT, "read a pool", pools.get("", name))? {
            Ok(pool) => pool,
            Err(error) if error.is_not_found() => return Err(unknown()),
            Err(source) => {
                let object = format!("IPPool({name})");
                return Err(PluginError::Store { action: "read", object, source });
            }
        };
        Cidr::parse_strict(&pool.spec.cidr).map_err(|_| unknown())
    }

    /// Keeps the other address managers of this host out, so that they do not fight for one block. Only an
    /// optimisation: without the lock the store decides.
    fn lock(&self) -> Option<FileLock> {
        let path = if self.conf.ipam_lock_file.is_empty() {
            self.paths.ipam_lock.clone()
        } else {
            PathBuf::from(&self.conf.ipam_lock_file)
        };
        FileLock::acquire(path)
            .inspect_err(|error| tracing::warn!(%error, "Address managers of this host are not kept apart"))
            .ok()
    }
}

/// The first family that got fewer addresses than asked for, IPv4 before IPv6.
fn shortage(families: &[Option<Assignments>]) -> Option<PluginError> {
    families.iter().flatten().find_map(|assigned| {
        let reason = assigned.partial_fulfillment()?;
        Some(PluginError::Shortage { version: assigned.version.number(), reason })
    })
}
