//! The admission guest of the conformance suite, by the SDK.

use kubewasm::admission::{self, Conversion, Convert, FieldError, Mutate, Patch, Path, Request, Response, Validate};
use kubewasm::api::core::Pod;

kubewasm::config! {
    struct Guest;
}

/// Returns the label app of an object in protobuf.
fn app<'a>(req: &Request<'a>, object: &'a [u8]) -> &'a str {
    Pod::from_proto(req, object).metadata().labels().get("app").unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Validate for Guest {
    fn validate(&self, req: &Request<'_>) -> Response {
        let name = req.name();
        match name {
            "trap" => panic!("trap"),
            "fail" => return Response::error("no data"),
            "bad" => return Response::deny("bad name"),
            "busy" => return Response::deny("").with_code(409),
            "field" => return Response::invalid(FieldError::invalid(&Path::new("metadata").child("name"), "field", "is odd")),
            "warn" => return Response::allow().with_warning("careful").with_audit_annotation("k", "v"),
            "empty" if req.object().is_empty() => return Response::deny("no object"),
            "same" if req.object() == req.old_object() => return Response::deny("unchanged"),
            "same" => return Response::allow(),
            "relabelled" => return Response::deny(format!("was {}, is {}", app(req, req.old_object_proto()), app(req, req.object_proto()))),
            "options" => return Response::deny(text(req.options())),
            "found" => {
                return match admission::get(req, "v1/configmaps", "shop", app(req, req.object_proto())) {
                    Some(object) => Response::deny(text(object)),
                    None => Response::deny("none"),
                }
            }
            "listed" => {
                let count = |namespace, selector| admission::list(req, "v1/configmaps", namespace, selector).count();
                return Response::deny(format!("{}, {}, {}", count("", ""), count("shop", ""), count("shop", "tier=a")));
            }
            "secret" => {
                admission::get(req, "v1/secrets", "shop", "a");
                return Response::allow();
            }
            _ => {}
        }
        if req.object().len() > 100_000 {
            return Response::deny("").with_code(413);
        }
        Response::allow()
    }
}

impl Mutate for Guest {
    fn mutate(&self, req: &Request<'_>, patch: &mut Patch<'_>) -> Response {
        match req.name() {
            "bad" => return Response::deny("bad name"),
            "patch" => patch.set(&Path::new("metadata").child("annotations"), &[("k", "v")]),
            "whole" => patch.set_object(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"whole","labels":{"k":"v"}}}"#),
            _ => {}
        }
        Response::allow()
    }
}

impl Convert for Guest {
    fn convert(&self, c: &Conversion<'_>, patch: &mut Patch<'_>) -> Result<(), String> {
        match c.to() {
            "v1" => {} // The SDK sets the version.
            "v2" => patch.set_object(r#"{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"},"spec":{"size":2}}"#),
            "trap" => panic!("trap"),
            _ => return Err("bad version".into()),
        }
        Ok(())
    }
}

kubewasm::plugin! {
    Guest: Validate, Mutate, Convert;
    name = "conformance-admission";
}
