// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o scheduler.wasm scheduler.c
#include "guest.h"

IMPORT("kubewasm", "config") u32 config(void *buf, u32 limit);
IMPORT("kubewasm", "log") void host_log(i32 level, const void *ptr, u32 len);
IMPORT("k8s.io/api", "object_part") u32 object_part(u64 ref, u32 part, u64 fields, void *buf, u32 limit);
IMPORT("k8s.io/api", "object_entry") u32 object_entry(u64 ref, u32 field, const void *ptr, u32 len, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_scores") u32 node_scores(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_names") u32 node_names(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "result_scores") void result_scores(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "result_node_names") void result_node_names(const void *ptr, u32 len);

enum { MAX = 32, SLOTS = 1 << 12, ERROR = 1, UNSCHEDULABLE = 2, UNRESOLVABLE = 3, SKIP = 5 };

// Parts of objects, a field of one, and maps of their metadata.
enum { METADATA = 1, SPEC = 2, NO_PART = 100, TAINTS = 5, LABELS = 11, ANNOTATIONS = 12, NO_MAP = 13 };
static const u32 NO_ENTRY = -1;
static const u64 ALL = -1;

// text is a string of at most 63 bytes, as values of labels are.
typedef struct { u32 n; u8 bytes[64]; } text;

static void append(text *t, const void *from, u32 n) {
  for (u32 i = 0; i < n && t->n < sizeof t->bytes; i++) t->bytes[t->n++] = ((const u8 *)from)[i];
}

static text label;

// What is known of Nodes by slot, and of cycles.
static struct { u32 version, entries, traps, closed; text value, taint; } nodes[SLOTS];
static struct { u32 version; text want; } cycles[SLOTS];

static span part(u64 ref, u32 number, u64 fields) { return READ(object_part(ref, number, fields, buf, limit)); }

static span metadata(u64 ref) { return part(ref, METADATA, ALL); }

// entry finds the value under a key in a map of the metadata. The buffer is small,
// so that the second attempt is tried as well.
static u32 entry(u64 ref, u32 number, span key, span *value) {
  u32 limit = 256;
  u8 *buf = take(limit);
  u32 n = object_entry(ref, number, key.p, len(key), buf, limit);
  if (n == NO_ENTRY) return 0;
  if (n > limit) {
    buf = take(limit = n);
    if (object_entry(ref, number, key.p, len(key), buf, limit) != n) __builtin_trap();
  }
  *value = (span){buf, buf + n};
  return 1;
}

// has reports whether there is such an entry.
static u32 has(u64 ref, u32 number, span key) { return object_entry(ref, number, key.p, len(key), 0, 0) != NO_ENTRY; }

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
  begin();
  span value;
  u32 slot = (u32)cycle;
  if (slot >= SLOTS) __builtin_trap();
  if (has(pod, LABELS, SPAN("skip"))) return SKIP;
  if (!entry(pod, LABELS, span_of(&label), &value)) {
    static u8 reason[64] = "the Pod has no ";
    for (u32 i = 0; i < label.n; i++) reason[15 + i] = label.bytes[i];
    status_reason(reason, 15 + label.n);
    return UNRESOLVABLE;
  }
  cycles[slot].version = (u32)(cycle >> 32);
  cycles[slot].want.n = 0;
  append(&cycles[slot].want, value.p, len(value));
  if (entry(pod, LABELS, SPAN("only"), &value)) {
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
    span labels = metadata(node), value = {0, 0}, taint = field(field(part(node, SPEC, 1 << TAINTS), TAINTS), 1);
    nodes[slot].traps = lookup(labels, LABELS, SPAN("trap"), &value, &nodes[slot].entries);
    value.p = value.end = 0;
    lookup(labels, LABELS, span_of(&label), &value, &nodes[slot].entries);
    nodes[slot].value.n = nodes[slot].taint.n = 0;
    append(&nodes[slot].value, value.p, len(value));
    append(&nodes[slot].taint, taint.p, len(taint));
    nodes[slot].closed = has(node, ANNOTATIONS, SPAN("closed"));
    if (has(node, NO_MAP, SPAN("closed")) || len(part(node, NO_PART, ALL)) || len(part(node, SPEC, 0))) __builtin_trap();
    nodes[slot].version = version;
  }
  return slot;
}

EXPORT("filter") u32 filter(u64 cycle, u64 pod, u64 node) {
  begin();
  u32 slot = look(node);
  if (nodes[slot].traps || (u32)cycle >= SLOTS || cycles[(u32)cycle].version != (u32)(cycle >> 32)) __builtin_trap();
  if (nodes[slot].closed) {
    span why;
    if (!entry(node, ANNOTATIONS, SPAN("closed"), &why)) __builtin_trap();
    buffer reason = make(8 + len(why));
    ADD(&reason, "closed: ");
    add(&reason, why);
    say(&reason);
    return UNSCHEDULABLE;
  }
  if (nodes[slot].taint.n) {
    buffer reason = make(9 + nodes[slot].taint.n);
    ADD(&reason, "tainted: ");
    add(&reason, span_of(&nodes[slot].taint));
    say(&reason);
    return UNRESOLVABLE;
  }
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
  begin();
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
