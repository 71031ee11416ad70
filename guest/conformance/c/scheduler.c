// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o scheduler.wasm scheduler.c
#include "guest.h"

IMPORT("kubewasm", "config") u32 config(void *buf, u32 limit);
IMPORT("kubewasm", "log") void host_log(i32 level, const void *ptr, u32 len);
IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_scores") u32 node_scores(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_names") u32 node_names(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "result_scores") void result_scores(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "result_node_names") void result_node_names(const void *ptr, u32 len);

enum { MAX = 32, SLOTS = 1 << 12, ERROR = 1, UNSCHEDULABLE = 2, UNRESOLVABLE = 3, SKIP = 5 };

// text is a string of at most 63 bytes, as values of labels are.
typedef struct { u32 n; u8 bytes[64]; } text;

static void append(text *t, const void *from, u32 n) {
  for (u32 i = 0; i < n && t->n < sizeof t->bytes; i++) t->bytes[t->n++] = ((const u8 *)from)[i];
}

static text label;

// What is known of Nodes by slot, and of cycles.
static struct { u32 version, entries, traps; text value; } nodes[SLOTS];
static struct { u32 version; text want; } cycles[SLOTS];

static u32 first = 256; // Small, so that the second attempt is tried as well.
static u32 room;

static span read(u64 ref) {
  if (room < first) grow(room = first);
  u32 n = object(ref, &__heap_base, room);
  if (n > room) {
    grow(room = n);
    if (object(ref, &__heap_base, room) != n) __builtin_trap();
  }
  return (span){&__heap_base, &__heap_base + n};
}

EXPORT("kubewasm_abi_v1") u64 marker(void) {
  return 1ull << 4 | 1ull << 7 | 1ull << 10 | 1ull << 11 | 1ull << 56;
}

EXPORT("configure") u32 configure(void) {
  static u8 buf[64];
  u32 n = config(buf, sizeof buf);
  if (n < 13 || n > 12 + MAX || !equal((span){buf, buf + 10}, "{\"label\":\"", 10) || !equal((span){buf + n - 2, buf + n}, "\"}", 2)) {
    SAY("want {\"label\":\"\xe2\x80\xa6\"}");
    return ERROR;
  }
  append(&label, buf + 10, n - 12);
  static text line;
  append(&line, "configured\0label\0", 17);
  append(&line, label.bytes, label.n);
  host_log(0, line.bytes, line.n);
  return 0;
}

static span span_of(const text *t) { return (span){t->bytes, t->bytes + t->n}; }

EXPORT("prefilter") u32 prefilter(u64 cycle, u64 pod) {
  span metadata = field(read(pod), 1), value;
  u32 entries, slot = (u32)cycle;
  if (slot >= SLOTS) __builtin_trap();
  if (lookup(metadata, 11, SPAN("skip"), &value, &entries)) return SKIP;
  if (!lookup(metadata, 11, span_of(&label), &value, &entries)) {
    static u8 reason[64] = "the Pod has no ";
    for (u32 i = 0; i < label.n; i++) reason[15 + i] = label.bytes[i];
    status_reason(reason, 15 + label.n);
    return UNRESOLVABLE;
  }
  cycles[slot].version = (u32)(cycle >> 32);
  cycles[slot].want.n = 0;
  append(&cycles[slot].want, value.p, len(value));
  if (lookup(metadata, 11, SPAN("only"), &value, &entries)) {
    static text name;
    name.n = 0;
    append(&name, value.p, len(value));
    append(&name, "", 1);
    result_node_names(name.bytes, name.n);
  }
  return 0;
}

// look returns the slot of a Node whose current version was read.
static u32 look(u64 node) {
  u32 slot = (u32)node, version = (u32)(node >> 32);
  if (slot >= SLOTS) __builtin_trap();
  if (nodes[slot].version != version) {
    span metadata = field(read(node), 1), value = {0, 0};
    nodes[slot].traps = lookup(metadata, 11, SPAN("trap"), &value, &nodes[slot].entries);
    value.p = value.end = 0;
    lookup(metadata, 11, span_of(&label), &value, &nodes[slot].entries);
    nodes[slot].value.n = 0;
    append(&nodes[slot].value, value.p, len(value));
    nodes[slot].version = version;
  }
  return slot;
}

EXPORT("filter") u32 filter(u64 cycle, u64 pod, u64 node) {
  u32 slot = look(node);
  if (nodes[slot].traps || (u32)cycle >= SLOTS || cycles[(u32)cycle].version != (u32)(cycle >> 32)) __builtin_trap();
  const text *want = &cycles[(u32)cycle].want, *got = &nodes[slot].value;
  if (equal(span_of(want), got->bytes, got->n)) return 0;
  static u8 reason[160];
  u32 n = 0;
  for (u32 i = 0; i < 5; i++) reason[n++] = "want "[i];
  for (u32 i = 0; i < want->n; i++) reason[n++] = want->bytes[i];
  for (u32 i = 0; i < 6; i++) reason[n++] = ", got "[i];
  for (u32 i = 0; i < got->n; i++) reason[n++] = got->bytes[i];
  status_reason(reason, n);
  return UNSCHEDULABLE;
}

EXPORT("score") u64 score(u64 cycle, u64 pod, u64 node) {
  return (u64)(10 * nodes[look(node)].entries) << 32;
}

EXPORT("normalizescore") u32 normalizescore(u64 cycle, u64 pod) {
  if ((u32)cycle >= SLOTS || cycles[(u32)cycle].version != (u32)(cycle >> 32)) __builtin_trap();
  const text *want = &cycles[(u32)cycle].want;
  // The scores, and the names behind them, at an address that 8 divides.
  u8 *base = (u8 *)(((u32)&__heap_base + 7) & ~7u);
  u32 n = node_scores(0, 0), m = node_names(0, 0);
  grow(n + m + 8);
  if (node_scores(base, n) != n || node_names(base + n, m) != m) __builtin_trap();
  i64 *scores = (i64 *)base;
  const u8 *name = base + n;
  for (u32 i = 0; i < n / 8; i++) {
    const u8 *end = name;
    while (*end) end++;
    scores[i] = equal((span){name, end}, want->bytes, want->n) ? 100 : 100 - scores[i];
    name = end + 1;
  }
  result_scores(base, n);
  return 0;
}
