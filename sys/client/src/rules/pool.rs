//! IP pools: no overlaps, no block size against stored blocks, and a deletion that gives the blocks back.

use calico_api::{IPPool, Resource as _};
use calico_datastore::StoreError;
use calico_model::{Key, ListOptions, Value};
use calico_net::Cidr;
use calico_schema::Op;
use calico_schema::validate;

use crate::ipam::IpamClient;
use crate::objects::{DeleteOptions, Select, shown, to_kv};
use crate::{Client, ClientError};

/// Normalises a new pool's CIDR and checks it against the other pools.
pub(crate) async fn prepare(client: &Client, pool: &mut IPPool) -> Result<(), ClientError> {
    let cidr = normalise(pool)?;
    for other in client.ip_pools().list(&Select::default()).await?.items {
        if other.metadata.name == pool.metadata.name {
            continue;
        }
        if let Ok(other_cidr) = Cidr::parse(&other.spec.cidr)
            && other_cidr.overlaps(&cidr)
        {
            let reason = format!(
                "IPPool({}) CIDR overlaps with IPPool({}) CIDR {}",
                pool.metadata.name, other.metadata.name, other.spec.cidr
            );
            return Err(ClientError::field("IPPool.Spec.CIDR", Some(&pool.spec.cidr), &reason));
        }
    }
    Ok(())
}

/// Refuses a pool whose block size differs from that of stored blocks inside it.
pub(crate) async fn check_blocks(client: &Client, pool: &IPPool) -> Result<(), ClientError> {
    let Ok(cidr) = Cidr::parse(&pool.spec.cidr) else { return Ok(()) };
    let blocks =
        match client.backend().list(&ListOptions::Blocks { version: Some(cidr.version()) }, None).await {
            Ok(list) => list.items,
            Err(StoreError::NotSupported { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
    let clash = blocks.iter().any(|kv| match (&kv.key, &kv.value) {
        (Key::Block(block), Some(Value::Block(_))) => {
            block.overlaps(&cidr) && i64::from(block.prefix_len()) != pool.spec.block_size
        }
        _ => false,
    });
    if clash {
        return Err(ClientError::field(
            "IPPool.Spec.BlockSize",
            Some(&pool.spec.block_size.to_string()),
            "IPPool blocksSize conflicts with existing allocations that use a different blockSize",
        ));
    }
    Ok(())
}

/// Refuses changes of a pool that its users would not survive.
pub(crate) async fn check_update(client: &Client, pool: &mut IPPool) -> Result<(), ClientError> {
    normalise(pool)?;
    let old = client.ip_pools().get("", &pool.metadata.name).await?.into_any();
    let mut new = pool.clone().into_any();
    calico_schema::defaults::apply(&mut new, Op::Update);
    Ok(validate::transition(&old, &new)?)
}

/// Disables the pool and gives back the blocks that nodes hold of it.
pub(crate) async fn before_delete(
    client: &Client,
    name: &str,
    options: &DeleteOptions,
) -> Result<DeleteOptions, ClientError> {
    let mut pool = client.ip_pools().get("", name).await?;
    if !pool.spec.disabled {
        pool.spec.disabled = true;
        if let Some(revision) = &options.resource_version {
            pool.metadata.resource_version = revision.to_string();
        }
        pool = client.ip_pools().update(pool).await?;
    }
    let cidr = normalise(&mut pool)?;
    let released = IpamClient::new(client.backend().clone()).release_pool_affinities(cidr).await;
    match released.map_err(ClientError::from) {
        Ok(()) => {}
        Err(error) if error.is_not_supported() => {}
        Err(error) => return Err(error),
    }
    // The update above was the check of the caller's revision; it is used up.
    Ok(DeleteOptions { resource_version: None, ..options.clone() })
}

pub(crate) async fn unsafe_create(client: &Client, mut pool: IPPool) -> Result<IPPool, ClientError> {
    normalise(&mut pool)?;
    pool.metadata.creation_timestamp.get_or_insert_with(|| client.now());
    if pool.metadata.uid.is_empty() {
        pool.metadata.uid = uuid::Uuid::new_v4().to_string();
    }
    let mut object = pool.into_any();
    validate::prepare(&mut object, Op::Create)?;
    let stored = shown(client.backend().create(to_kv(object)?).await?)?;
    IPPool::from_any(stored).ok_or(ClientError::WrongKind { id: "IPPool".into() })
}

pub(crate) async fn unsafe_delete(client: &Client, name: &str) -> Result<IPPool, ClientError> {
    let mut pool = client.ip_pools().get("", name).await?;
    if !pool.spec.disabled {
        pool.spec.disabled = true;
        client.ip_pools().update(pool).await?;
    }
    let removed =
        client.backend().delete(&client.objects(calico_api::Kind::IPPool).key("", name), None).await?;
    IPPool::from_any(shown(removed)?).ok_or(ClientError::WrongKind { id: format!("IPPool({name})") })
}

/// Puts the CIDR in canonical text; host bits stay, so that validation names them.
fn normalise(pool: &mut IPPool) -> Result<Cidr, ClientError> {
    if pool.spec.cidr.is_empty() {
        return Err(ClientError::field("IPPool.Spec.CIDR", Some(""), "IPPool CIDR must be specified"));
    }
    let cidr = Cidr::parse(&pool.spec.cidr).map_err(|_| {
        ClientError::field("IPPool.Spec.CIDR", Some(&pool.spec.cidr), "IPPool CIDR must be a valid subnet")
    })?;
    pool.spec.cidr = cidr.to_string();
    Ok(cidr.masked())
}
