//! The cluster's settings of address management.

use calico_model::ipam::IpamConfig;
use calico_model::{Key, KvPair, Value};

use super::{Patience, config_value, operation};
use crate::error::IpamError;
use crate::machine::{Fault, Operation};

/// The settings; those of [`IpamConfig::default`] if none are stored. Never writes.
pub fn get_config() -> Operation<Result<IpamConfig, IpamError>> {
    operation(|cx| async move { config_value(cx.get(Key::IpamConfig).await?.as_ref()) })
}

/// Stores the settings unless they are so already. Refuses those under which nothing could be assigned.
pub fn set_config(config: IpamConfig) -> Operation<Result<(), IpamError>> {
    operation(|cx| async move {
        let mut patience = Patience(0);
        loop {
            let stored = cx.get(Key::IpamConfig).await?;
            if config_value(stored.as_ref())? == config {
                return Ok(());
            }
            if !config.strict_affinity && !config.auto_allocate_blocks {
                return Err(IpamError::ConfigWithoutBlocks);
            }
            if config.max_blocks_per_host > 0 && !config.strict_affinity {
                return Err(IpamError::ConfigLimitNotStrict);
            }
            let value = Value::IpamConfig(config.clone());
            let written = match stored {
                Some(kv) => cx.update(KvPair { value: Some(value), ..kv }).await,
                None => cx.create(KvPair::new(Key::IpamConfig, value)).await,
            };
            let result = match written {
                Ok(_) => cx.commit().await,
                Err(fault) => Err(fault),
            };
            match result {
                Ok(()) => return Ok(()),
                Err(Fault::Failed(failure)) => return Err(IpamError::Store(failure)),
                Err(_) => patience.lost(&cx).await?,
            }
        }
    })
}
