//! Ids made by hashing: short, of a fixed length, equal on every node.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha224, Sha256};

/// The id `prefix:hash` of a content, 38 characters of hash: SHA-224 over `prefix:content`, in base64 for
/// URLs without padding. IP sets are named by it: prefix `s` over a canonical selector, and others for
/// named ports and services.
pub fn unique_id(prefix: &str, content: &str) -> String {
    let mut hash = Sha224::new();
    hash.update(prefix);
    hash.update(":");
    hash.update(content);
    let mut id = String::with_capacity(prefix.len() + 39);
    id.push_str(prefix);
    id.push(':');
    URL_SAFE_NO_PAD.encode_string(hash.finalize(), &mut id);
    id
}

/// `prefix` and `suffix` joined if they fit into `max` bytes, else `prefix_hash` cut to `max`, the hash
/// being SHA-256 over the suffix, in base64 for URLs without padding. An empty suffix counts as `_`.
///
/// A pair that fills `max` exactly and whose suffix starts with `_` is hashed too, since it could be taken
/// for a hashed one. Where `max` leaves no room for a hash, the result is `prefix_`.
pub fn length_limited_id(prefix: &str, suffix: &str, max: usize) -> String {
    let suffix = if suffix.is_empty() { "_" } else { suffix };
    let len = prefix.len() + suffix.len();
    if len < max || (len == max && !suffix.starts_with('_')) {
        return format!("{prefix}{suffix}");
    }
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(suffix));
    let room = max.saturating_sub(prefix.len() + 1).min(hash.len());
    format!("{prefix}_{}", &hash[..room])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_selectors_ports_and_services() {
        let table = [
            ("s", "all()", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
            (
                "n",
                "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug,tcp,http",
                "n:cl9_Kgeu4H0OGLbhovVR3NBLUOZscKeMK1Mu4A",
            ),
            ("svc", "ns/web", "svc:CuRKzKzZ91BER_cyDbNJBpxZWEIvUyFGBuRyeQ"),
            ("svcnoport", "ns/web", "svcnoport:uh7RXLLcaSuLqkoOoIKpb75PCSy25RaZ5U9x0Q"),
        ];
        for (prefix, content, id) in table {
            assert_eq!(unique_id(prefix, content), id);
        }
    }

    #[test]
    fn names_that_fit_stay_readable() {
        assert_eq!(length_limited_id("cali-tw-", "cali1234567", 28), "cali-tw-cali1234567");
        assert_eq!(length_limited_id("p-", "abcdef", 8), "p-abcdef");
        assert_eq!(length_limited_id("p-", "", 8), "p-_");
    }

    #[test]
    fn names_that_do_not_fit_are_hashed() {
        let hashed = length_limited_id("p-", "abcdefg", 8);
        assert_eq!((hashed.len(), &hashed[..3]), (8, "p-_"));
        assert_ne!(hashed, length_limited_id("p-", "abcdefh", 8));
        assert_ne!(length_limited_id("p-", "_bcdef", 8), "p-_bcdef", "could be taken for a hash");
        assert_eq!(length_limited_id("p-", &"x".repeat(99), 60).len(), 2 + 1 + 43);
        assert_eq!(length_limited_id("prefix", "x", 3), "prefix_");
    }
}
