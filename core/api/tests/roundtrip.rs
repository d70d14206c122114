//! Every kind survives a trip through its stored form, whatever its fields hold.
//!
//! Objects come from a deserializer that invents values: it asks bytes of proptest what to answer to each
//! question of a type's decoder, so that new fields and kinds are covered without further code.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use calico_api::{AnyResource, FelixConfigurationSpec, Kind, KindInfo, ParamType, Resource, gojson};
use proptest::prelude::*;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

type Error = de::value::Error;

/// Invents values; the bytes are its only source of choice.
struct Inventor<'a> {
    bytes: &'a [u8],
}

impl Inventor<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().map_or((0, self.bytes), |(f, r)| (*f, r));
        self.bytes = rest;
        first
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte()))
    }

    fn text(&mut self) -> String {
        let letters =
            ["a", "Z", "0", "-", ".", "/", "<", ">", "&", "\"", "\\", "\n", "\u{1}", "\u{2028}", "é", "💡"];
        (0..self.byte() % 6).map(|_| self.pick(&letters)).collect()
    }
}

/// One question of a decoder: which field is it about?
struct Ask<'i, 'a> {
    inventor: &'i mut Inventor<'a>,
    field: &'static str,
}

impl<'de> de::Deserializer<'de> for Ask<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.field {
            "fieldsV1" => self.deserialize_map(visitor),
            "deleted" => visitor.visit_bool(self.inventor.byte() & 1 == 1),
            "asNumber" => visitor.visit_u64(u64::from(self.inventor.number() as u32)),
            "protocol" | "notProtocol" => match self.inventor.byte() & 1 {
                0 => visitor.visit_u64(u64::from(self.inventor.byte())),
                _ => visitor.visit_str(self.inventor.pick(&["TCP", "udp", "", "256"])),
            },
            "dscp" | "istioDSCPMark" => match self.inventor.byte() & 1 {
                0 => visitor.visit_u64(u64::from(self.inventor.byte())),
                _ => visitor.visit_str(self.inventor.pick(&["AF21", "", "64"])),
            },
            _ => match self.inventor.byte() & 1 {
                0 => visitor.visit_u64(u64::from(self.inventor.number() as u16)),
                _ => visitor.visit_str(self.inventor.pick(&["http", "1:2", "7:7", "80", "a.b"])),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.inventor.byte() & 1 == 1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(self.inventor.number() as i64)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.inventor.number())
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u16(self.inventor.number() as u16)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = f64::from_bits(self.inventor.number());
        visitor.visit_f64(if value.is_finite() { value } else { 100.0 })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.inventor.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let durations = FelixConfigurationSpec::PARAMS.iter().filter(|p| p.param_type == ParamType::Duration);
        let text = match self.field {
            "creationTimestamp" | "deletionTimestamp" | "time" | "lastTransitionTime"
            | "affinityClaimTime" | "releasedAt" => {
                let second = i64::from(self.inventor.number() as i32);
                calico_api::Timestamp::from_second(second).unwrap().to_string()
            }
            field if field == "timeout" || durations.into_iter().any(|p| p.field == field) => {
                calico_api::GoDuration(self.inventor.number() as i64).to_string()
            }
            _ => self.inventor.text(),
        };
        visitor.visit_string(text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.inventor.byte() & 1 == 1 { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { inventor: self.inventor, left: fields, current: "" })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = usize::from(self.inventor.byte() % 3);
        visitor.visit_map(Entries { inventor: self.inventor, left })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = usize::from(self.inventor.byte() % 3);
        visitor.visit_seq(Items { inventor: self.inventor, field: self.field, left })
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u32 f32 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct enum identifier
        ignored_any
    }
}

struct Fields<'i, 'a> {
    inventor: &'i mut Inventor<'a>,
    left: &'static [&'static str],
    current: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((first, rest)) = self.left.split_first() else { return Ok(None) };
        (self.current, self.left) = (first, rest);
        let key: StrDeserializer<'_, Error> = first.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Ask { inventor: self.inventor, field: self.current })
    }
}

struct Entries<'i, 'a> {
    inventor: &'i mut Inventor<'a>,
    left: usize,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let key: de::value::StringDeserializer<Error> = self.inventor.text().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Ask { inventor: self.inventor, field: "" })
    }
}

struct Items<'i, 'a> {
    inventor: &'i mut Inventor<'a>,
    field: &'static str,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(Ask { inventor: self.inventor, field: self.field }).map(Some)
    }
}

fn invent<R: DeserializeOwned + Resource>(bytes: &[u8]) -> AnyResource {
    R::deserialize(Ask { inventor: &mut Inventor { bytes }, field: "" })
        .expect("the inventor fits the types")
        .into_any()
}

fn check(object: &AnyResource) {
    let kind = object.kind();
    let stored = gojson::to_string(object).unwrap();
    let read = AnyResource::from_json(kind, stored.as_bytes()).unwrap();
    assert_eq!(&read, object, "{stored}");
    assert_eq!(gojson::to_string(&read).unwrap(), stored);
    let value: serde_json::Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(&AnyResource::from_value_strict(kind, &value).unwrap(), object, "{stored}");
    assert_eq!(calico_api::decode::kind_of(&value).unwrap(), kind);
    assert!(
        stored
            .starts_with(&format!(r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3","metadata":{{"#))
    );
}

macro_rules! kinds {
    ($($name:ident)*) => {
        const COVERED: &[Kind] = &[$(Kind::$name),*];

        fn invent_kind(kind: Kind, bytes: &[u8]) -> AnyResource {
            match kind {
                $(Kind::$name => invent::<calico_api::$name>(bytes),)*
                other => panic!("{other} is served but not covered here"),
            }
        }
    };
}

kinds! {
    BlockAffinity ClusterInformation FelixConfiguration GlobalNetworkPolicy GlobalNetworkSet HostEndpoint IPAMBlock
    IPAMConfiguration IPAMHandle IPPool IPReservation NetworkPolicy NetworkSet Node Profile Tier WorkloadEndpoint
}

#[test]
fn every_served_kind_is_covered() {
    let served: Vec<Kind> = Kind::all().iter().filter(|i| i.served).map(|i: &KindInfo| i.kind).collect();
    assert_eq!(served, COVERED);
}

#[test]
fn empty_objects_round_trip() {
    for &kind in COVERED {
        check(&AnyResource::empty(kind).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_object_round_trips(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        for &kind in COVERED {
            check(&invent_kind(kind, &bytes));
        }
    }

    #[test]
    fn decoding_never_panics(text in "[\\[\\]{}\":,a-z0-9 .-]{0,60}") {
        for &kind in COVERED {
            let _ = AnyResource::from_json(kind, text.as_bytes());
            let _ = AnyResource::from_json(kind, format!("{{\"spec\":{text}}}").as_bytes());
        }
    }
}
