// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o service.wasm service.c
#include "guest.h"

#define QUOTES "kubewasm.conformance.v1.Quotes"
#define MARKET "kubewasm.conformance.v1.Market"

IMPORT("kubewasm/service", "request") u32 request(void *buf, u32 limit);
IMPORT("kubewasm/service", "response") void response(const void *ptr, u32 len);
IMPORT("kubewasm/service", "answer") u32 answer(void *buf, u32 limit);
IMPORT("kubewasm/service", "serve") void serve(const void *ptr, u32 len);
IMPORT(MARKET, "Rate") u64 market_rate(const void *ptr, u32 len);
IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);
IMPORT("k8s.io/api", "object_part") u32 object_part(u64 ref, u32 part, u64 fields, void *buf, u32 limit);
IMPORT("k8s.io/api", "object_entry") u32 object_entry(u64 ref, u32 field, const void *ptr, u32 len, void *buf, u32 limit);

enum { LABELS = 11, NO_ENTRY = -1, SPEC = 2, NODE_NAME = 10 };

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1ull << 60; }

EXPORT("services") void services(void) { serve(QUOTES, sizeof QUOTES); } // The NUL is a part of it.

// refer returns the ref in a field, 0 if there is none.
static u64 refer(span bytes) {
  u64 ref = 0;
  if (len(bytes) == sizeof ref) __builtin_memcpy(&ref, bytes.p, sizeof ref);
  return ref;
}

static void add_varint(buffer *b, u32 field, u64 n) {
  u8 bytes[11] = {(u8)(field << 3)};
  u32 i = 1;
  for (; n > 127; n >>= 7) bytes[i++] = (u8)(n | 128);
  bytes[i++] = (u8)n;
  add(b, (span){bytes, bytes + i});
}

static void respond(const buffer *b) { response(b->p, b->n); }

EXPORT(QUOTES "/Echo") u32 echo(void) {
  begin();
  span message = READ(request(buf, limit));
  response(message.p, len(message));
  return 0;
}

EXPORT(QUOTES "/Price") u32 price(void) {
  begin();
  span message = READ(request(buf, limit)), currency = field(message, 1);
  if (!len(currency)) {
    SAY("no currency");
    return 1;
  }
  if (IS(currency, "trap")) __builtin_trap();
  buffer question = make(len(currency) + 8);
  add_field(&question, 1, currency);
  u64 result = market_rate(question.p, question.n);
  span rate = READ(answer(buf, limit));
  if (len(rate) != (u32)(result >> 32)) __builtin_trap();
  if ((u32)result) {
    status_reason(rate.p, len(rate));
    return 1;
  }
  u64 pod = refer(field(message, 3));
  span key = SPAN("discount"), note = SPAN("none");
  if (pod && object_entry(pod, LABELS, key.p, len(key), 0, 0) != (u32)NO_ENTRY)
    note = READ(object_entry(pod, LABELS, key.p, len(key), buf, limit));
  buffer b = make(len(note) + 32);
  add_varint(&b, 1, (u64)(number(message, 2) * number(rate, 1)));
  add_field(&b, 2, note);
  respond(&b);
  return 0;
}

EXPORT(QUOTES "/Choose") u32 choose(void) {
  begin();
  span message = READ(request(buf, limit)), node = field(message, 2), rest = message, bytes, text = {0, 0};
  for (u32 n; (n = next(&rest, &bytes));) {
    u64 pod = n == 1 ? refer(bytes) : 0;
    if (!pod) continue;
    span spec = READ(object_part(pod, SPEC, 1ull << NODE_NAME, buf, limit));
    if (!same(field(spec, NODE_NAME), node)) continue;
    u8 chosen[9] = {1 << 3 | 1};
    __builtin_memcpy(chosen + 1, &pod, sizeof pod);
    response(chosen, sizeof chosen);
    return 0;
  }
  u64 texts = refer(field(message, 3));
  u32 entries;
  // The data of a ConfigMap are field 2.
  if (texts) lookup(READ(object(texts, buf, limit)), 2, SPAN("none"), &text, &entries);
  buffer b = make(len(text) + 8);
  add_field(&b, 2, text);
  respond(&b);
  return 0;
}
