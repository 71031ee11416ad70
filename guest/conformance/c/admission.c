// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o admission.wasm admission.c
#include "guest.h"

IMPORT("k8s.io/admission", "request") u32 request(void *buf, u32 limit);
IMPORT("k8s.io/admission", "object") u32 object(void *buf, u32 limit);
IMPORT("k8s.io/admission", "old_object") u32 old_object(void *buf, u32 limit);
IMPORT("k8s.io/admission", "options") u32 options(void *buf, u32 limit);
IMPORT("k8s.io/admission", "object_proto") u32 object_proto(void *buf, u32 limit);
IMPORT("k8s.io/admission", "old_object_proto") u32 old_object_proto(void *buf, u32 limit);
IMPORT("k8s.io/admission", "result") void result(const void *ptr, u32 len);
IMPORT("k8s.io/admission", "patch") void patch(const void *ptr, u32 len);
IMPORT("k8s.io/admission", "mutated_object") void mutated_object(const void *ptr, u32 len);
IMPORT("k8s.io/admission", "desired_api_version") u32 desired_api_version(void *buf, u32 limit);
IMPORT("k8s.io/api", "get_object") u32 get_object(const void *ptr, u32 len, void *buf, u32 limit);
IMPORT("k8s.io/api", "list_objects") u32 list_objects(const void *ptr, u32 len, void *buf, u32 limit);

enum { ALLOW, ERROR, DENY };

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 7ull << 32; }

// A Result is made of few bytes, so they stand here as they are: the field
// number and type of each message, its length, its contents.
static const u8 warn[] =
    "\x1a\x07" "careful"          // warnings (3)
    "\x22\x06\x0a\x01k\x12\x01v"; // auditAnnotations (4): key (1), value (2)
static const u8 odd[] =
    "\x12\x33"                      // fieldErrors (2), 51 bytes
    "\x0a\x0d" "metadata.name"      // field (1)
    "\x12\x11" "FieldValueInvalid"  // type (2)
    "\x1a\x06" "is odd"             // message (3)
    "\x22\x07" "\"field\"";         // badValue (4)

// requested returns the name of the request.
static span requested(void) {
  begin();
  return field(READ(request(buf, limit)), 5);
}

// app returns the label of an object in protobuf, whose metadata is field 1.
static span app(span object) { return LABEL(field(object, 1), "app"); }

// listed counts the ConfigMaps that a question about a list is about, page by page.
static u32 listed(span question) {
  u32 n = 0;
  span after = SPAN("");
  do {
    buffer page = make(512);
    add(&page, question);
    ADD(&page, "\0");
    add(&page, after);
    span objects = READ(list_objects(page.p, page.n, buf, limit));
    n += count(objects, 1);
    after = field(objects, 2);
  } while (len(after) != 0);
  return n;
}

EXPORT("validate") u64 validate(void) {
  span name = requested();
  if (IS(name, "trap")) __builtin_trap();
  if (IS(name, "fail")) {
    SAY("no data");
    return ERROR;
  }
  if (IS(name, "bad")) {
    SAY("bad name");
    return DENY;
  }
  if (IS(name, "busy")) return 409ull << 32 | DENY;
  if (IS(name, "field")) {
    result(odd, sizeof odd - 1);
    return DENY;
  }
  if (IS(name, "warn")) {
    result(warn, sizeof warn - 1);
    return ALLOW;
  }
  if (IS(name, "same")) {
    if (!same(READ(object(buf, limit)), READ(old_object(buf, limit)))) return ALLOW;
    SAY("unchanged");
    return DENY;
  }
  if (IS(name, "relabelled")) {
    buffer reason = make(256);
    ADD(&reason, "was ");
    add(&reason, app(READ(old_object_proto(buf, limit))));
    ADD(&reason, ", is ");
    add(&reason, app(READ(object_proto(buf, limit))));
    say(&reason);
    return DENY;
  }
  if (IS(name, "options")) {
    span json = READ(options(buf, limit));
    status_reason(json.p, len(json));
    return DENY;
  }
  if (IS(name, "found")) {
    buffer question = make(512);
    ADD(&question, "v1/configmaps\0shop\0");
    add(&question, app(READ(object_proto(buf, limit))));
    span json = READ(get_object(question.p, question.n, buf, limit));
    if (len(json) == 0) SAY("none");
    else status_reason(json.p, len(json));
    return DENY;
  }
  if (IS(name, "listed")) {
    buffer reason = make(256);
    add_decimal(&reason, listed(SPAN("v1/configmaps\0\0")));
    ADD(&reason, ", ");
    add_decimal(&reason, listed(SPAN("v1/configmaps\0shop\0")));
    ADD(&reason, ", ");
    add_decimal(&reason, listed(SPAN("v1/configmaps\0shop\0tier=a")));
    say(&reason);
    return DENY;
  }
  if (IS(name, "secret")) {
    get_object("v1/secrets\0shop\0a", 17, 0, 0);
    return ALLOW;
  }
  u32 size = object(0, 0);
  if (IS(name, "empty") && size == 0) {
    SAY("no object");
    return DENY;
  }
  if (size > 100000) return 413ull << 32 | DENY;
  return ALLOW;
}

EXPORT("mutate") u64 mutate(void) {
  static const char add[] = "[{\"op\":\"add\",\"path\":\"/metadata/annotations\",\"value\":{\"k\":\"v\"}}]";
  static const char pod[] = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"whole\",\"labels\":{\"k\":\"v\"}}}";
  span name = requested();
  if (IS(name, "bad")) {
    SAY("bad name");
    return DENY;
  }
  if (IS(name, "patch")) patch(add, sizeof add - 1);
  if (IS(name, "whole")) mutated_object(pod, sizeof pod - 1);
  return ALLOW;
}

EXPORT("convert") u64 convert(void) {
  static const char set[] = "[{\"op\":\"replace\",\"path\":\"/apiVersion\",\"value\":\"example.com/v1\"}]";
  static const char widget[] = "{\"apiVersion\":\"example.com/v2\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"w\"},\"spec\":{\"size\":2}}";
  begin();
  span version = READ(desired_api_version(buf, limit));
  if (IS(version, "example.com/trap")) __builtin_trap();
  if (IS(version, "example.com/v1")) patch(set, sizeof set - 1);
  else if (IS(version, "example.com/v2")) mutated_object(widget, sizeof widget - 1);
  else {
    SAY("bad version");
    return ERROR;
  }
  return ALLOW;
}
