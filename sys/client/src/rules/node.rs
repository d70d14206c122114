//! Deletion of a node: what belongs to it goes first, so that nothing leaks.

use calico_api::{Kind, Node};
use calico_model::names::WorkloadEndpointIds;
use calico_net::cidr::parse_ip;

use crate::ipam::{IpamClient, Owner, ReleaseOptions};
use crate::objects::{DeleteOptions, Select};
use crate::{Client, ClientError};

/// Releases the addresses of the node's workloads and tunnels, gives its blocks back and deletes the endpoints
/// and configurations that name it. What is gone already is no error.
pub(crate) async fn before_delete(client: &Client, name: &str) -> Result<(), ClientError> {
    let node = client.nodes().get("", name).await?;
    let ipam = IpamClient::new(client.backend().clone());
    let mut release: Vec<ReleaseOptions> = tunnel_addresses(&node);
    let ids = WorkloadEndpointIds { node: name.into(), ..WorkloadEndpointIds::default() };
    let prefix =
        ids.name_prefix().map_err(|e| ClientError::field("Metadata.Name", Some(name), &e.to_string()))?;
    let endpoints = client
        .workload_endpoints()
        .list(&Select { name: &prefix, prefix: true, ..Select::default() })
        .await?;
    let endpoints: Vec<_> = endpoints.items.into_iter().filter(|e| e.spec.node == name).collect();
    for endpoint in &endpoints {
        let addresses = endpoint.spec.ip_networks.iter().filter_map(|net| parse_ip(net.split('/').next()?));
        release.extend(addresses.map(ReleaseOptions::address));
    }
    if !release.is_empty() {
        tolerate(ipam.release_ips(release).await.into_result().map(|_| ()).map_err(ClientError::from))?;
    }
    for endpoint in endpoints {
        let meta = &endpoint.metadata;
        delete(client, Kind::WorkloadEndpoint, &meta.namespace, &meta.name).await?;
    }
    tolerate(ipam.remove_host(Owner::host(name)).await.map_err(ClientError::from))?;
    delete(client, Kind::FelixConfiguration, "", &format!("node.{name}")).await?;
    let hosts = client.host_endpoints().list(&Select::default()).await?;
    for endpoint in hosts.items.into_iter().filter(|e| e.spec.node == name) {
        delete(client, Kind::HostEndpoint, "", &endpoint.metadata.name).await?;
    }
    Ok(())
}

async fn delete(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<(), ClientError> {
    // Boxed: the deletion of one kind may ask for the deletion of another.
    let options = DeleteOptions::default();
    let objects = client.objects(kind);
    let gone = Box::pin(objects.delete(namespace, name, &options));
    tolerate(gone.await.map(|_| ()))
}

fn tolerate(outcome: Result<(), ClientError>) -> Result<(), ClientError> {
    match outcome {
        Err(e) if e.is_not_found() || e.is_not_supported() => Ok(()),
        other => other,
    }
}

/// Every tunnel address of the node, of both families.
fn tunnel_addresses(node: &Node) -> Vec<ReleaseOptions> {
    let mut texts: Vec<&str> = vec![&node.spec.ipv4_vxlan_tunnel_addr, &node.spec.ipv6_vxlan_tunnel_addr];
    if let Some(bgp) = &node.spec.bgp {
        texts.push(&bgp.ipv4_ipip_tunnel_addr);
    }
    if let Some(wireguard) = &node.spec.wireguard {
        texts.push(&wireguard.interface_ipv4_address);
        texts.push(&wireguard.interface_ipv6_address);
    }
    texts.into_iter().filter_map(parse_ip).map(ReleaseOptions::address).collect()
}
