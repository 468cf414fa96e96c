//! How each field type is read and written in a given version.

use bytes::Bytes;

use crate::error::DecodeError;
use crate::error_code::ErrorCode;
use crate::limits::ARRAY_RESERVE_ELEMENTS_MAX;
use crate::primitives::{Reader, Records, Uuid, WireString, Writer};

/// The version of a message and whether it is flexible (KIP-482): compact lengths and a section of
/// tagged fields after each structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Version of the message.
    pub version: i16,
    /// Whether that version is flexible.
    pub flexible: bool,
}

/// A type that a field may have.
///
/// `nullable` says whether this field may be null in this version. A type without a null reads
/// null as empty where null is allowed, and never writes it. A type with a null writes empty where
/// null is not allowed, which is how the older versions spell absence.
pub trait Value: Sized {
    /// Fewest bytes that one value takes, to check array lengths against.
    const BYTES_MIN: usize = 1;

    /// Reads one value.
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError>;

    /// Writes one value.
    fn write(&self, writer: &mut Writer, form: Form, nullable: bool);
}

macro_rules! fixed_width_values {
    ($($ty:ty, $bytes:literal, $read:ident, $write:ident;)*) => {$(
        impl Value for $ty {
            const BYTES_MIN: usize = $bytes;

            #[inline]
            fn read(reader: &mut Reader, _: Form, _: bool) -> Result<Self, DecodeError> {
                reader.$read()
            }

            #[inline]
            fn write(&self, writer: &mut Writer, _: Form, _: bool) {
                writer.$write(*self);
            }
        }
    )*};
}

fixed_width_values! {
    bool, 1, read_bool, write_bool;
    i8, 1, read_i8, write_i8;
    i16, 2, read_i16, write_i16;
    i32, 4, read_i32, write_i32;
    i64, 8, read_i64, write_i64;
    Uuid, 16, read_uuid, write_uuid;
}

impl Value for ErrorCode {
    const BYTES_MIN: usize = 2;

    fn read(reader: &mut Reader, _: Form, _: bool) -> Result<Self, DecodeError> {
        reader.read_i16().map(Self)
    }

    fn write(&self, writer: &mut Writer, _: Form, _: bool) {
        writer.write_i16(self.0);
    }
}

/// Null as empty where it is allowed.
fn or_empty<T: Default>(value: Option<T>, nullable: bool) -> Result<T, DecodeError> {
    match value {
        Some(value) => Ok(value),
        None if nullable => Ok(T::default()),
        None => Err(DecodeError::UnexpectedNull),
    }
}

/// Null only where it is allowed.
fn if_nullable<T>(value: Option<T>, nullable: bool) -> Result<Option<T>, DecodeError> {
    if value.is_none() && !nullable {
        return Err(DecodeError::UnexpectedNull);
    }
    Ok(value)
}

impl Value for WireString {
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError> {
        or_empty(reader.read_nullable_string(form.flexible)?, nullable)
    }

    fn write(&self, writer: &mut Writer, form: Form, _: bool) {
        writer.write_nullable_string(Some(self.as_bytes()), form.flexible);
    }
}

impl Value for Option<WireString> {
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError> {
        if_nullable(reader.read_nullable_string(form.flexible)?, nullable)
    }

    fn write(&self, writer: &mut Writer, form: Form, nullable: bool) {
        let absent = if nullable { None } else { Some(&[][..]) };
        let text = self.as_ref().map(|text| &text.as_bytes()[..]).or(absent);
        writer.write_nullable_string(text, form.flexible);
    }
}

impl Value for Bytes {
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError> {
        or_empty(reader.read_nullable_bytes(form.flexible)?, nullable)
    }

    fn write(&self, writer: &mut Writer, form: Form, _: bool) {
        writer.write_nullable_bytes(Some(self), form.flexible);
    }
}

impl Value for Records {
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError> {
        or_empty(reader.read_nullable_bytes(form.flexible)?, nullable).map(Self::from)
    }

    fn write(&self, writer: &mut Writer, form: Form, _: bool) {
        writer.write_records(self, form.flexible);
    }
}

fn read_array<T: Value>(reader: &mut Reader, form: Form) -> Result<Option<Vec<T>>, DecodeError> {
    let Some(length) = reader.read_array_length(form.flexible, T::BYTES_MIN)? else {
        return Ok(None);
    };
    let mut elements = Vec::with_capacity(length.min(ARRAY_RESERVE_ELEMENTS_MAX));
    for _ in 0..length {
        elements.push(T::read(reader, form, false)?);
    }
    Ok(Some(elements))
}

fn write_array<T: Value>(elements: &[T], writer: &mut Writer, form: Form) {
    writer.write_length(Some(elements.len()), form.flexible);
    for element in elements {
        element.write(writer, form, false);
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError> {
        or_empty(read_array(reader, form)?, nullable)
    }

    fn write(&self, writer: &mut Writer, form: Form, _: bool) {
        write_array(self, writer, form);
    }
}

impl<T: Value> Value for Option<Vec<T>> {
    fn read(reader: &mut Reader, form: Form, nullable: bool) -> Result<Self, DecodeError> {
        if_nullable(read_array(reader, form)?, nullable)
    }

    fn write(&self, writer: &mut Writer, form: Form, nullable: bool) {
        match self {
            None if nullable => writer.write_length(None, form.flexible),
            elements => write_array(elements.as_deref().unwrap_or_default(), writer, form),
        }
    }
}
