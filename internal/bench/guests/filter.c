// The filter guest of the benchmark in C, written from abi/SPEC.md: one label and
// the taints of a Node against the tolerations of a Pod, those with the operators
// Lt and Gt left out.
//
// clang --target=wasm32 -O3 -fno-builtin -nostdlib -Wl,--no-entry -I ../../../guest/conformance/c -o filter.wasm filter.c
#include "guest.h"

IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);

enum { SLOTS = 1 << 12, TERMS = 32, UNSCHEDULABLE = 2 };

// term is a taint or a toleration. Its bytes lie in those of its object.
typedef struct { span key, value, effect; u32 operator, kind; } term;

// The operators and effects that there are, as numbers.
enum { EQUAL, EXISTS, OTHER_OPERATOR };
enum { NO_EFFECT, NO_SCHEDULE, NO_EXECUTE, OTHER_EFFECT };

// known is what was read of a version of an object, in a buffer of its own.
typedef struct {
  u32 version, room, zone, count;
  u8 *bytes;
  term terms[TERMS];
} known;

static known nodes[SLOTS], pods[SLOTS];

static u8 *top;

static span fetch(known *k, u64 ref) {
  u32 n = object(ref, k->bytes, k->room);
  if (n > k->room) {
    if (!top) top = &__heap_base;
    k->room = n + 256;
    grow(top - &__heap_base + k->room);
    k->bytes = top;
    top += k->room;
    if (object(ref, k->bytes, k->room) != n) __builtin_trap();
  }
  return (span){k->bytes, k->bytes + n};
}

static inline u32 same(span a, span b) {
  typedef u64 __attribute__((aligned(1))) word;
  u32 n = len(a), i = 0;
  if (n != len(b)) return 0;
  for (; i + 8 <= n; i += 8)
    if (*(const word *)(a.p + i) != *(const word *)(b.p + i)) return 0;
  for (; i < n; i++)
    if (a.p[i] != b.p[i]) return 0;
  return 1;
}

// usual is next for a field of bytes with one byte each for key and length, which
// nearly all are.
static inline u32 usual(span *m, span *bytes) {
  const u8 *p = m->p;
  if (len(*m) < 2 || (p[0] & 0x87) != 2 || p[1] > 127 || p[1] > len(*m) - 2) {
    // Copies, so that the compiler keeps the others out of the memory.
    span rest = *m, found;
    u32 n = next(&rest, &found);
    *m = rest, *bytes = found;
    return n;
  }
  bytes->p = p + 2, bytes->end = m->p = p + 2 + p[1];
  return p[0] >> 3;
}

// terms reads the messages in the field of that number of the spec. A taint has
// no operator.
static void terms(known *k, span spec, u32 number, u32 operator, u32 value, u32 effect) {
  span bytes, text;
  k->count = 0;
  for (u32 n; (n = usual(&spec, &bytes));) {
    if (n != number) continue;
    if (k->count == TERMS) __builtin_trap();
    term t = {{0, 0}, {0, 0}, {0, 0}, EQUAL, NO_EFFECT};
    for (u32 m; (m = usual(&bytes, &text));) {
      if (m == 1) t.key = text;
      else if (m == value) t.value = text;
      else if (m == operator) t.operator = !len(text) || IS(text, "Equal") ? EQUAL : IS(text, "Exists") ? EXISTS : OTHER_OPERATOR;
      else if (m == effect) t.effect = text, t.kind = !len(text) ? NO_EFFECT : IS(text, "NoSchedule") ? NO_SCHEDULE : IS(text, "NoExecute") ? NO_EXECUTE : OTHER_EFFECT;
    }
    if (!operator && t.kind != NO_SCHEDULE && t.kind != NO_EXECUTE) continue;
    k->terms[k->count++] = t;
  }
}

// label returns the length of the value of a label.
static u32 label(span metadata, span key) {
  span entry, part;
  u32 value = 0;
  for (u32 n; (n = usual(&metadata, &entry));) {
    if (n != 11) continue;
    // Key and value, nothing else: nearly always.
    const u8 *e = entry.p, *end = entry.end;
    if (end - e >= 4 && e[0] == 10 && e[1] <= end - e - 4 && e[2 + e[1]] == 18 && e[3 + e[1]] == end - e - 4 - e[1]) {
      if (e[1] == len(key) && same((span){e + 2, e + 2 + e[1]}, key)) value = e[3 + e[1]];
      continue;
    }
    u32 found = 0, length = 0;
    for (u32 m; (m = usual(&entry, &part));) {
      if (m == 1) found = same(part, key);
      else if (m == 2) length = len(part);
    }
    if (found) value = length;
  }
  return value;
}

static u32 tolerates(const term *t, const term *taint) {
  if (t->kind != NO_EFFECT && t->kind != taint->kind) return 0;
  if (len(t->key) && !same(t->key, taint->key)) return 0;
  return t->operator == EXISTS || (t->operator == EQUAL && same(t->value, taint->value));
}

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1 << 7; } // filter

EXPORT("filter") u32 filter(u64 cycle, u64 pod, u64 node) {
  if ((u32)pod >= SLOTS || (u32)node >= SLOTS) __builtin_trap();
  known *p = &pods[(u32)pod], *n = &nodes[(u32)node];
  if (p->version != (u32)(pod >> 32)) {
    terms(p, field(fetch(p, pod), 2), 22, 2, 3, 4);
    p->version = (u32)(pod >> 32);
  }
  if (n->version != (u32)(node >> 32)) {
    span object = fetch(n, node);
    n->zone = label(field(object, 1), SPAN("topology.kubernetes.io/zone"));
    terms(n, field(object, 2), 5, 0, 2, 3);
    n->version = (u32)(node >> 32);
  }
  if (!n->zone) {
    SAY("node has no zone");
    return UNSCHEDULABLE;
  }
  for (u32 i = 0; i < n->count; i++) {
    u32 j = 0;
    while (j < p->count && !tolerates(&p->terms[j], &n->terms[i])) j++;
    if (j == p->count) {
      SAY("node has a taint");
      return UNSCHEDULABLE;
    }
  }
  return 0;
}
