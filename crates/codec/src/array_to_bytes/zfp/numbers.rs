//! The numbers of zfp, and how other integers become such numbers.

/// How elements become numbers of zfp and back.
#[derive(Debug)]
pub(super) struct Coding<T> {
    /// The length of an element in bytes.
    pub len: usize,
    /// `None` if zfp has no number for the element.
    load: fn(&[u8]) -> Option<T>,
    store: fn(T, &mut Vec<u8>),
}

impl<T: Copy> Coding<T> {
    /// Returns the numbers for elements; the error is for a message.
    pub fn load(&self, elements: &[u8]) -> Result<Vec<T>, String> {
        let mut numbers = Vec::new();
        let count = elements.len() / self.len.max(1);
        numbers.try_reserve_exact(count).map_err(|_| format!("no memory for {count} numbers"))?;
        for element in elements.chunks_exact(self.len) {
            let number = (self.load)(element);
            numbers.push(number.ok_or("an element is too large for the signed type of zfp")?);
        }
        Ok(numbers)
    }

    /// Appends the elements for numbers.
    pub fn store(&self, numbers: &[T], elements: &mut Vec<u8>) {
        for number in numbers {
            (self.store)(*number, elements);
        }
    }
}

macro_rules! plain {
    ($($number:ty: $len:literal),*) => {$(
        impl Coding<$number> {
            /// Numbers that zfp has itself.
            pub fn plain() -> Self {
                Self {
                    len: $len,
                    load: |bytes| Some(<$number>::from_le_bytes(bytes.try_into().ok()?)),
                    store: |number, bytes| bytes.extend_from_slice(&number.to_le_bytes()),
                }
            }
        }
    )*};
}

plain!(i32: 4, i64: 8, f32: 4, f64: 8);

impl Coding<i32> {
    /// Bytes, shifted up by 23 bits.
    pub fn int8() -> Self {
        Self {
            len: 1,
            load: |bytes| Some(i32::from(i8::from_le_bytes(bytes.try_into().ok()?)) << 23),
            store: |number, bytes| {
                let clamped = (number >> 23).clamp(i8::MIN.into(), i8::MAX.into());
                bytes.extend(i8::try_from(clamped).unwrap_or_default().to_le_bytes());
            },
        }
    }

    /// Bytes, less half their range, shifted up by 23 bits.
    pub fn uint8() -> Self {
        Self {
            len: 1,
            load: |bytes| Some((i32::from(*bytes.first()?) - 0x80) << 23),
            store: |number, bytes| {
                let clamped = ((number >> 23) + 0x80).clamp(0, u8::MAX.into());
                bytes.push(u8::try_from(clamped).unwrap_or_default());
            },
        }
    }

    /// Pairs of bytes, shifted up by 15 bits.
    pub fn int16() -> Self {
        Self {
            len: 2,
            load: |bytes| Some(i32::from(i16::from_le_bytes(bytes.try_into().ok()?)) << 15),
            store: |number, bytes| {
                let clamped = (number >> 15).clamp(i16::MIN.into(), i16::MAX.into());
                bytes.extend(i16::try_from(clamped).unwrap_or_default().to_le_bytes());
            },
        }
    }

    /// Pairs of bytes, less half their range, shifted up by 15 bits.
    pub fn uint16() -> Self {
        Self {
            len: 2,
            load: |bytes| {
                Some((i32::from(u16::from_le_bytes(bytes.try_into().ok()?)) - 0x8000) << 15)
            },
            store: |number, bytes| {
                let clamped = ((number >> 15) + 0x8000).clamp(0, u16::MAX.into());
                bytes.extend(u16::try_from(clamped).unwrap_or_default().to_le_bytes());
            },
        }
    }

    /// Unsigned numbers below 2^31. zarrs stores larger ones as the largest of these.
    pub fn uint32() -> Self {
        Self {
            len: 4,
            load: |bytes| i32::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok(),
            store: |number, bytes| {
                bytes.extend(u32::try_from(number).unwrap_or_default().to_le_bytes());
            },
        }
    }
}

impl Coding<i64> {
    /// Unsigned numbers below 2^63.
    pub fn uint64() -> Self {
        Self {
            len: 8,
            load: |bytes| i64::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok(),
            store: |number, bytes| {
                bytes.extend(u64::try_from(number).unwrap_or_default().to_le_bytes());
            },
        }
    }
}
