//! f16 and bf16: rounded to nearest even; overflow gives infinity, subnormals are kept.

/// The dtype of values and gradients on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire {
    F32,
    F16,
    BF16,
}

impl Wire {
    pub fn name(self) -> &'static str {
        ["f32", "f16", "bf16"][self as usize]
    }

    pub fn bytes(self) -> usize {
        if self == Wire::F32 {
            4
        } else {
            2
        }
    }

    pub fn write(self, values: &[f32], to: &mut Vec<u8>) {
        for &x in values {
            match self {
                Wire::F32 => to.extend(x.to_le_bytes()),
                Wire::F16 => to.extend(to_f16(x).to_le_bytes()),
                Wire::BF16 => to.extend(to_bf16(x).to_le_bytes()),
            }
        }
    }

    pub fn read(self, data: &[u8]) -> Vec<f32> {
        let half = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let value = |bytes: &[u8]| match self {
            Wire::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Wire::F16 => from_f16(half(bytes)),
            Wire::BF16 => f32::from_bits((half(bytes) as u32) << 16),
        };
        data.chunks_exact(self.bytes()).map(value).collect()
    }
}

fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn to_f16(x: f32) -> u16 {
    let (sign, bits) = ((x.to_bits() >> 16) as u16 & 0x8000, x.abs().to_bits());
    if x.is_nan() {
        return sign | 0x7e00;
    }
    if x.abs() >= 65520.0 {
        return sign | 0x7c00;
    }
    if x.abs() < 1.0 / 16384.0 {
        // Units of 2^-24. Adding 2^23 rounds to an integer, to even.
        let unit = x.abs() * 16777216.0 + 8388608.0;
        return sign | (unit.to_bits() & 0x7ff) as u16;
    }
    let bits = bits - (112 << 23);
    sign | ((bits + 0xfff + (bits >> 13 & 1)) >> 13) as u16
}

fn from_f16(h: u16) -> f32 {
    let (sign, exponent, fraction) = (((h & 0x8000) as u32) << 16, (h >> 10 & 0x1f) as u32, (h & 0x3ff) as u32);
    f32::from_bits(match exponent {
        0 => sign | (fraction as f32 / 16777216.0).to_bits(),
        0x1f => sign | 0x7f800000 | fraction << 13,
        _ => sign | (exponent + 112) << 23 | fraction << 13,
    })
}
