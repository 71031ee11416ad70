// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o admission.wasm admission.c
#include "guest.h"

IMPORT("k8s.io/admission", "request") u32 request(void *buf, u32 limit);
IMPORT("k8s.io/admission", "object") u32 object(void *buf, u32 limit);
IMPORT("k8s.io/admission", "result") void result(const void *ptr, u32 len);

IMPORT("k8s.io/admission", "patch") void patch(const void *ptr, u32 len);
IMPORT("k8s.io/admission", "mutated_object") void mutated_object(const void *ptr, u32 len);

enum { ALLOW, ERROR, DENY };

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1ull << 32 | 1ull << 33; }

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
  u32 n = request(0, 0);
  u8 *buf = grow(n);
  if (request(buf, n) != n) __builtin_trap();
  return field((span){buf, buf + n}, 5);
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
