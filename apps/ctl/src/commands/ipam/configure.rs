//! `ipam configure`.

use calico_model::ipam::IpamConfig;

use super::CommandError;
use crate::cli::{Args, UsageError, go_bool};
use crate::connect;
use crate::output::Out;

/// Words of the setting for virtual machines.
const PERSISTENCE: [&str; 2] = ["Enabled", "Disabled"];

/// What is to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Changes {
    strict_affinity: Option<bool>,
    max_blocks: Option<u32>,
    persistence: Option<&'static str>,
    cooldown: Option<u32>,
}

pub(in crate::commands) async fn run(args: &Args, out: &mut Out) -> Result<(), CommandError> {
    let changes = Changes::of(args)?;
    let client = connect::checked_client(args).await?;
    let ipam = super::ipam(&client);
    let mut config = ipam.get_config().await?;
    let report = changes.make(&mut config);
    ipam.set_config(config).await.map_err(|error| CommandError::Report(format!("error: {error}")))?;
    Ok(out.print(&report)?)
}

// === impl Changes ===

impl Changes {
    fn of(args: &Args) -> Result<Self, UsageError> {
        let refused = |text: &str| UsageError::Refused(text.to_owned());
        let given = |flag| args.text(flag).filter(|value| !value.is_empty());
        let strict_affinity = match given("strictaffinity") {
            None => None,
            Some(text) => Some(
                go_bool(text)
                    .ok_or_else(|| refused("invalid value. Use true or false to set strictaffinity"))?,
            ),
        };
        let max_blocks = match given("max-blocks-per-host") {
            None => None,
            Some(text) => Some(
                text.parse().map_err(|_| refused("invalid value for maxblockhost. Use a valid number"))?,
            ),
        };
        let persistence = match given("kubevirt-ip-persistence") {
            None => None,
            Some(text) => Some(*PERSISTENCE.iter().find(|word| **word == text).ok_or_else(|| {
                refused("invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled")
            })?),
        };
        // Upstream's default is a negative number, so one counts as not given.
        let cooldown = args.number("ip-cooldown-seconds").and_then(|seconds| u32::try_from(seconds).ok());
        let changes = Self { strict_affinity, max_blocks, persistence, cooldown };
        if changes == Self::default() {
            return Err(refused("at least one configuration option must be specified"));
        }
        Ok(changes)
    }

    /// Changes the settings and says so.
    fn make(&self, config: &mut IpamConfig) -> String {
        let mut report = String::new();
        // Upstream's tool spells out what holds anyway, and so the stored settings are the same.
        config.kubevirt_vm_address_persistence.get_or_insert_with(|| PERSISTENCE[0].into());
        if let Some(strict) = self.strict_affinity {
            config.strict_affinity = strict;
            report.push_str(&format!("Successfully set StrictAffinity to: {strict}\n"));
        }
        if let Some(most) = self.max_blocks {
            config.max_blocks_per_host = most;
            report.push_str(&format!("Successfully set MaxBlocksPerHost to: {most}\n"));
        }
        if let Some(word) = self.persistence {
            config.kubevirt_vm_address_persistence = Some(word.into());
            report.push_str(&format!("Successfully set KubeVirtVMAddressPersistence to: {word}\n"));
        }
        if let Some(seconds) = self.cooldown {
            config.ip_cooldown_seconds = seconds;
            report.push_str(&format!("Successfully set IPCooldownSeconds to: {seconds}\n"));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{Call, parse, tree};

    fn changes(line: &[&str]) -> Result<Changes, String> {
        let line: Vec<OsString> = ["ipam", "configure"].iter().chain(line).map(OsString::from).collect();
        let Ok(Call::Run(_, args)) = parse(&tree::ROOT, "calicoctl", &line) else { panic!("{line:?}") };
        Changes::of(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_checked_and_told() {
        let all = changes(&[
            "--strictaffinity=true",
            "--max-blocks-per-host=2",
            "--kubevirt-ip-persistence=Disabled",
            "--ip-cooldown-seconds=0",
        ]);
        let mut config = IpamConfig::default();
        assert_eq!(
            all.unwrap().make(&mut config),
            "Successfully set StrictAffinity to: true\nSuccessfully set MaxBlocksPerHost to: 2\n\
             Successfully set KubeVirtVMAddressPersistence to: Disabled\nSuccessfully set IPCooldownSeconds to: 0\n"
        );
        assert!(config.strict_affinity && config.max_blocks_per_host == 2);
        for (line, want) in [
            (&[][..], "at least one configuration option must be specified"),
            (&["--ip-cooldown-seconds=-5"], "at least one configuration option must be specified"),
            (&["--strictaffinity=maybe"], "invalid value. Use true or false to set strictaffinity"),
            (&["--max-blocks-per-host=x"], "invalid value for maxblockhost. Use a valid number"),
            (&["--max-blocks-per-host=-1"], "invalid value for maxblockhost. Use a valid number"),
            (
                &["--kubevirt-ip-persistence=On"],
                "invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled",
            ),
        ] {
            assert_eq!(changes(line).unwrap_err(), want, "{line:?}");
        }
    }
}
