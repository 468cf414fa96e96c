//! The notation in which messages are written down, and the code that follows from it.
//!
//! ```text
//! Name {
//!     field: Type [versions] null [versions] tag [number] default [value] or refuse;
//! }
//! ```
//!
//! - `[versions]`: a range of message versions in which the field is on the wire.
//! - `null [versions]`: versions in which the field may be null (see [`crate::Value`]).
//! - `tag [number]`: the field stands in the tagged section, and is left out while it holds its
//!   default, since some clients cannot skip tags that they do not know. Tags rise in the table.
//! - `default [value]`: what a field holds when it is not on the wire; else the type's own default.
//! - `or refuse`: a value other than the default makes encoding fail in versions without the
//!   field, because dropping it would change what is asked for. Other fields are dropped.

/// Defines structures in the notation above.
macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        $name:ident { $(
            $(#[$field_meta:meta])*
            $field:ident : $ty:ty [$versions:expr]
                $(null [$null:expr])? $(tag [$tag:literal])? $(default [$default:expr])?
                $(or $refuse:ident)? ;
        )* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(
                #[doc = concat!("In versions `", stringify!($versions), "`"
                    $(, ", null allowed in `", stringify!($null), "`")?
                    $(, ", tag ", $tag)?
                    $(, ", default `", stringify!($default), "`")?, ".")]
                $(#[$field_meta])*
                pub $field: $ty,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::definition::default_value!($($default)?),)* }
            }
        }

        impl $crate::primitives::Value for $name {
            #[allow(unused_mut, unused_variables)]
            fn read(
                reader: &mut $crate::primitives::Reader,
                form: $crate::primitives::Form,
                _: bool,
            ) -> Result<Self, $crate::error::DecodeError> {
                let mut value = Self::default();
                let version = form.version;
                $({
                    const TAG: Option<u32> = $crate::definition::tag!($($tag)?);
                    if TAG.is_none() && ($versions).contains(&version) {
                        let nullable = $crate::definition::nullable!(version $(, $null)?);
                        value.$field = $crate::primitives::Value::read(reader, form, nullable)?;
                    }
                })*
                if form.flexible {
                    reader.read_tagged_fields(|tag, reader| {
                        $({
                            const TAG: Option<u32> = $crate::definition::tag!($($tag)?);
                            if TAG == Some(tag) && ($versions).contains(&version) {
                                let nullable = $crate::definition::nullable!(version $(, $null)?);
                                value.$field =
                                    $crate::primitives::Value::read(reader, form, nullable)?;
                                return Ok(true);
                            }
                        })*
                        Ok(false)
                    })?;
                }
                Ok(value)
            }

            #[allow(unused_mut, unused_variables)]
            fn write(
                &self,
                writer: &mut $crate::primitives::Writer,
                form: $crate::primitives::Form,
                _: bool,
            ) {
                let version = form.version;
                let mut tagged_fields = 0;
                $({
                    const TAG: Option<u32> = $crate::definition::tag!($($tag)?);
                    const REFUSE: bool = $crate::definition::refuse!($($refuse)?);
                    let present = ($versions).contains(&version);
                    let is_default = || -> bool {
                        let default: $ty = $crate::definition::default_value!($($default)?);
                        self.$field == default
                    };
                    if TAG.is_none() && present {
                        let nullable = $crate::definition::nullable!(version $(, $null)?);
                        $crate::primitives::Value::write(&self.$field, writer, form, nullable);
                    }
                    if REFUSE && !present && !is_default() {
                        let field = stringify!($field);
                        writer.refuse($crate::error::EncodeError::FieldNotInVersion {
                            field,
                            version,
                        });
                    }
                    if TAG.is_some() && form.flexible && present && !is_default() {
                        tagged_fields += 1;
                    }
                })*
                if !form.flexible {
                    return;
                }
                writer.write_uvarint(tagged_fields);
                if tagged_fields == 0 {
                    return;
                }
                $({
                    const TAG: Option<u32> = $crate::definition::tag!($($tag)?);
                    if let Some(tag) = TAG && ($versions).contains(&version) {
                        let default: $ty = $crate::definition::default_value!($($default)?);
                        if self.$field != default {
                            let nullable = $crate::definition::nullable!(version $(, $null)?);
                            writer.write_tagged_field(tag, |writer| {
                                $crate::primitives::Value::write(
                                    &self.$field, writer, form, nullable,
                                );
                            });
                        }
                    }
                })*
            }
        }

        #[cfg(test)]
        impl $crate::tests::sample::Sample for $name {
            #[allow(unused_variables)]
            fn sample(
                source: &mut $crate::tests::sample::Source,
                version: i16,
                _: bool,
            ) -> Self {
                let mut value = Self::default();
                $(if ($versions).contains(&version) {
                    let nullable = $crate::definition::nullable!(version $(, $null)?);
                    value.$field = $crate::tests::sample::Sample::sample(source, version, nullable);
                })*
                value
            }
        }
    )*};
}

macro_rules! default_value {
    () => {
        Default::default()
    };
    ($value:expr) => {
        $value
    };
}

macro_rules! tag {
    () => {
        None
    };
    ($tag:literal) => {
        Some($tag)
    };
}

macro_rules! refuse {
    () => {
        false
    };
    (refuse) => {
        true
    };
}

macro_rules! nullable {
    ($version:ident) => {
        false
    };
    ($version:ident, $null:expr) => {
        ($null).contains(&$version)
    };
}

pub(crate) use {default_value, nullable, refuse, structures, tag};
