// The admission guest, which doc.go two directories above describes.
#include <kubewasm.h>

static kw_str app(kw_view object) { return kw_value(meta_ObjectMeta_labels(core_Pod_metadata((core_Pod){object})), "app"); }

// listed counts ConfigMaps, page by page.
static uint32_t listed(const char *namespace, const char *selector) {
  uint32_t n = 0;
  kw_str after = KW("");
  do {
    kw_Objects page = kw_list_page("v1/configmaps", namespace, selector, after);
    n += kw_count(kw_Objects_objects(page));
    after = kw_Objects_next(page);
  } while (after.n);
  return n;
}

KW_VALIDATE(request) {
  kw_str name = kw_Request_name(request);
  if (kw_equal(name, "trap")) kw_panic("the request is a trap");
  if (kw_equal(name, "fail")) return kw_error("no data");
  if (kw_equal(name, "bad")) return kw_deny("bad name");
  if (kw_equal(name, "busy")) return kw_deny_as(409);
  if (kw_equal(name, "field")) {
    kw_invalid("metadata.name", name, "is odd");
    return kw_verdict_of_errors();
  }
  if (kw_equal(name, "warn")) {
    kw_warn("careful");
    kw_audit("k", "v");
    return KW_ALLOW;
  }
  if (kw_equal(name, "same")) return kw_equal(kw_object_json(), kw_old_object_json()) ? kw_deny("unchanged") : KW_ALLOW;
  if (kw_equal(name, "relabelled")) return kw_deny("was ", app(kw_old_object_proto_view()), ", is ", app(kw_object_proto_view()));
  if (kw_equal(name, "options")) return kw_deny(kw_options_json());
  if (kw_equal(name, "found")) {
    kw_str found = kw_get_object("v1/configmaps", "shop", app(kw_object_view()));
    return kw_deny(found.n ? found : KW("none"));
  }
  if (kw_equal(name, "listed")) return kw_deny(listed("", ""), ", ", listed("shop", ""), ", ", listed("shop", "tier=a"));
  if (kw_equal(name, "secret")) {
    kw_get_object("v1/secrets", "shop", "a");
    return KW_ALLOW;
  }
  kw_str object = kw_object_json();
  if (kw_equal(name, "empty") && !object.n) return kw_deny("no object");
  return object.n > 100000 ? kw_deny_as(413) : KW_ALLOW;
}

KW_MUTATE(request) {
  kw_str name = kw_Request_name(request);
  kw_buf patch = {0};
  if (kw_equal(name, "bad")) return kw_deny("bad name");
  if (kw_equal(name, "patch")) {
    kw_patch_add(&patch, KW("add"), KW("/metadata/annotations"), KW("{\"k\":\"v\"}"));
    kw_patch(&patch);
  }
  if (kw_equal(name, "whole")) kw_set_object(KW("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"whole\",\"labels\":{\"k\":\"v\"}}}"));
  return KW_ALLOW;
}

KW_CONVERT(version) {
  kw_buf patch = {0};
  if (kw_equal(version, "example.com/trap")) kw_panic("the version is a trap");
  if (kw_equal(version, "example.com/v1")) {
    kw_patch_add(&patch, KW("replace"), KW("/apiVersion"), KW("\"example.com/v1\""));
    kw_patch(&patch);
  } else if (kw_equal(version, "example.com/v2")) {
    kw_set_object(KW("{\"apiVersion\":\"example.com/v2\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"w\"},\"spec\":{\"size\":2}}"));
  } else return kw_error("bad version");
  return KW_ALLOW;
}
