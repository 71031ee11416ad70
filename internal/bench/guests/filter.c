// The filter guest of the benchmark in C, written from abi/SPEC.md: one label and
// the taints of a Node against the tolerations of a Pod, those with the operators
// Lt and Gt left out.
//
// clang --target=wasm32 -O3 -fno-builtin -nostdlib -Wl,--no-entry -o filter.wasm filter.c
#include "guest.h"
#include "words.h"

IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);

enum { SLOTS = 1 << 12, TERMS = 32, UNSCHEDULABLE = 2 };

// term is a taint or a toleration. Its bytes lie in those of its object.
typedef struct { span key, value; u32 operator, effect; } term;

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
    grow(top - &__heap_base + k->room + BEHIND);
    k->bytes = top;
    top += k->room + BEHIND;
    if (object(ref, k->bytes, k->room) != n) __builtin_trap();
  }
  return (span){k->bytes, k->bytes + n};
}

static inline u32 effect(span s) {
  return !len(s) ? NO_EFFECT : alike(s, SPAN("NoSchedule")) ? NO_SCHEDULE : alike(s, SPAN("NoExecute")) ? NO_EXECUTE : OTHER_EFFECT;
}

static inline term *another(known *k) {
  if (k->count == TERMS) __builtin_trap();
  return &k->terms[k->count++];
}

// label returns the length of the value of a label.
static inline u32 label(span metadata, span key) {
  enum { LABELS = 11 };
  for (span entry; (entry = pull(&metadata, LABELS)).p; pass(&metadata, LABELS, key))
    if (alike(pull(&entry, 1), key)) return len(pull(&entry, 2));
  return 0;
}

static __attribute__((noinline)) void readPod(known *k, u64 ref) {
  span pod = fetch(k, ref), spec = pull(&pod, 2), s;
  k->count = 0;
  while ((s = pull(&spec, 22)).p) {
    term *t = another(k);
    t->key = pull(&s, 1);
    span operator = pull(&s, 2);
    t->operator = !len(operator) || alike(operator, SPAN("Equal")) ? EQUAL : alike(operator, SPAN("Exists")) ? EXISTS : OTHER_OPERATOR;
    t->value = pull(&s, 3);
    t->effect = effect(pull(&s, 4));
  }
  k->version = (u32)(ref >> 32);
}

static __attribute__((noinline)) void readNode(known *k, u64 ref) {
  span node = fetch(k, ref), metadata = pull(&node, 1), spec = pull(&node, 2), s;
  k->zone = label(metadata, SPAN("topology.kubernetes.io/zone"));
  k->count = 0;
  while ((s = pull(&spec, 5)).p) {
    span key = pull(&s, 1), value = pull(&s, 2);
    u32 e = effect(pull(&s, 3));
    if (e == NO_SCHEDULE || e == NO_EXECUTE) *another(k) = (term){key, value, EQUAL, e};
  }
  k->version = (u32)(ref >> 32);
}

static u32 tolerates(const term *t, const term *taint) {
  if (t->effect != NO_EFFECT && t->effect != taint->effect) return 0;
  if (len(t->key) && !alike(t->key, taint->key)) return 0;
  return t->operator == EXISTS || (t->operator == EQUAL && alike(t->value, taint->value));
}

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1 << 7; } // filter

EXPORT("filter") u32 filter(u64 cycle, u64 pod, u64 node) {
  if ((u32)pod >= SLOTS || (u32)node >= SLOTS) __builtin_trap();
  known *p = &pods[(u32)pod], *n = &nodes[(u32)node];
  if (p->version != (u32)(pod >> 32)) readPod(p, pod);
  if (n->version != (u32)(node >> 32)) readNode(n, node);
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
