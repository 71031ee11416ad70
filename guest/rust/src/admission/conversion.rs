use alloc::string::String;

use crate::json::Value;
use crate::Call;

/// A conversion of a custom resource.
#[derive(Clone, Copy, Debug)]
pub struct Conversion<'a> {
    call: Call<'a>,
    object: &'a [u8],
    desired: &'a str,
}

impl<'a> From<Conversion<'a>> for Call<'a> {
    fn from(c: Conversion<'a>) -> Self {
        c.call
    }
}

impl<'a> From<&Conversion<'a>> for Call<'a> {
    fn from(c: &Conversion<'a>) -> Self {
        c.call
    }
}

impl<'a> Conversion<'a> {
    /// Returns a conversion of an object in JSON to an apiVersion: "example.com/v1".
    pub fn new(call: impl Into<Call<'a>>, object: &'a [u8], desired: &'a str) -> Self {
        Conversion { call: call.into(), object, desired }
    }

    /// Returns the object in JSON.
    pub fn object(self) -> &'a [u8] {
        self.object
    }

    fn text(self, name: &str) -> &'a str {
        Value::of(self.call, self.object).get(name).and_then(|v| v.text()).unwrap_or("")
    }

    /// Returns the kind of the object.
    pub fn kind(self) -> &'a str {
        self.text("kind")
    }

    /// Returns the apiVersion that the object is to have.
    pub fn desired(self) -> &'a str {
        self.desired
    }

    /// Returns the version that the object has: "v1alpha1".
    pub fn from(self) -> &'a str {
        version(self.text("apiVersion"))
    }

    /// Returns the version that the object is to have: "v1".
    pub fn to(self) -> &'a str {
        version(self.desired)
    }

    /// Returns the error of a conversion that the plugin does not know.
    pub fn unsupported(self) -> String {
        let group = self.desired.split_once('/').map_or("", |both| both.0);
        ["the plugin does not convert ", self.kind(), " of ", group, " from ", self.from(), " to ", self.to()].concat()
    }
}

fn version(api_version: &str) -> &str {
    api_version.split_once('/').map_or(api_version, |both| both.1)
}
