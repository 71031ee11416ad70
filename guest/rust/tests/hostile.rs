//! Malformed bytes through the readers: truncated, overlong, of wrong wire types, deep, random.
//! Nothing may panic, and nothing may be read that does not lie in the message, which slices of
//! their own memory hold.

mod walk;

use walk::{json, proto};

/// A small generator of random numbers: xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A Pod with metadata, two containers, tolerations and an affinity.
fn pod() -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        kubewasm::wire::append_varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(bytes);
        out
    }
    let entry = [field(1, b"app"), field(2, b"web")].concat();
    let time = vec![0x08, 0xff, 0xff, 0xff, 0xff, 0x07];
    let metadata = [field(1, b"web"), field(8, &time), field(11, &entry), field(12, &entry)].concat();
    let quantity = field(1, b"500m");
    let amount = [field(1, b"cpu"), field(2, &quantity)].concat();
    let container = [field(1, b"c"), field(2, b"image:1"), field(8, &field(2, &amount))].concat();
    let toleration = [field(1, b"key"), field(2, b"Exists")].concat();
    let mut spec = [field(2, &container), field(2, &container), field(7, &entry)].concat();
    spec.extend([0xb2, 0x01]); // Tolerations are field 22.
    kubewasm::wire::append_varint(&mut spec, toleration.len() as u64);
    spec.extend(toleration);
    [field(1, &metadata), field(2, &spec), field(3, &field(1, b"Running"))].concat()
}

#[test]
fn a_valid_pod_is_read() {
    assert!(proto(&pod()) > 100);
}

#[test]
fn every_truncation_is_survived() {
    let pod = pod();
    for n in 0..pod.len() {
        proto(&pod[..n].to_vec());
    }
}

#[test]
fn every_wire_type_and_length_is_survived() {
    let pod = pod();
    for i in 0..pod.len() {
        for value in [0, 1, 2, 3, 4, 5, 6, 7, 0x0a, 0x12, 0x7f, 0x80, 0xfe, 0xff] {
            let mut changed = pod.clone();
            changed[i] = value;
            proto(&changed);
        }
    }
}

#[test]
fn overlong_numbers_are_no_numbers() {
    for n in 1..30 {
        let mut bytes = vec![0xff; n];
        proto(&bytes);
        bytes.push(1);
        proto(&bytes);
        proto(&[&[0x0a][..], &bytes].concat());
    }
}

#[test]
fn deep_messages_are_survived() {
    let mut deep = Vec::new();
    for _ in 0..20_000 {
        let mut outer = vec![0x0a];
        kubewasm::wire::append_varint(&mut outer, deep.len().min(1 << 20) as u64);
        if deep.len() < 100_000 {
            outer.extend_from_slice(&deep);
        }
        deep = outer;
        if deep.len() > 60_000 {
            break;
        }
    }
    proto(&deep);
    for open in ["[", "{\"metadata\":", "{\"spec\":[", "\"\\"] {
        json(open.repeat(50_000).as_bytes());
    }
}

#[test]
fn random_bytes_are_survived() {
    let (mut random, pod) = (Random(20261123), pod());
    for _ in 0..20_000 {
        let mut changed = pod.clone();
        for _ in 0..random.next() % 8 {
            let i = random.next() as usize % changed.len();
            changed[i] = random.next() as u8;
        }
        proto(&changed);
        let noise: Vec<u8> = (0..random.next() % 64).map(|_| random.next() as u8).collect();
        proto(&noise);
    }
}

#[test]
fn malformed_json_is_survived() {
    let text = br#"{"metadata":{"name":"web","labels":{"a\u00e9":"b\\"},"creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"containers":[{"image":"x","resources":{"requests":{"cpu":"1e3"}}}],"priority":7}}"#;
    assert!(json(text) > 10);
    let mut random = Random(7);
    for n in 0..text.len() {
        json(&text[..n]);
        for _ in 0..40 {
            let mut changed = text.to_vec();
            changed[n] = b"{}[]\",:\\u0\xff"[random.next() as usize % 11];
            json(&changed);
        }
    }
}

#[test]
fn quantities_with_any_exponent_are_read() {
    for (text, want) in [("1.5e-2147483648", "1n"), ("0.000e-2147483648", "0"), ("-1e-2147483648", "-1n"), ("1.25e-8", "13n"), ("1e2147483638", "9223372036854775807")] {
        let q: kubewasm::value::Quantity = text.parse().unwrap();
        assert_eq!(q.to_string(), want, "{}", text);
    }
}
