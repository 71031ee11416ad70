// The admission guest of the conformance suite, by the SDK.

import { Conversion, FieldError, Json, Patch, Path, Request, Response, get, getJSON, list } from "kubewasm/admission";
import { ConfigMap, Pod, Secret } from "kubewasm/api/core";

//kubewasm:name conformance-admission

function app(raw: ArrayBuffer): string {
  return Pod.fromProto(raw).metadata.labels.get("app");
}

/** listed counts ConfigMaps. */
function listed(namespace: string, selector: string): string {
  return list<ConfigMap>("v1/configmaps", namespace, selector).length.toString();
}

function same(a: ArrayBuffer, b: ArrayBuffer): bool {
  return a.byteLength == b.byteLength && memory.compare(changetype<usize>(a), changetype<usize>(b), a.byteLength) == 0;
}

@admission
class Guest {
  validate(req: Request): Response | null {
    const name = req.name;
    if (name == "trap") throw new Error("trap");
    if (name == "fail") return Response.errored("no data");
    if (name == "bad") return Response.deny("bad name");
    if (name == "busy") return Response.deny().withCode(409);
    if (name == "field") return Response.allow().withFieldError(FieldError.invalid(new Path("metadata").child("name"), Json.of("field"), "is odd"));
    if (name == "warn") return Response.allow().withWarning("careful").withAuditAnnotation("k", "v");
    if (name == "empty" && req.object().byteLength == 0) return Response.deny("no object");
    if (name == "same") return same(req.oldObject(), req.object()) ? Response.deny("unchanged") : null;
    if (name == "relabelled") return Response.deny(`was ${app(req.oldObjectProto())}, is ${app(req.objectProto())}`);
    if (name == "options") return Response.deny(String.UTF8.decode(req.options()));
    if (name == "found") {
      const found = getJSON("v1/configmaps", "shop", app(req.objectProto()));
      return Response.deny(found === null ? "none" : String.UTF8.decode(found));
    }
    if (name == "listed") return Response.deny(`${listed("", "")}, ${listed("shop", "")}, ${listed("shop", "tier=a")}`);
    if (name == "secret") {
      get<Secret>("v1/secrets", "shop", "a");
      return null;
    }
    return req.object().byteLength > 100000 ? Response.deny().withCode(413) : null;
  }

  mutate(req: Request, patch: Patch): Response | null {
    if (req.name == "bad") return Response.deny("bad name");
    if (req.name == "patch") patch.set(new Path("metadata").child("annotations"), Json.object().set("k", Json.of("v")));
    if (req.name == "whole") patch.setObject(Json.parse(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"whole","labels":{"k":"v"}}}`)!);
    return null;
  }

  convert(c: Conversion, patch: Patch): Error | null {
    if (c.to == "v1") return null; // The SDK sets the version.
    if (c.to == "trap") throw new Error("trap");
    if (c.to != "v2") return new Error("bad version");
    patch.setObject(Json.parse(`{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"},"spec":{"size":2}}`)!);
    return null;
  }
}
