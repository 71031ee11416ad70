// kubewasm.h is the SDK for guests in C: one header, which needs neither a library nor a libc.
//
//   #include <kubewasm.h>
//
//   //kubewasm:name zone
//   //kubewasm:version 1.0.0
//   //kubewasm:reads node.metadata.labels[topology.kubernetes.io/zone]
//
//   static kw_str zone;
//
//   KW_CONFIG(KW_OPTION_STRING("zone", zone)) { return KW_SUCCESS; }
//
//   KW_FILTER(cycle, pod, node) {
//     kw_str got = kw_value(meta_ObjectMeta_labels(core_Node_metadata(node)), "topology.kubernetes.io/zone");
//     if (!kw_equal(got, zone)) return kw_unschedulable("node is in zone ", got, ", not in ", zone);
//     return KW_SUCCESS;
//   }
//
// kubewasm build compiles a directory of such files. By hand:
//
//   clang --target=wasm32 -O2 -nostdlib -ffreestanding -mbulk-memory -Wl,--no-entry -I DIR -o zone.wasm zone.c
//
// Text is a kw_str, a slice: it has no NUL at its end. Memory comes from kw_take and is given
// back when the call ends. What is kept longer is copied by kw_keep, or into what
// kw_cycle_state returns. All readers stay within the bytes that they are given, whatever is in
// them: malformed bytes end a message, as if there were no more fields.
#ifndef KUBEWASM_H
#define KUBEWASM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KW_INLINE static inline __attribute__((unused))
#define KW_SHARED __attribute__((weak)) // One for all files of a guest.
#ifdef __wasm__
#define KW_IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define KW_EXPORT(name) __attribute__((export_name(name), used))
#else // Tests of the readers run natively and define the host functions.
#define KW_IMPORT(module, name)
#define KW_EXPORT(name) __attribute__((used))
#endif

// ---- Text -------------------------------------------------------------------------------

// kw_str is n bytes of text.
typedef struct { const char *p; uint32_t n; } kw_str;

// KW is a literal as a kw_str.
#define KW(literal) ((kw_str){"" literal, sizeof(literal) - 1})

// What clang may call for a copy. A libc has its own.
#if defined(__wasm__) && !defined(__wasi__)
KW_SHARED void *memcpy(void *to, const void *from, size_t n) {
  for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}
KW_SHARED void *memset(void *to, int c, size_t n) {
  for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = (char)c;
  return to;
}
#endif
#define kw_copy(to, from, n) __builtin_memcpy(to, from, n)

#define KW_LOAD(type, p) ({ type kw_v; kw_copy(&kw_v, p, sizeof kw_v); kw_v; })

// kw_same compares n bytes by words, the last of which may overlap the one before.
KW_INLINE bool kw_same(const void *a, const void *b, uint32_t n) {
  const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
  if (n >= 8) {
    for (uint32_t i = 0; i + 8 < n; i += 8)
      if (KW_LOAD(uint64_t, x + i) != KW_LOAD(uint64_t, y + i)) return false;
    return KW_LOAD(uint64_t, x + n - 8) == KW_LOAD(uint64_t, y + n - 8);
  }
  if (n >= 4) return KW_LOAD(uint32_t, x) == KW_LOAD(uint32_t, y) && KW_LOAD(uint32_t, x + n - 4) == KW_LOAD(uint32_t, y + n - 4);
  return n == 0 || (x[0] == y[0] && x[n / 2] == y[n / 2] && x[n - 1] == y[n - 1]);
}

KW_INLINE bool kw_str_equal(kw_str a, kw_str b) { return a.n == b.n && kw_same(a.p, b.p, a.n); }
KW_INLINE bool kw_str_starts(kw_str s, kw_str with) { return s.n >= with.n && kw_same(s.p, with.p, with.n); }
KW_INLINE bool kw_str_ends(kw_str s, kw_str with) { return s.n >= with.n && kw_same(s.p + s.n - with.n, with.p, with.n); }

// kw_compare is below, at or above 0 if a comes before, with or after b, byte by byte.
KW_INLINE int kw_compare(kw_str a, kw_str b) {
  for (uint32_t i = 0; i < a.n && i < b.n; i++)
    if (a.p[i] != b.p[i]) return (uint8_t)a.p[i] < (uint8_t)b.p[i] ? -1 : 1;
  return a.n < b.n ? -1 : a.n > b.n;
}

// kw_cut takes the text before the next separator off *rest. It returns false at the end: text
// without a separator is one piece, also if it is empty.
KW_INLINE bool kw_cut(kw_str *rest, char separator, kw_str *piece) {
  if (!rest->p) return false;
  for (uint32_t i = 0; i < rest->n; i++)
    if (rest->p[i] == separator) {
      *piece = (kw_str){rest->p, i};
      *rest = (kw_str){rest->p + i + 1, rest->n - i - 1};
      return true;
    }
  *piece = *rest;
  *rest = (kw_str){0, 0};
  return true;
}

// kw_str_find reports whether a text has a character.
KW_INLINE bool kw_str_find(kw_str s, char c) {
  for (uint32_t i = 0; i < s.n; i++)
    if (s.p[i] == c) return true;
  return false;
}

// kw_trim returns s without spaces at its ends.
KW_INLINE kw_str kw_trim(kw_str s) {
#define KW_SPACE(c) ((c) == ' ' || ((c) >= '\t' && (c) <= '\r'))
  while (s.n && KW_SPACE(s.p[0])) s.p++, s.n--;
  while (s.n && KW_SPACE(s.p[s.n - 1])) s.n--;
  return s;
}

// ---- Host functions ---------------------------------------------------------------------

// The functions of abi/SPEC.md, section 6, as they are. A guest imports those that it uses. The
// functions further below call them.
KW_IMPORT("kubewasm", "config") uint32_t kw_host_config(void *buf, uint32_t limit);
KW_IMPORT("kubewasm", "status_reason") void kw_host_status_reason(const void *p, uint32_t n);
KW_IMPORT("kubewasm", "log") void kw_host_log(int32_t level, const void *p, uint32_t n);
KW_IMPORT("k8s.io/api", "object") uint32_t kw_host_object(uint64_t ref, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/api", "object_part") uint32_t kw_host_object_part(uint64_t ref, uint32_t part, uint64_t fields, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/api", "object_entry") uint32_t kw_host_object_entry(uint64_t ref, uint32_t field, const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/api", "get_object") uint32_t kw_host_get_object(const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/api", "list_objects") uint32_t kw_host_list_objects(const void *p, uint32_t n, void *buf, uint32_t limit);
#define KW_TO_GUEST(module, name) KW_IMPORT(module, #name) uint32_t kw_host_##name(void *buf, uint32_t limit)
#define KW_FROM_GUEST(module, name) KW_IMPORT(module, #name) void kw_host_##name(const void *p, uint32_t n)
KW_TO_GUEST("k8s.io/scheduler", node_names);
KW_TO_GUEST("k8s.io/scheduler", node_refs);
KW_TO_GUEST("k8s.io/scheduler", node_scores);
KW_TO_GUEST("k8s.io/scheduler", node_name);
KW_TO_GUEST("k8s.io/scheduler", node_statuses);
KW_TO_GUEST("k8s.io/scheduler", pod_group);
KW_TO_GUEST("k8s.io/scheduler", placement);
KW_TO_GUEST("k8s.io/scheduler", waiting_pods);
KW_FROM_GUEST("k8s.io/scheduler", result_node_names);
KW_FROM_GUEST("k8s.io/scheduler", result_scores);
KW_FROM_GUEST("k8s.io/scheduler", result_cluster_events);
KW_FROM_GUEST("k8s.io/scheduler", activate);
KW_FROM_GUEST("k8s.io/scheduler", apply_annotations);
KW_FROM_GUEST("k8s.io/scheduler", apply_status);
KW_IMPORT("k8s.io/scheduler", "await_object") void kw_host_await_object(const void *p, uint32_t n, uint32_t milliseconds);
KW_FROM_GUEST("k8s.io/scheduler", result_pods);
KW_FROM_GUEST("k8s.io/scheduler", result_nominated_node_name);
KW_FROM_GUEST("k8s.io/scheduler", result_sign_fragments);
KW_FROM_GUEST("k8s.io/scheduler", result_victims);
KW_FROM_GUEST("k8s.io/scheduler", result_nominations);
KW_FROM_GUEST("k8s.io/scheduler", result_placements);
KW_FROM_GUEST("k8s.io/scheduler", event);
KW_IMPORT("k8s.io/scheduler", "result_score") void kw_host_result_score(int64_t score);
KW_IMPORT("k8s.io/scheduler", "node_by_name") uint64_t kw_host_node_by_name(const void *p, uint32_t n);
KW_IMPORT("k8s.io/scheduler", "node_info_version") uint64_t kw_host_node_info_version(uint64_t node);
KW_IMPORT("k8s.io/scheduler", "node_info") uint32_t kw_host_node_info(uint64_t node, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "node_images") uint32_t kw_host_node_images(uint64_t node, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "node_pods") uint32_t kw_host_node_pods(uint64_t node, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "nominated_pods") uint32_t kw_host_nominated_pods(uint64_t node, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "count_pods") uint32_t kw_host_count_pods(uint32_t terminating, const void *nodes, uint32_t bytes, const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "pod_group_pod") uint32_t kw_host_pod_group_pod(uint32_t index, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "try_pod_group") uint32_t kw_host_try_pod_group(const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "waiting_pod") uint32_t kw_host_waiting_pod(const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("k8s.io/scheduler", "allow_waiting_pod") uint32_t kw_host_allow_waiting_pod(const void *p, uint32_t n);
KW_IMPORT("k8s.io/scheduler", "reject_waiting_pod") uint32_t kw_host_reject_waiting_pod(const void *p, uint32_t n);
KW_IMPORT("k8s.io/admission", "request") uint32_t kw_host_admission_request(void *buf, uint32_t limit);
KW_IMPORT("k8s.io/admission", "object") uint32_t kw_host_admission_object(void *buf, uint32_t limit);
KW_TO_GUEST("k8s.io/admission", old_object);
KW_TO_GUEST("k8s.io/admission", options);
KW_TO_GUEST("k8s.io/admission", object_proto);
KW_TO_GUEST("k8s.io/admission", old_object_proto);
KW_TO_GUEST("k8s.io/admission", desired_api_version);
KW_FROM_GUEST("k8s.io/admission", result);
KW_FROM_GUEST("k8s.io/admission", patch);
KW_FROM_GUEST("k8s.io/admission", mutated_object);
KW_IMPORT("k8s.io/hooks", "request") uint32_t kw_host_hook_request(void *buf, uint32_t limit);
KW_FROM_GUEST("k8s.io/hooks", decision);
KW_IMPORT("k8s.io/scheduler", "list_pods") uint32_t kw_host_list_pods(uint32_t terminating, const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("kubewasm/state", "get") uint32_t kw_host_state_get(const void *p, uint32_t n, void *buf, uint32_t limit);
KW_IMPORT("kubewasm/state", "put") uint32_t kw_host_state_put(const void *p, uint32_t n, const void *value, uint32_t bytes, int64_t version);
KW_IMPORT("kubewasm/state", "delete") uint32_t kw_host_state_delete(const void *p, uint32_t n, int64_t version);
KW_IMPORT("kubewasm/state", "add") uint32_t kw_host_state_add(const void *p, uint32_t n, int64_t delta, int64_t limit);
KW_IMPORT("kubewasm/state", "list") uint32_t kw_host_state_list(const void *p, uint32_t n, const void *after, uint32_t bytes, void *buf, uint32_t limit);
KW_IMPORT("kubewasm/state", "keep") void kw_host_state_keep(void);
KW_IMPORT("kubewasm/service", "request") uint32_t kw_host_service_request(void *buf, uint32_t limit);
KW_TO_GUEST("kubewasm/service", answer);
KW_FROM_GUEST("kubewasm/service", response);
KW_FROM_GUEST("kubewasm/service", serve);
KW_IMPORT("wasi_snapshot_preview1", "fd_write") int32_t kw_host_fd_write(int32_t fd, const void *buffers, int32_t n, uint32_t *written);

// ---- Memory -----------------------------------------------------------------------------

// kw_die ends the call with a text, which the host's error has. It does not return.
__attribute__((noreturn, cold, noinline)) KW_INLINE void kw_die(kw_str text) {
#ifdef __wasm__
  const struct { const char *p; uint32_t n; } buffers[] = {{text.p, text.n}, {"\n", 1}};
  uint32_t written;
  kw_host_fd_write(2, buffers, 2, &written);
#else
  (void)text;
#endif
  __builtin_trap();
}

// KW_ASSERT ends the call, with its place in the source, unless the condition holds.
#define KW_STRING_OF(x) KW_STRING_OF_(x)
#define KW_STRING_OF_(x) #x
#define KW_ASSERT(condition) \
  ((condition) ? (void)0 : kw_die(KW(__FILE__ ":" KW_STRING_OF(__LINE__) ": assertion failed: " #condition)))

// Pages come from memory.grow alone, so a malloc of a libc may be beside. Blocks have powers of
// two as their sizes; those that were given back are in lists by size.
enum { KW_PAGE = 1 << 16, KW_LEAST = 4, KW_CLASSES = 32 };
KW_SHARED uint8_t *kw_fresh, *kw_fresh_end;
KW_SHARED void *kw_free_blocks[KW_CLASSES];

#ifdef __wasm__
KW_INLINE uint8_t *kw_pages(uint32_t n) {
  uint32_t at = (uint32_t)__builtin_wasm_memory_grow(0, n);
  if (at == (uint32_t)-1) kw_die(KW("out of memory"));
  return (uint8_t *)(at << 16);
}
#else
#include <stdlib.h>
KW_INLINE uint8_t *kw_pages(uint32_t n) { return (uint8_t *)malloc((size_t)n << 16); }
#endif

KW_INLINE uint32_t kw_class(uint32_t n) {
  return n <= 1u << KW_LEAST ? KW_LEAST : 32 - (uint32_t)__builtin_clz(n - 1);
}

// kw_alloc returns at least n bytes, at an address that 16 divides, until kw_free.
__attribute__((noinline)) KW_INLINE void *kw_alloc(uint32_t n) {
  if (n > 1u << 30) kw_die(KW("out of memory"));
  uint32_t class = kw_class(n), size = 1u << class;
  void *block = kw_free_blocks[class];
  if (block) {
    kw_copy(&kw_free_blocks[class], block, sizeof(void *));
    return block;
  }
  if ((size_t)(kw_fresh_end - kw_fresh) < size) {
    uint32_t pages = (size + KW_PAGE - 1) / KW_PAGE;
    uint8_t *more = kw_pages(pages);
    if (more != kw_fresh_end) kw_fresh = more; // What is left of the page before is lost.
    kw_fresh_end = more + (size_t)pages * KW_PAGE;
  }
  block = kw_fresh;
  kw_fresh += size;
  return block;
}

// kw_free gives back a block of n bytes.
KW_INLINE void kw_free(void *block, uint32_t n) {
  if (!block) return;
  uint32_t class = kw_class(n);
  kw_copy(block, &kw_free_blocks[class], sizeof(void *));
  kw_free_blocks[class] = block;
}

// kw_arena is memory that is given back as a whole. The zero value is an empty one.
typedef struct kw_chunk { struct kw_chunk *next; uint32_t size, used; } kw_chunk;
typedef struct { kw_chunk *first, *now; } kw_arena;

__attribute__((noinline)) KW_INLINE void *kw_arena_more(kw_arena *a, uint32_t n) {
  kw_chunk *c = a->now;
  while (c && c->next && c->next->size - (uint32_t)sizeof(kw_chunk) < n) c = c->next;
  if (c && c->next) {
    a->now = c->next; // One that was used before.
    a->now->used = (uint32_t)sizeof(kw_chunk);
  } else {
    if (n > 1u << 29) kw_die(KW("out of memory"));
    uint32_t size = a->now ? a->now->size * 2 : 256;
    if (size > KW_PAGE) size = KW_PAGE;
    while (size < n + sizeof(kw_chunk)) size *= 2;
    kw_chunk *fresh = (kw_chunk *)kw_alloc(size);
    *fresh = (kw_chunk){0, size, (uint32_t)sizeof(kw_chunk)};
    if (c) c->next = fresh;
    else a->first = fresh;
    a->now = fresh;
  }
  void *room = (uint8_t *)a->now + a->now->used;
  a->now->used += n;
  return room;
}

// kw_arena_take returns n bytes of an arena, at an address that 8 divides.
KW_INLINE void *kw_arena_take(kw_arena *a, uint32_t n) {
  if (n > 1u << 29) kw_die(KW("out of memory"));
  n = (n + 7) & ~7u;
  if (!a->now || a->now->size - a->now->used < n) return kw_arena_more(a, n);
  void *room = (uint8_t *)a->now + a->now->used;
  a->now->used += n;
  return room;
}

// kw_arena_reset gives the memory of an arena back to it.
KW_INLINE void kw_arena_reset(kw_arena *a) {
  if ((a->now = a->first)) a->now->used = (uint32_t)sizeof(kw_chunk);
}

// kw_call is the memory of the call that runs, kw_always that of the guest.
KW_SHARED kw_arena kw_call, kw_always;

// kw_take returns n bytes until the call ends.
KW_INLINE void *kw_take(uint32_t n) { return kw_arena_take(&kw_call, n); }

// kw_copy_of returns a copy of text in an arena, kw_keep one that stays for good.
KW_INLINE kw_str kw_copy_of(kw_arena *a, kw_str s) {
  char *p = (char *)kw_arena_take(a, s.n);
  kw_copy(p, s.p, s.n);
  return (kw_str){p, s.n};
}
KW_INLINE kw_str kw_keep(kw_str s) { return kw_copy_of(&kw_always, s); }

// kw_buf is bytes that grow, in the memory of the call. The zero value is an empty one.
typedef struct { uint8_t *p; uint32_t n, room; } kw_buf;

__attribute__((noinline)) KW_INLINE void kw_buf_grow(kw_buf *b, uint32_t more) {
  if (more > 1u << 29 || b->n > 1u << 29) kw_die(KW("out of memory"));
  uint32_t room = b->room ? b->room * 2 : 64;
  while (room < b->n + more) room *= 2;
  uint8_t *p = (uint8_t *)kw_take(room);
  kw_copy(p, b->p, b->n);
  b->p = p, b->room = room;
}
KW_INLINE void kw_put(kw_buf *b, kw_str s) {
  if (b->room - b->n < s.n) kw_buf_grow(b, s.n);
  kw_copy(b->p + b->n, s.p, s.n);
  b->n += s.n;
}
KW_INLINE void kw_put_byte(kw_buf *b, uint8_t c) {
  if (b->room == b->n) kw_buf_grow(b, 1);
  b->p[b->n++] = c;
}
KW_INLINE kw_str kw_bytes(const kw_buf *b) { return (kw_str){(const char *)b->p, b->n}; }

// ---- Text of several parts --------------------------------------------------------------

KW_INLINE kw_str kw_str_of_str(kw_str s) { return s; }
KW_INLINE kw_str kw_str_of_c(const char *s) {
  uint32_t n = 0;
  while (s[n]) n++;
  return (kw_str){s, n};
}
KW_INLINE kw_str kw_str_of_u64(uint64_t v) {
  char *digits = (char *)kw_take(24);
  uint32_t i = 24;
  do digits[--i] = (char)('0' + v % 10);
  while (v /= 10);
  return (kw_str){digits + i, 24 - i};
}
KW_INLINE kw_str kw_str_of_i64(int64_t v) {
  kw_str s = kw_str_of_u64(v < 0 ? -(uint64_t)v : (uint64_t)v);
  if (v < 0) *(char *)--s.p = '-', s.n++; // 20 digits at most, of 24.
  return s;
}
KW_INLINE kw_str kw_str_of_bool(bool v) { return v ? KW("true") : KW("false"); }

// kw_s returns text, a literal, a number or a bool as a kw_str.
#define kw_s(x) \
  _Generic((x), kw_str: kw_str_of_str, char *: kw_str_of_c, const char *: kw_str_of_c, bool: kw_str_of_bool, \
           int: kw_str_of_i64, long: kw_str_of_i64, long long: kw_str_of_i64, \
           unsigned: kw_str_of_u64, unsigned long: kw_str_of_u64, unsigned long long: kw_str_of_u64)(x)

#define kw_equal(a, b) kw_str_equal(kw_s(a), kw_s(b))
#define kw_starts(s, with) kw_str_starts(kw_s(s), kw_s(with))
#define kw_ends(s, with) kw_str_ends(kw_s(s), kw_s(with))

KW_INLINE kw_str kw_joined(kw_str separator, const kw_str *parts, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t more = parts[i].n + (i ? separator.n : 0);
    if (more > 1u << 29 || n > 1u << 29) kw_die(KW("out of memory"));
    n += more;
  }
  char *p = (char *)kw_take(n), *at = p;
  for (uint32_t i = 0; i < count; i++) {
    if (i) kw_copy(at, separator.p, separator.n), at += separator.n;
    kw_copy(at, parts[i].p, parts[i].n), at += parts[i].n;
  }
  return (kw_str){p, n};
}

// Up to 16 arguments, each as a kw_str with a comma.
#define KW_COUNT(...) KW_COUNT_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
#define KW_COUNT_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, count, ...) count
#define KW_GLUE(a, b) KW_GLUE_(a, b)
#define KW_GLUE_(a, b) a##b
#define KW_EACH_ARG(f, ...) KW_GLUE(KW_ARGS, KW_COUNT(__VA_ARGS__))(f, __VA_ARGS__)
#define KW_ARGS1(f, a) f(a)
#define KW_ARGS2(f, a, ...) f(a), KW_ARGS1(f, __VA_ARGS__)
#define KW_ARGS3(f, a, ...) f(a), KW_ARGS2(f, __VA_ARGS__)
#define KW_ARGS4(f, a, ...) f(a), KW_ARGS3(f, __VA_ARGS__)
#define KW_ARGS5(f, a, ...) f(a), KW_ARGS4(f, __VA_ARGS__)
#define KW_ARGS6(f, a, ...) f(a), KW_ARGS5(f, __VA_ARGS__)
#define KW_ARGS7(f, a, ...) f(a), KW_ARGS6(f, __VA_ARGS__)
#define KW_ARGS8(f, a, ...) f(a), KW_ARGS7(f, __VA_ARGS__)
#define KW_ARGS9(f, a, ...) f(a), KW_ARGS8(f, __VA_ARGS__)
#define KW_ARGS10(f, a, ...) f(a), KW_ARGS9(f, __VA_ARGS__)
#define KW_ARGS11(f, a, ...) f(a), KW_ARGS10(f, __VA_ARGS__)
#define KW_ARGS12(f, a, ...) f(a), KW_ARGS11(f, __VA_ARGS__)
#define KW_ARGS13(f, a, ...) f(a), KW_ARGS12(f, __VA_ARGS__)
#define KW_ARGS14(f, a, ...) f(a), KW_ARGS13(f, __VA_ARGS__)
#define KW_ARGS15(f, a, ...) f(a), KW_ARGS14(f, __VA_ARGS__)
#define KW_ARGS16(f, a, ...) f(a), KW_ARGS15(f, __VA_ARGS__)

// kw_text returns the arguments one after the other, kw_list_text what kw_s takes with a
// separator between each two: up to 16 of them, in the memory of the call.
#define kw_text(...) kw_joined(KW(""), (const kw_str[]){KW_EACH_ARG(kw_s, __VA_ARGS__)}, KW_COUNT(__VA_ARGS__))

// kw_panic ends the call with a text, which the host's error has.
#define kw_panic(...) kw_die(kw_text(__VA_ARGS__))

// kw_log writes a line and its attributes to the host's log: a level, the text, and keys and
// values in turn.
enum { KW_DEBUG = -4, KW_INFO = 0, KW_WARN = 4, KW_ERROR_LEVEL = 8 };
KW_INLINE void kw_log_text(int32_t level, kw_str line) { kw_host_log(level, line.p, line.n); }
#define kw_log(level, ...) \
  kw_log_text(level, kw_joined(KW("\0"), (const kw_str[]){KW_EACH_ARG(kw_s, __VA_ARGS__)}, KW_COUNT(__VA_ARGS__)))

// kw_strs is a list of texts.
typedef struct { kw_str *of; uint32_t n; } kw_strs;

KW_INLINE bool kw_strs_have(kw_strs list, kw_str s) {
  for (uint32_t i = 0; i < list.n; i++)
    if (kw_str_equal(list.of[i], s)) return true;
  return false;
}
#define kw_contains(list, s) kw_strs_have(list, kw_s(s))

// kw_join returns the texts of a list with a separator between each two.
#define kw_join(list, separator) kw_joined(kw_s(separator), (list).of, (list).n)

// kw_strs_add adds a text to a list in an arena.
KW_INLINE void kw_strs_add(kw_arena *a, kw_strs *list, kw_str s) {
  if ((list->n & (list->n - 1)) == 0) { // 0, 1 or another power of two: the room is full.
    uint32_t room = list->n ? list->n * 2 : 1;
    kw_str *more = (kw_str *)kw_arena_take(a, room * (uint32_t)sizeof(kw_str));
    kw_copy(more, list->of, list->n * sizeof(kw_str));
    list->of = more;
  }
  list->of[list->n++] = s;
}

// KW_ANSWER is what a host function returns by the buffer-limit rule, in the memory of the call.
// The call in the brackets has buf and limit as its last arguments.
#define KW_ANSWER(call)                                                                    \
  __extension__({                                                                          \
    uint32_t limit = 512, kw_size;                                                         \
    void *buf = kw_take(limit);                                                            \
    if ((kw_size = (call)) > limit) {                                                      \
      buf = kw_take(limit = kw_size);                                                      \
      if ((call) != kw_size) kw_die(KW("the host answered in another length than before")); \
    }                                                                                      \
    (kw_str){(const char *)buf, kw_size};                                                  \
  })

// ---- Protobuf ---------------------------------------------------------------------------

// kw_field is a field of a message: bytes, or a number.
typedef struct { uint32_t number; uint8_t wire; kw_str bytes; uint64_t value; } kw_field;
enum { KW_VARINT = 0, KW_FIXED64 = 1, KW_BYTES = 2, KW_FIXED32 = 5 };

// kw_varint reads a varint. It returns what follows, 0 if there is none within the bytes.
KW_INLINE const uint8_t *kw_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
  uint64_t v = 0;
  for (uint32_t shift = 0; p < end && shift < 64; shift += 7) {
    uint8_t b = *p++;
    v |= (uint64_t)(b & 127) << shift;
    if (b < 128) {
      *value = v;
      return shift == 63 && b > 1 ? 0 : p;
    }
  }
  return 0;
}

__attribute__((noinline)) KW_INLINE const uint8_t *kw_long_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
  return kw_varint(p, end, value);
}

// kw_next_field reads the next field of a message, and takes it off. It returns false at the end
// and at malformed bytes. It is part of its callers, so that a field stays in registers: fields of
// a struct that are written one by one and read together stall the processor.
__attribute__((always_inline)) KW_INLINE bool kw_next_field(kw_str *message, kw_field *f) {
  const uint8_t *p = (const uint8_t *)message->p, *end = p + message->n;
  uint64_t key, n, value = 0;
  if (p == end) return false;
  if (*p < 128) key = *p++;
  else {
    if (!(p = kw_long_varint(p, end, &value))) return false;
    key = value, value = 0;
  }
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) return false;
  kw_str bytes = {0, 0};
  uint8_t wire = key & 7;
  if (wire == KW_BYTES) {
    if (p < end && *p < 128) n = *p++;
    else {
      uint64_t length;
      if (!(p = kw_long_varint(p, end, &length))) return false;
      n = length;
    }
    if (n > (uint64_t)(end - p)) return false;
    bytes = (kw_str){(const char *)p, (uint32_t)n};
    p += n;
  } else if (wire == KW_VARINT) {
    if (p < end && *p < 128) value = *p++;
    else {
      uint64_t number;
      if (!(p = kw_long_varint(p, end, &number))) return false;
      value = number;
    }
  } else if (wire == KW_FIXED64) {
    if (end - p < 8) return false;
    value = KW_LOAD(uint64_t, p);
    p += 8;
  } else if (wire == KW_FIXED32) {
    if (end - p < 4) return false;
    value = KW_LOAD(uint32_t, p); // Little-endian, as the guest is.
    p += 4;
  } else return false;
  f->number = (uint32_t)(key >> 3), f->wire = wire, f->bytes = bytes, f->value = value;
  message->p = (const char *)p, message->n = (uint32_t)(end - p);
  return true;
}

// What is written: fields by number.
KW_INLINE void kw_put_varint(kw_buf *b, uint64_t v) {
  for (; v > 127; v >>= 7) kw_put_byte(b, (uint8_t)(v | 128));
  kw_put_byte(b, (uint8_t)v);
}
KW_INLINE void kw_put_number(kw_buf *b, uint32_t field, uint64_t v) { kw_put_varint(b, (uint64_t)field << 3), kw_put_varint(b, v); }
KW_INLINE void kw_put_bytes(kw_buf *b, uint32_t field, kw_str s) {
  kw_put_varint(b, (uint64_t)field << 3 | KW_BYTES), kw_put_varint(b, s.n), kw_put(b, s);
}
KW_INLINE void kw_put_message(kw_buf *b, uint32_t field, const kw_buf *m) { kw_put_bytes(b, field, kw_bytes(m)); }
KW_INLINE void kw_put_fixed64(kw_buf *b, uint32_t field, uint64_t v) {
  kw_put_varint(b, (uint64_t)field << 3 | KW_FIXED64), kw_put(b, (kw_str){(const char *)&v, 8});
}
KW_INLINE void kw_put_fixed32(kw_buf *b, uint32_t field, uint32_t v) {
  kw_put_varint(b, (uint64_t)field << 3 | KW_FIXED32), kw_put(b, (kw_str){(const char *)&v, 4});
}
KW_INLINE uint64_t kw_zigzag(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }
KW_INLINE uint64_t kw_double_bits(double v) {
  uint64_t bits;
  kw_copy(&bits, &v, 8);
  return bits;
}
KW_INLINE uint32_t kw_float_bits(float v) {
  uint32_t bits;
  kw_copy(&bits, &v, 4);
  return bits;
}
KW_INLINE void kw_put_entry(kw_buf *b, uint32_t field, kw_str key, kw_str value) {
  kw_buf entry = {0};
  kw_put_bytes(&entry, 1, key), kw_put_bytes(&entry, 2, value), kw_put_message(b, field, &entry);
}

// ---- JSON -------------------------------------------------------------------------------

// A value in JSON is its text. Readers of values that are malformed return nothing.

KW_INLINE const char *kw_json_space(const char *p, const char *end) {
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
  return p;
}

// JSON is scanned 64 bytes at a time with the vectors that abi/SPEC.md has: a reader mostly skips.
// A block has a bit for each byte that is a quotation mark, a backslash, or an opening or a closing
// bracket or brace.
typedef struct { uint64_t quotes, slashes, opens, closes; } kw_json_block;
typedef uint8_t kw_bytes16 __attribute__((vector_size(16)));
#ifdef __wasm__
#define KW_VECTORS __attribute__((target("simd128"), noinline))
#define KW_MASK(v) ((uint64_t)(uint16_t)__builtin_wasm_bitmask_i8x16((signed char __attribute__((vector_size(16))))(v)))
#else
#define KW_VECTORS __attribute__((noinline))
#define KW_MASK(v) kw_mask((kw_bytes16)(v))
KW_INLINE uint64_t kw_mask(kw_bytes16 v) {
  uint64_t mask = 0;
  for (int i = 0; i < 16; i++) mask |= (uint64_t)(v[i] >> 7) << i;
  return mask;
}
#endif
// KW_JSON_BLOCK reads 64 bytes.
#define KW_JSON_BLOCK(block, at)                                           \
  do {                                                                     \
    block = (kw_json_block){0, 0, 0, 0};                                   \
    _Pragma("clang loop unroll(full)") for (uint32_t kw_i = 0; kw_i < 64; kw_i += 16) { \
      const kw_bytes16 bytes = KW_LOAD(kw_bytes16, (at) + kw_i), lower = bytes | 32; \
      block.quotes |= KW_MASK(bytes == '"') << kw_i;                       \
      block.slashes |= KW_MASK(bytes == '\\') << kw_i;                     \
      block.opens |= KW_MASK(lower == '{') << kw_i;                        \
      block.closes |= KW_MASK(lower == '}') << kw_i;                       \
    }                                                                      \
  } while (0)

// kw_json_string_end returns what follows the string that begins at p, 0 if it does not end.
KW_VECTORS KW_INLINE const char *kw_json_string_end(const char *p, const char *end) {
  for (p++;;) {
    while (end - p >= 16) {
      const kw_bytes16 bytes = KW_LOAD(kw_bytes16, p);
      const uint64_t found = KW_MASK((bytes == '"') | (bytes == '\\'));
      if (found) {
        p += __builtin_ctzll(found);
        break;
      }
      p += 16;
    }
    while (p < end && *p != '"' && *p != '\\') p++;
    if (p == end) return 0;
    if (*p++ == '"') return p;
    if (p++ == end) return 0;
  }
}

// kw_json_is_plain reports whether the inside of a string is ASCII without a backslash.
KW_VECTORS KW_INLINE bool kw_json_is_plain(const char *p, uint32_t n) {
  const char *end = p + n;
  for (; end - p >= 16; p += 16) {
    const kw_bytes16 bytes = KW_LOAD(kw_bytes16, p);
    if (KW_MASK((bytes == '\\') | (bytes > 127))) return false;
  }
  for (; p < end; p++)
    if (*p == '\\' || (uint8_t)*p > 127) return false;
  return true;
}

// kw_index has the places of long arrays and objects of a document, as the host gives them with a
// request: n of them, each end << 32 | start, ascending by start. It may lack any, and is not trusted.
typedef struct { kw_str json; const char *places; uint32_t n; } kw_index;
KW_SHARED kw_index kw_indexes[2]; // Of the object and the old object.

// kw_json_indexed returns what follows the object or array that begins at p, 0 if no index has it.
__attribute__((noinline)) KW_INLINE const char *kw_json_indexed(const char *p, const char *end) {
  for (const kw_index *x = kw_indexes; x < kw_indexes + 2; x++) {
    const size_t at = (size_t)p - (size_t)x->json.p;
    if (at >= x->json.n) continue;
    uint32_t low = 0, high = x->n;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (KW_LOAD(uint32_t, x->places + 8 * middle) < at) low = middle + 1;
      else high = middle;
    }
    if (low == x->n || KW_LOAD(uint32_t, x->places + 8 * low) != at) return 0;
    const size_t last = KW_LOAD(uint32_t, x->places + 8 * low + 4) - at - 1;
    return last && last < (size_t)(end - p) && p[last] == *p + 2 ? p + last + 1 : 0;
  }
  return 0;
}

// kw_json_nested_end returns what follows the object or array that begins at p, 0 if it does not
// end.
KW_VECTORS KW_INLINE const char *kw_json_nested_end(const char *p, const char *end) {
  uint32_t depth = 0;
  uint64_t in_string = 0; // All bits are set where the block before ended in a string.
  bool escaped = false;   // The block before ended with a backslash that escapes.
  char last[64];
  for (const char *start = p;; p += 64) {
    kw_json_block b;
    const uint32_t left = (uint32_t)(end - p);
    if (left >= 64) KW_JSON_BLOCK(b, p);
    else {
      __builtin_memset(last, 0, sizeof last);
      kw_copy(last, p, left);
      KW_JSON_BLOCK(b, last);
    }
    if (escaped) b.quotes &= ~1ull, b.slashes &= ~1ull, escaped = false;
    while (b.slashes) { // The byte after a backslash neither ends a string nor escapes.
      const uint64_t slash = b.slashes & -b.slashes, next = slash << 1;
      escaped = next == 0;
      b.quotes &= ~next, b.slashes &= ~(slash | next);
    }
    uint64_t strings = b.quotes; // Becomes the bytes from a quotation mark up to the next.
    for (uint32_t i = 1; i < 64; i *= 2) strings ^= strings << i;
    strings ^= in_string;
    in_string = 0 - (strings >> 63);
    b.opens &= ~strings, b.closes &= ~strings;
    uint32_t opens = (uint32_t)__builtin_popcountll(b.opens), closes = (uint32_t)__builtin_popcountll(b.closes);
    if (depth <= closes) // It may end here.
      for (uint32_t closed = 1; b.closes; closed++, b.closes &= b.closes - 1) {
        const uint64_t close = b.closes & -b.closes;
        if (depth + (uint32_t)__builtin_popcountll(b.opens & (close - 1)) == closed) return p + __builtin_ctzll(close) + 1;
      }
    if (left <= 64) return 0;
    const char *after = p == start ? kw_json_indexed(p, end) : 0;
    if (after) return after;
    depth += opens - closes;
  }
}

// kw_json_skip returns what follows the value that begins at p, 0 if it does not end.
KW_INLINE const char *kw_json_skip(const char *p, const char *end) {
  const char *start = p;
  if (p == end) return 0;
  if (*p == '"') return kw_json_string_end(p, end);
  if (*p == '{' || *p == '[') return kw_json_nested_end(p, end);
  while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ':' && *p != '"' && !KW_SPACE(*p)) p++;
  return p == start ? 0 : p;
}

// kw_members walks the members of an object or the elements of an array. Of an element the key is
// empty.
typedef struct { const char *p, *end; bool object, begun; } kw_members;

KW_INLINE kw_members kw_json_members(kw_str value) {
  const char *end = value.p + value.n, *p = kw_json_space(value.p, end);
  kw_members m = {p, end, p < end && *p == '{', false};
  if (p < end && (*p == '{' || *p == '[')) m.p++;
  else m.p = m.end = 0;
  return m;
}

// kw_json_next returns the next member: its key as it is written, without the quotation marks.
KW_INLINE bool kw_json_next(kw_members *m, kw_str *key, kw_str *value) {
  if (!m->p) return false;
  const char *p = kw_json_space(m->p, m->end), *end = m->end;
  m->p = 0;
  if (p == end || *p == '}' || *p == ']') return false;
  if (m->begun) {
    if (*p != ',') return false;
    p = kw_json_space(p + 1, end);
  }
  m->begun = true;
  *key = (kw_str){"", 0};
  if (m->object) {
    if (p == end || *p != '"') return false;
    const char *after = kw_json_string_end(p, end);
    if (!after) return false;
    *key = (kw_str){p + 1, (uint32_t)(after - p - 2)};
    p = kw_json_space(after, end);
    if (p == end || *p != ':') return false;
    p = kw_json_space(p + 1, end);
  }
  const char *after = kw_json_skip(p, end);
  if (!after) return false;
  *value = (kw_str){p, (uint32_t)(after - p)};
  m->p = after;
  return true;
}

KW_INLINE int32_t kw_hex4(const char *p) {
  int32_t v = 0;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (d < 0) return -1;
    v = v << 4 | d;
  }
  return v;
}

// kw_rune_length returns how many bytes the character of UTF-8 at p has, 0 if there is none.
KW_INLINE uint32_t kw_rune_length(const char *p, const char *end) {
  const uint8_t *b = (const uint8_t *)p;
  if (b[0] < 0x80) return 1;
  const uint32_t n = b[0] < 0xc2 ? 0 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : b[0] < 0xf5 ? 4 : 0;
  if (n == 0 || (uint32_t)(end - p) < n) return 0;
  for (uint32_t i = 1; i < n; i++)
    if ((b[i] & 0xc0) != 0x80) return 0;
  // No longer than it must be, no half of a pair, and no more than U+10FFFF.
  if ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] > 0x9f) || (b[0] == 0xf0 && b[1] < 0x90) || (b[0] == 0xf4 && b[1] > 0x8f)) return 0;
  return n;
}

// kw_json_unescape returns what stands between quotation marks, as text: in the memory of the
// call if it has escapes, or bytes that are not UTF-8. U+FFFD stands for each of these.
KW_INLINE kw_str kw_json_unescape(kw_str raw) {
  uint32_t i;
  if (kw_json_is_plain(raw.p, raw.n)) return raw;
  kw_buf b = {(uint8_t *)kw_take(raw.n), 0, raw.n};
  for (i = 0; i < raw.n; i++) {
    if (raw.p[i] != '\\' || i + 1 == raw.n) {
      uint32_t n = kw_rune_length(raw.p + i, raw.p + raw.n);
      if (n) kw_put(&b, (kw_str){raw.p + i, n}), i += n - 1;
      else kw_put(&b, KW("\xef\xbf\xbd"));
      continue;
    }
    char c = raw.p[++i];
    int32_t rune;
    switch (c) {
    case 'n': kw_put_byte(&b, '\n'); break;
    case 't': kw_put_byte(&b, '\t'); break;
    case 'r': kw_put_byte(&b, '\r'); break;
    case 'b': kw_put_byte(&b, '\b'); break;
    case 'f': kw_put_byte(&b, '\f'); break;
    case 'u':
      rune = raw.n - i > 4 ? kw_hex4(raw.p + i + 1) : -1;
      if (rune < 0) break;
      i += 4;
      if (rune >= 0xd800 && rune < 0xe000) {
        int32_t low = rune < 0xdc00 && raw.n - i > 6 && raw.p[i + 1] == '\\' && raw.p[i + 2] == 'u' ? kw_hex4(raw.p + i + 3) : -1;
        if (low >= 0xdc00 && low < 0xe000) rune = 0x10000 + ((rune - 0xd800) << 10) + (low - 0xdc00), i += 6;
        else rune = 0xfffd;
      }
      if (rune < 0x80) kw_put_byte(&b, (uint8_t)rune);
      else {
        if (rune < 0x800) kw_put_byte(&b, (uint8_t)(0xc0 | rune >> 6));
        else {
          if (rune < 0x10000) kw_put_byte(&b, (uint8_t)(0xe0 | rune >> 12));
          else kw_put_byte(&b, (uint8_t)(0xf0 | rune >> 18)), kw_put_byte(&b, (uint8_t)(0x80 | (rune >> 12 & 63)));
          kw_put_byte(&b, (uint8_t)(0x80 | (rune >> 6 & 63)));
        }
        kw_put_byte(&b, (uint8_t)(0x80 | (rune & 63)));
      }
      break;
    default: kw_put_byte(&b, (uint8_t)c);
    }
  }
  return kw_bytes(&b);
}

// kw_json_kind names the kind of a value as messages do.
KW_INLINE kw_str kw_json_kind(kw_str v) {
  switch (v.n ? *v.p : 0) {
  case '{': return KW("object");
  case '[': return KW("array");
  case '"': return KW("string");
  case 't': case 'f': return KW("bool");
  case 'n': return KW("null");
  case 0: return KW("nothing");
  }
  return KW("number");
}

KW_INLINE bool kw_json_is(kw_str v, char first) { return v.n && *v.p == first; }

// kw_json_text returns a string, empty for any other value.
KW_INLINE kw_str kw_json_text(kw_str v) {
  if (!kw_json_is(v, '"') || v.n < 2) return (kw_str){"", 0};
  return kw_json_unescape((kw_str){v.p + 1, v.n - 2});
}

// kw_json_member returns the value of the last member of an object with a name, nothing if there
// is none.
KW_INLINE kw_str kw_json_member(kw_str object, kw_str name) {
  kw_str found = {0, 0}, key, value;
  if (!object.n) return found;
  const bool odd = !kw_json_is_plain(name.p, name.n); // A byte that is no UTF-8 is shorter than U+FFFD.
  for (kw_members m = kw_json_members(object); m.object && kw_json_next(&m, &key, &value);)
    if (kw_str_equal(key, name) || ((key.n > name.n || odd) && !kw_json_is_plain(key.p, key.n) && kw_str_equal(kw_json_unescape(key), name))) found = value;
  return found;
}

// kw_decimal reads a whole number.
KW_INLINE bool kw_decimal(kw_str s, int64_t *v) {
  bool negative = s.n && *s.p == '-';
  uint64_t u = 0, most = (uint64_t)INT64_MAX + negative;
  uint32_t i = negative;
  if (i == s.n) return false;
  for (; i < s.n; i++) {
    uint64_t d = (uint8_t)s.p[i] - (uint64_t)'0';
    if (d > 9 || u > (most - d) / 10) return false;
    u = u * 10 + d;
  }
  *v = (int64_t)(negative ? -u : u);
  return true;
}

// kw_digits is the number 0.d[0]d[1]… times ten to the power of point. cut is set if there were more
// digits than are kept, and one of them is not 0: no halfway point of a double has more.
enum { KW_DIGITS = 800 };
typedef struct { uint8_t d[KW_DIGITS + 20]; int32_t n, point; bool cut; } kw_digits;

KW_INLINE void kw_digits_trim(kw_digits *v) {
  while (v->n > 0 && v->d[v->n - 1] == 0) v->n--;
}

// kw_digits_divide divides by a power of two, to the power of 50 at most.
KW_INLINE void kw_digits_divide(kw_digits *v, uint32_t by) {
  const uint64_t mask = ((uint64_t)1 << by) - 1;
  uint64_t rest = 0;
  int32_t read = 0, written = 0;
  if (!v->n) return;
  for (; rest >> by == 0; read++) rest = rest * 10 + (read < v->n ? v->d[read] : 0);
  v->point -= read - 1;
  for (; read < v->n || rest; read++) {
    uint8_t digit = (uint8_t)(rest >> by);
    if (written < KW_DIGITS) v->d[written++] = digit; // It was read before.
    else v->cut |= digit != 0;
    rest = (rest & mask) * 10 + (read < v->n ? v->d[read] : 0);
  }
  v->n = written;
  kw_digits_trim(v);
}

// kw_digits_multiply multiplies by a power of two, to the power of 52 at most.
KW_INLINE void kw_digits_multiply(kw_digits *v, uint32_t by) {
  uint64_t carry = 0;
  int32_t more = 0, i;
  for (i = v->n - 1; i >= 0; i--) {
    uint64_t sum = ((uint64_t)v->d[i] << by) + carry;
    carry = sum / 10;
    v->d[i] = (uint8_t)(sum % 10);
  }
  for (uint64_t c = carry; c; c /= 10) more++; // 16 at most.
  for (i = v->n - 1; i >= 0; i--) v->d[i + more] = v->d[i];
  for (i = more - 1; i >= 0; i--, carry /= 10) v->d[i] = (uint8_t)(carry % 10);
  v->point += more;
  for (v->n += more; v->n > KW_DIGITS; v->n--) v->cut |= v->d[v->n - 1] != 0;
  kw_digits_trim(v);
}

// kw_digits_whole returns the nearest whole number, of two the even one.
KW_INLINE uint64_t kw_digits_whole(const kw_digits *v) {
  uint64_t whole = 0;
  for (int32_t i = 0; i < v->point; i++) whole = whole * 10 + (i < v->n ? v->d[i] : 0);
  if (v->point < 0 || v->point >= v->n) return whole;
  uint8_t next = v->d[v->point];
  if (next == 5 && v->point + 1 == v->n && !v->cut) return whole + (whole & 1);
  return whole + (next >= 5);
}

// kw_nearest returns the double that is nearest to the digits in s, with the point after so many.
KW_INLINE double kw_nearest(kw_str s, int32_t after) {
  kw_digits v;
  v.n = 0, v.point = after, v.cut = false;
  for (uint32_t i = 0; i < s.n; i++) {
    uint8_t c = (uint8_t)(s.p[i] - '0');
    if (c > 9 || (v.n == 0 && c == 0)) continue;
    if (v.n < KW_DIGITS) v.d[v.n++] = c;
    else v.cut |= c != 0;
  }
  kw_digits_trim(&v);
  if (v.point > 310) return __builtin_inf();
  if (v.n == 0 || v.point < -330) return 0;
  // To a number of at least 1 and less than 2, by powers of two.
  int32_t exponent = 0, by;
  for (; v.point > 1; exponent += by) kw_digits_divide(&v, (uint32_t)(by = v.point > 17 ? 50 : 3));
  for (; v.point < 1; exponent -= by) kw_digits_multiply(&v, (uint32_t)(by = v.point < -16 ? 50 : 3));
  for (; v.d[0] >= 2; exponent++) kw_digits_divide(&v, 1);
  for (; exponent < -1022; exponent += by) kw_digits_divide(&v, (uint32_t)(by = -1022 - exponent < 50 ? -1022 - exponent : 50)); // A subnormal number.
  if (exponent > 1023) return __builtin_inf();
  kw_digits_multiply(&v, 52);
  uint64_t mantissa = kw_digits_whole(&v);
  if (mantissa >> 53) mantissa >>= 1, exponent++;
  if (exponent > 1023) return __builtin_inf();
  if (mantissa >> 52) mantissa += (uint64_t)(exponent + 1022) << 52; // The highest bit adds one.
  double value;
  kw_copy(&value, &mantissa, 8);
  return value;
}

// kw_real reads a number with a fraction and an exponent, and returns the nearest double. What
// follows a number does not matter.
KW_INLINE double kw_real(kw_str s) {
  static const double exact[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  uint64_t mantissa = 0; // The first 19 digits from the first that is not 0.
  int32_t count = 0, power = 0, more = 0;
  uint32_t i = s.n && (*s.p == '-' || *s.p == '+');
  bool fraction = false;
  for (; i < s.n; i++) {
    if (s.p[i] == '.') {
      fraction = true;
      continue;
    }
    if (s.p[i] < '0' || s.p[i] > '9') break;
    power -= fraction;
    if (count == 0 && s.p[i] == '0') continue;
    if (++count <= 19) mantissa = mantissa * 10 + (uint64_t)(s.p[i] - '0');
  }
  const uint32_t digits = i;
  if (i < s.n && (s.p[i] | 32) == 'e') {
    bool negative = ++i < s.n && s.p[i] == '-';
    i += i < s.n && (s.p[i] == '-' || s.p[i] == '+');
    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
      if (more < 100000000) more = more * 10 + (s.p[i] - '0');
    power += negative ? -more : more;
  }
  double v = 0;
  if (count <= 19 && mantissa <= (uint64_t)1 << 53 && power >= -22 && power <= 22) v = power < 0 ? (double)mantissa / exact[-power] : (double)mantissa * exact[power];
  else if (count) v = kw_nearest((kw_str){s.p, digits}, count + power);
  return s.n && *s.p == '-' ? -v : v;
}

// kw_json_number_end returns what follows the number that begins at p, 0 if there is none.
KW_INLINE const char *kw_json_number_end(const char *p, const char *end) {
  if (p < end && *p == '-') p++;
  if (p == end || *p < '0' || *p > '9') return 0;
  if (*p == '0') p++;
  else while (p < end && *p >= '0' && *p <= '9') p++;
  if (p < end && *p == '.') {
    if (++p == end || *p < '0' || *p > '9') return 0;
    while (p < end && *p >= '0' && *p <= '9') p++;
  }
  if (p < end && (*p | 32) == 'e') {
    p++;
    if (p < end && (*p == '+' || *p == '-')) p++;
    if (p == end || *p < '0' || *p > '9') return 0;
    while (p < end && *p >= '0' && *p <= '9') p++;
  }
  return p;
}

// kw_json_real returns a number, also one in a string: "NaN", "Infinity", "-Infinity". Anything else
// is 0.
KW_INLINE double kw_json_real(kw_str v) {
  if (kw_json_is(v, '"')) {
    v = kw_json_text(v);
    if (kw_equal(v, "NaN")) return __builtin_nan("");
    if (kw_equal(v, "Infinity")) return __builtin_inf();
    if (kw_equal(v, "-Infinity")) return -__builtin_inf();
  }
  return v.n && kw_json_number_end(v.p, v.p + v.n) == v.p + v.n ? kw_real(v) : 0;
}

// kw_json_valid_string returns what follows the string that begins at p, 0 if it does not end or has
// a control character, or an escape that there is not.
KW_INLINE const char *kw_json_valid_string(const char *p, const char *end) {
  const char *after = kw_json_string_end(p, end);
  if (!after) return 0;
  for (p++; p < after - 1; p++) {
    if ((uint8_t)*p < ' ') return 0;
    if (*p != '\\') continue;
    p++;
    if (*p == 'u' ? after - 1 - p < 5 || kw_hex4(p + 1) < 0
                  : *p != '"' && *p != '\\' && *p != '/' && *p != 'b' && *p != 'f' && *p != 'n' && *p != 'r' && *p != 't')
      return 0;
  }
  return after;
}

// kw_json_valid reports whether text is one value of JSON, nested 10,000 deep at most.
KW_INLINE bool kw_json_valid(kw_str text) {
  enum { DEEPEST = 10000 };
  uint8_t objects[DEEPEST / 8];
  uint32_t depth = 0;
  const char *p = kw_json_space(text.p, text.p + text.n), *end = text.p + text.n;
  for (bool value = true;;) {
    if (value) { // A value, or the end of an empty object or array.
      if (p == end) return false;
      char c = *p;
      if (c == '{' || c == '[') {
        if (depth == DEEPEST) return false;
        objects[depth / 8] = (uint8_t)((objects[depth / 8] & ~(1 << depth % 8)) | (c == '{') << depth % 8);
        depth++;
        p = kw_json_space(p + 1, end);
        if (p < end && *p == (c == '{' ? '}' : ']')) p++, depth--;
        else if (c == '[') continue;
        else goto key;
      } else if (c == '"') {
        p = kw_json_valid_string(p, end);
        if (!p) return false;
      } else if (c == 't' || c == 'f' || c == 'n') {
        kw_str word = c == 't' ? KW("true") : c == 'f' ? KW("false") : KW("null");
        if ((uint32_t)(end - p) < word.n || !kw_same(p, word.p, word.n)) return false;
        p += word.n;
      } else {
        p = kw_json_number_end(p, end);
        if (!p) return false;
      }
    }
    // After a value.
    p = kw_json_space(p, end);
    if (depth == 0) return p == end;
    if (p == end) return false;
    bool object = objects[(depth - 1) / 8] >> (depth - 1) % 8 & 1;
    if (*p == (object ? '}' : ']')) {
      p++, depth--, value = false;
      continue;
    }
    if (*p != ',') return false;
    p = kw_json_space(p + 1, end);
    value = true;
    if (!object) continue;
  key:
    if (p == end || *p != '"') return false;
    p = kw_json_valid_string(p, end);
    if (!p) return false;
    p = kw_json_space(p, end);
    if (p == end || *p != ':') return false;
    p = kw_json_space(p + 1, end);
    value = true;
  }
}

// kw_put_json adds text as a string of JSON.
KW_INLINE void kw_put_json(kw_buf *b, kw_str s) {
  kw_put_byte(b, '"');
  for (uint32_t i = 0; i < s.n; i++) {
    uint8_t c = (uint8_t)s.p[i];
    if (c == '"' || c == '\\') kw_put_byte(b, '\\'), kw_put_byte(b, c);
    else if (c >= ' ') kw_put_byte(b, c);
    else if (c == '\n') kw_put(b, KW("\\n"));
    else if (c == '\t') kw_put(b, KW("\\t"));
    else if (c == '\r') kw_put(b, KW("\\r"));
    else kw_put(b, KW("\\u00")), kw_put_byte(b, "0123456789abcdef"[c >> 4]), kw_put_byte(b, "0123456789abcdef"[c & 15]);
  }
  kw_put_byte(b, '"');
}

// ---- Views ------------------------------------------------------------------------------

// An object that the host knows by ref is read by parts: a field of its metadata, spec or status
// crosses when a guest first reads it, and is kept until the object has another version. Fields
// that were read of one object are fetched together of the next one.
// Taints and tolerations of a part are decoded once, until it has other bytes.
typedef struct { kw_str bytes, key, value, effect, op; } kw_terms;
typedef struct { uint8_t *p; uint32_t n, room; uint64_t have; kw_terms *terms; uint32_t terms_n, terms_room, terms_of; } kw_part;
typedef struct { kw_str key, value; uint32_t key_room, value_room; uint8_t field; bool found; } kw_fetched;
enum { KW_PARTS = 4, KW_FETCHED = 4 };
typedef enum { KW_POD, KW_NODE, KW_BY_PARTS, KW_WHOLE, KW_JSON_OBJECT, KW_REF_KINDS } kw_ref_kind;
typedef struct {
  uint64_t ref;
  kw_ref_kind kind;
  uint32_t fetched; // How many entries of maps were.
  kw_part parts[KW_PARTS];
  kw_fetched entries[KW_FETCHED];
} kw_object;

KW_SHARED kw_object **kw_objects;
KW_SHARED uint32_t kw_objects_room;
KW_SHARED uint64_t kw_wanted[KW_REF_KINDS][KW_PARTS];

// Blocks that views of this call may still look at, which the next call gives back.
typedef struct kw_garbage { struct kw_garbage *next; void *block; uint32_t n; } kw_garbage;
KW_SHARED kw_garbage *kw_old_blocks;

KW_INLINE void kw_discard(void *block, uint32_t n) {
  if (!block) return;
  kw_garbage *g = (kw_garbage *)kw_take(sizeof *g);
  *g = (kw_garbage){kw_old_blocks, block, n};
  kw_old_blocks = g;
}

// kw_request_bytes is the message of the request of an admission plugin.
KW_SHARED kw_str kw_request_bytes;

// kw_begin begins a call: exported functions of this header call it first.
KW_INLINE void kw_begin(void) {
  for (kw_garbage *g = kw_old_blocks; g; g = g->next) kw_free(g->block, g->n);
  kw_old_blocks = 0;
  kw_arena_reset(&kw_call);
  kw_request_bytes = kw_indexes[0].json = kw_indexes[1].json = (kw_str){0, 0};
}

// kw_view is a message that is read when its fields are: bytes of protobuf, JSON, or the object or
// a part of it that came by ref. The zero value is an empty message.
typedef struct { kw_str bytes; kw_object *object; uint8_t part; bool json; } kw_view;

KW_INLINE kw_view kw_proto(kw_str bytes) { return (kw_view){bytes, 0, 0, false}; }
KW_INLINE kw_view kw_json(kw_str text) { return (kw_view){text, 0, 0, true}; }

// kw_by_ref is the object with a ref, an empty message for the ref 0.
KW_INLINE kw_view kw_by_ref(uint64_t ref, kw_ref_kind kind) {
  uint32_t slot = (uint32_t)ref;
  if (!ref) return (kw_view){0};
  if (slot >= kw_objects_room) {
    if (slot >= 1u << 26) kw_die(KW("the host uses more slots than there can be objects"));
    uint32_t room = kw_objects_room ? kw_objects_room : 256;
    while (room <= slot) room *= 2;
    kw_object **more = (kw_object **)kw_alloc(room * (uint32_t)sizeof *more);
    kw_copy(more, kw_objects, kw_objects_room * sizeof *more);
    for (uint32_t i = kw_objects_room; i < room; i++) more[i] = 0;
    kw_free(kw_objects, kw_objects_room * (uint32_t)sizeof *more);
    kw_objects = more, kw_objects_room = room;
  }
  kw_object *o = kw_objects[slot];
  if (!o) {
    o = kw_objects[slot] = (kw_object *)kw_alloc(sizeof *o);
    *o = (kw_object){0};
  }
  if (o->ref != ref || o->kind != kind) {
    o->ref = ref, o->kind = kind, o->fetched = 0;
    for (int i = 0; i < KW_PARTS; i++) o->parts[i].n = 0, o->parts[i].have = 0, o->parts[i].terms_of = 0;
  }
  return (kw_view){{0, 0}, o, 0, kind == KW_JSON_OBJECT};
}

// kw_fetch adds what a host function answers to the bytes of a part.
#define KW_FETCH(part, call)                                                                       \
  do {                                                                                             \
    uint32_t limit = (part)->room - (part)->n, size;                                               \
    void *buf = (part)->p + (part)->n;                                                             \
    if ((size = (call)) > limit) {                                                                 \
      if (size > 1u << 29) kw_die(KW("out of memory"));                                            \
      uint32_t room = 1u << kw_class((part)->n + size + 32);                                       \
      uint8_t *p = (uint8_t *)kw_alloc(room);                                                      \
      kw_copy(p, (part)->p, (part)->n);                                                            \
      kw_discard((part)->p, (part)->room);                                                         \
      (part)->p = p, (part)->room = room;                                                          \
      limit = room - (part)->n, buf = p + (part)->n;                                               \
      if ((call) != size) kw_die(KW("the host answered with an object of another length than before")); \
    }                                                                                              \
    (part)->n += size, (part)->terms_of = 0;                                                       \
  } while (0)

enum { KW_METADATA = 1, KW_LABELS = 11, KW_ANNOTATIONS = 12 };

// kw_fetch_part fetches field number of a part, together with those that other objects of the kind
// were read of. The name, the UID and the resource version distinguish objects, and are fetched
// only where they are read: see 4.11 of SPEC.md.
__attribute__((noinline)) KW_INLINE void kw_fetch_part(kw_object *o, uint32_t number, uint8_t at) {
  kw_part *part = &o->parts[at];
  const uint64_t identity = at == KW_METADATA ? 1 << 1 | 1 << 5 | 1 << 6 : 0, one = 1ull << number;
  uint64_t fields = one;
  if (!(one & identity)) fields = kw_wanted[o->kind][at] |= one;
  if (fields != one && part->have) fields = one; // What others have was looked at before.
  fields &= ~part->have;
  KW_FETCH(part, kw_host_object_part(o->ref, at, fields, buf, limit));
  part->have |= fields;
}

__attribute__((noinline)) KW_INLINE void kw_fetch_object(kw_object *o) {
  KW_FETCH(&o->parts[0], kw_host_object(o->ref, buf, limit));
  o->parts[0].have = ~0ull;
}

// kw_read returns the bytes of a message in which field number is, if it has it.
KW_INLINE kw_str kw_read(kw_view v, uint32_t number) {
  kw_object *o = v.object;
  if (!o) return v.bytes;
  kw_part *part = &o->parts[v.part];
  if (v.part == 0) {
    if (!part->have) kw_fetch_object(o);
  } else if (number > 63) {
    return (kw_str){0, 0};
  } else if (!(part->have >> number & 1)) kw_fetch_part(o, number, v.part);
  return (kw_str){(const char *)part->p, part->n};
}

// A text that a function returns which is no part of its callers: a struct would go through memory.
#ifdef __wasm__
typedef uint64_t kw_packed;
KW_INLINE kw_packed kw_pack(kw_str s) { return (uint64_t)s.n << 32 | (uint32_t)s.p; }
KW_INLINE kw_str kw_unpack(kw_packed s) { return (kw_str){(const char *)(uint32_t)s, (uint32_t)(s >> 32)}; }
#else
typedef kw_str kw_packed;
KW_INLINE kw_packed kw_pack(kw_str s) { return s; }
KW_INLINE kw_str kw_unpack(kw_packed s) { return s; }
#endif

// kw_find_… find the last field of a number. Only fields of the wire type of its kind count: the
// type of text, messages and packed numbers is bytes.
__attribute__((noinline)) KW_INLINE kw_packed kw_find_bytes(const char *p, uint32_t n, uint32_t number) {
  kw_str rest = {p, n}, found = {0, 0};
  kw_field f;
  while (kw_next_field(&rest, &f))
    if (f.number == number) found = f.wire == KW_BYTES ? f.bytes : (kw_str){0, 0};
  return kw_pack(found);
}
__attribute__((noinline)) KW_INLINE uint64_t kw_find_number(const char *p, uint32_t n, uint32_t number) {
  kw_str rest = {p, n};
  kw_field f;
  uint64_t found = 0;
  while (kw_next_field(&rest, &f))
    if (f.number == number) found = f.wire != KW_BYTES ? f.value : 0;
  return found;
}
__attribute__((noinline)) KW_INLINE bool kw_find_any(const char *p, uint32_t n, uint32_t number) {
  kw_str rest = {p, n};
  kw_field f;
  while (kw_next_field(&rest, &f))
    if (f.number == number) return true;
  return false;
}

// The accessors of generated code take a view, the number and the name of a field.

// kw_get_raw returns the bytes of a field, or its JSON.
KW_INLINE kw_str kw_get_raw(kw_view v, uint32_t number, kw_str name) {
  kw_str of = kw_read(v, number);
  return v.json ? kw_json_member(of, name) : kw_unpack(kw_find_bytes(of.p, of.n, number));
}
KW_INLINE bool kw_get_has(kw_view v, uint32_t number, kw_str name) {
  if (!v.json && v.object && v.part == 0 && v.object->kind < KW_WHOLE && number < KW_PARTS) return true; // A part may be empty.
  kw_str of = kw_read(v, number);
  if (!v.json) return kw_find_any(of.p, of.n, number);
  kw_str value = kw_json_member(of, name);
  return value.n && !kw_json_is(value, 'n');
}
KW_INLINE kw_str kw_get_string(kw_view v, uint32_t number, kw_str name) {
  kw_str raw = kw_get_raw(v, number, name);
  return v.json ? kw_json_text(raw) : raw;
}
// kw_get_base64 returns bytes, which JSON has in base64.
KW_INLINE kw_str kw_get_base64(kw_view v, uint32_t number, kw_str name) {
  kw_str raw = kw_get_string(v, number, name);
  if (!v.json) return raw;
  kw_buf b = {0};
  uint32_t bits = 0, have = 0;
  for (uint32_t i = 0; i < raw.n; i++) {
    char c = raw.p[i];
    uint32_t d = c >= 'A' && c <= 'Z' ? (uint32_t)(c - 'A') : c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a') + 26
               : c >= '0' && c <= '9' ? (uint32_t)(c - '0') + 52 : c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : 64;
    if (d == 64) break;
    bits = bits << 6 | d;
    if ((have += 6) >= 8) kw_put_byte(&b, (uint8_t)(bits >> (have -= 8)));
  }
  return kw_bytes(&b);
}
// kw_json_integer returns a whole number, also one in a string, without a fraction and an exponent;
// 0 for anything else.
KW_INLINE uint64_t kw_json_integer(kw_str raw) {
  if (kw_json_is(raw, '"')) raw = kw_json_text(raw); // As protobuf writes large ones in JSON.
  bool negative = raw.n && *raw.p == '-';
  uint64_t n = 0;
  uint32_t i = negative;
  if (i == raw.n || (raw.p[i] == '0' && raw.n - i > 1)) return 0;
  for (; i < raw.n; i++) {
    uint64_t d = (uint8_t)raw.p[i] - (uint64_t)'0';
    if (d > 9 || n > UINT64_MAX / 10 || n * 10 > UINT64_MAX - d) return 0;
    n = n * 10 + d;
  }
  if (!negative) return n;
  return n <= (uint64_t)1 << 63 ? -n : 0;
}
KW_INLINE uint64_t kw_get_number(kw_view v, uint32_t number, kw_str name) {
  kw_str of = kw_read(v, number);
  return v.json ? kw_json_integer(kw_json_member(of, name)) : kw_find_number(of.p, of.n, number);
}
KW_INLINE int64_t kw_unzigzag(uint64_t v) { return (int64_t)(v >> 1 ^ -(v & 1)); }
KW_INLINE int64_t kw_get_zigzag(kw_view v, uint32_t number, kw_str name) {
  uint64_t n = kw_get_number(v, number, name);
  return v.json ? (int64_t)n : kw_unzigzag(n);
}
KW_INLINE bool kw_get_bool(kw_view v, uint32_t number, kw_str name) {
  return v.json ? kw_json_is(kw_get_raw(v, number, name), 't') : kw_get_number(v, number, name) != 0;
}
KW_INLINE double kw_get_double(kw_view v, uint32_t number, kw_str name) {
  if (v.json) return kw_json_real(kw_get_raw(v, number, name));
  uint64_t bits = kw_get_number(v, number, name);
  double d;
  kw_copy(&d, &bits, 8);
  return d;
}
KW_INLINE float kw_get_float(kw_view v, uint32_t number, kw_str name) {
  if (v.json) return (float)kw_json_real(kw_get_raw(v, number, name));
  uint32_t bits = (uint32_t)kw_get_number(v, number, name);
  float d;
  kw_copy(&d, &bits, 4);
  return d;
}
KW_INLINE kw_view kw_get_message(kw_view v, uint32_t number, kw_str name) {
  if (v.object && v.part == 0 && v.object->kind < KW_WHOLE && number < KW_PARTS) return (kw_view){{0, 0}, v.object, (uint8_t)number, false};
  return (kw_view){kw_get_raw(v, number, name), 0, 0, v.json};
}
// kw_get_inlined returns a message whose fields JSON has among those of its parent.
KW_INLINE kw_view kw_get_inlined(kw_view v, uint32_t number) {
  return v.json ? v : kw_get_message(v, number, (kw_str){0, 0});
}

// kw_list is the elements of a field, or the entries of a map, that were not taken yet.
typedef struct { kw_str rest; kw_members members; uint32_t number; bool json; kw_str packed; kw_part *part; } kw_list;

KW_INLINE kw_list kw_get_list(kw_view v, uint32_t number, kw_str name) {
  kw_list l = {0};
  l.number = number;
  if ((l.json = v.json)) l.members = kw_json_members(kw_get_raw(v, number, name));
  else {
    l.rest = kw_read(v, number);
    if (v.object) l.part = &v.object->parts[v.part];
  }
  return l;
}
KW_INLINE bool kw_next_raw(kw_list *l, kw_str *key, kw_str *value) {
  kw_field f;
  *key = (kw_str){0, 0};
  if (l->json) return kw_json_next(&l->members, key, value);
  while (kw_next_field(&l->rest, &f))
    if (f.number == l->number && f.wire == KW_BYTES) {
      *value = f.bytes;
      return true;
    }
  return false;
}
KW_INLINE bool kw_next_message(kw_list *l, kw_view *v) {
  kw_str key, value;
  if (!kw_next_raw(l, &key, &value)) return false;
  *v = (kw_view){value, 0, 0, l->json};
  return true;
}
KW_INLINE bool kw_next_string(kw_list *l, kw_str *s) {
  kw_str key, value;
  if (!kw_next_raw(l, &key, &value)) return false;
  *s = l->json ? kw_json_text(value) : value;
  return true;
}
// kw_next_number takes an element of a list of numbers, packed or not, whose wire type is wire.
KW_INLINE bool kw_next_number(kw_list *l, uint8_t wire, uint64_t *v) {
  kw_str key, value;
  if (l->json) {
    if (!kw_next_raw(l, &key, &value)) return false;
    *v = kw_json_is(value, 't') ? 1 : kw_json_integer(value);
    return true;
  }
  for (;;) {
    if (l->packed.n) {
      const uint8_t *p = (const uint8_t *)l->packed.p, *end = p + l->packed.n, *after = 0;
      *v = 0;
      if (wire == KW_VARINT) after = kw_varint(p, end, v);
      else if (wire == KW_FIXED64 && end - p >= 8) kw_copy(v, p, 8), after = p + 8;
      else if (wire == KW_FIXED32 && end - p >= 4) kw_copy(v, p, 4), after = p + 4;
      if (!after) {
        l->packed.n = 0;
        continue;
      }
      l->packed = (kw_str){(const char *)after, (uint32_t)(end - after)};
      return true;
    }
    kw_field f;
    do
      if (!kw_next_field(&l->rest, &f)) return false;
    while (f.number != l->number);
    if (f.wire == KW_BYTES) l->packed = f.bytes;
    else {
      *v = f.value;
      return true;
    }
  }
}
// kw_next_entry takes an entry of a map. value is bytes of protobuf or JSON.
KW_INLINE bool kw_next_entry(kw_list *l, kw_str *key, kw_str *value) {
  kw_field f;
  if (!kw_next_raw(l, key, value)) return false;
  if (l->json) {
    *key = kw_json_unescape(*key);
    return true;
  }
  kw_str entry = *value;
  *key = *value = (kw_str){"", 0};
  while (kw_next_field(&entry, &f))
    if (f.wire == KW_BYTES && f.number == 1) *key = f.bytes;
    else if (f.wire == KW_BYTES && f.number == 2) *value = f.bytes;
  return true;
}
KW_INLINE uint32_t kw_count(kw_list l) {
  kw_str key, value;
  uint32_t n = 0;
  while (kw_next_raw(&l, &key, &value)) n++;
  return n;
}

// KW_EACH runs the statement that follows for each message of a list.
#define KW_EACH(T, x, list) \
  for (kw_list x##_list = (list), *x##_more = &x##_list; x##_more; x##_more = 0) \
    for (T x; kw_next_message(&x##_list, &x.v);)
#define KW_EACH_STRING(x, list) \
  for (kw_list x##_list = (list), *x##_more = &x##_list; x##_more; x##_more = 0) \
    for (kw_str x; kw_next_string(&x##_list, &x);)
// KW_EACH_NUMBER is for numbers without a sign or a fraction, KW_EACH_REF for objects.
#define KW_EACH_NUMBER(x, list) \
  for (kw_list x##_list = (list), *x##_more = &x##_list; x##_more; x##_more = 0) \
    for (uint64_t x; kw_next_number(&x##_list, KW_VARINT, &x);)

#define KW_EACH_REF(x, list) \
  for (kw_list x##_list = (list), *x##_more = &x##_list; x##_more; x##_more = 0) \
    for (uint64_t x; kw_next_number(&x##_list, KW_FIXED64, &x);)

// kw_map is a map with text as its keys.
typedef struct { kw_view v; uint32_t number; kw_str name; } kw_map;

KW_INLINE kw_list kw_entries(kw_map m) { return kw_get_list(m.v, m.number, m.name); }

// KW_EACH_ENTRY runs the statement that follows for each entry of a map of texts.
#define KW_EACH_ENTRY(key, value, map)                                                         \
  for (kw_list key##_list = kw_entries(map), *key##_more = &key##_list; key##_more; key##_more = 0) \
    for (kw_str key, value; kw_next_entry(&key##_list, &key, &value) && (value = key##_list.json ? kw_json_text(value) : value, true);)

// kw_fetch_entry finds one label or annotation of an object by ref.
__attribute__((noinline)) KW_INLINE kw_fetched *kw_fetch_entry(kw_object *o, uint8_t field, kw_str key) {
  kw_fetched *e = &o->entries[o->fetched++];
  e->field = field;
  if (e->key_room < key.n) {
    kw_free((void *)(uintptr_t)e->key.p, e->key_room);
    e->key_room = 1u << kw_class(key.n);
    e->key.p = (char *)kw_alloc(e->key_room);
  }
  kw_copy((void *)(uintptr_t)e->key.p, key.p, key.n);
  e->key.n = key.n;
  uint32_t n = kw_host_object_entry(o->ref, field, key.p, key.n, (void *)(uintptr_t)e->value.p, e->value_room);
  if ((e->found = n != (uint32_t)-1) && n > e->value_room) {
    if (n > 1u << 29) kw_die(KW("out of memory"));
    kw_discard((void *)(uintptr_t)e->value.p, e->value_room);
    e->value_room = 1u << kw_class(n);
    e->value.p = (char *)kw_alloc(e->value_room);
    if (kw_host_object_entry(o->ref, field, key.p, key.n, (void *)(uintptr_t)e->value.p, e->value_room) != n)
      kw_die(KW("the host answered with an entry of another length than before"));
  }
  e->value.n = e->found ? n : 0;
  return e;
}

// kw_lookup_raw finds an entry of a map: the last one with the key.
KW_INLINE bool kw_lookup_raw(kw_map m, kw_str key, kw_str *value) {
  kw_object *o = m.v.object;
  *value = (kw_str){"", 0};
  if (o && m.v.part == KW_METADATA && (m.number == KW_LABELS || m.number == KW_ANNOTATIONS) && !(o->parts[1].have >> m.number & 1) &&
      !(kw_wanted[o->kind][1] >> m.number & 1)) {
    for (uint32_t i = 0; i < o->fetched; i++) {
      kw_fetched *e = &o->entries[i];
      if (e->field != m.number || !kw_str_equal(e->key, key)) continue;
      if (e->found && e->value.n) *value = e->value;
      return e->found;
    }
    if (o->fetched < KW_FETCHED) {
      kw_fetched *e = kw_fetch_entry(o, (uint8_t)m.number, key);
      if (e->found && e->value.n) *value = e->value;
      return e->found;
    } // A guest that reads more of them reads all.
  }
  kw_str k, v;
  bool found = false;
  for (kw_list l = kw_entries(m); kw_next_entry(&l, &k, &v);)
    if (kw_str_equal(k, key)) *value = v, found = true;
  return found;
}
KW_INLINE bool kw_lookup_text(kw_map m, kw_str key, kw_str *value) {
  bool found = kw_lookup_raw(m, key, value);
  if (m.v.json && found) *value = kw_json_text(*value);
  return found;
}
// kw_lookup finds a text in a map, and reports whether it is there; kw_value returns it, empty if
// it is not; kw_has reports whether there is a key.
#define kw_lookup(map, key, value) kw_lookup_text(map, kw_s(key), value)
KW_INLINE kw_str kw_value_of(kw_map m, kw_str key) {
  kw_str value;
  kw_lookup_text(m, key, &value);
  return value;
}
#define kw_value(map, key) kw_value_of(map, kw_s(key))
KW_INLINE bool kw_has_key(kw_map m, kw_str key) {
  kw_str value;
  return kw_lookup_raw(m, key, &value);
}
#define kw_has(map, key) kw_has_key(map, kw_s(key))
// kw_lookup_message finds a message in a map of them. view is that of a message: &queue.v.
KW_INLINE bool kw_lookup_view(kw_map m, kw_str key, kw_view *view) {
  kw_str raw;
  bool found = kw_lookup_raw(m, key, &raw);
  *view = m.v.json ? kw_json(raw) : kw_proto(raw);
  return found;
}
#define kw_lookup_message(map, key, view) kw_lookup_view(map, kw_s(key), view)

// What generated headers are made of. A message T is a struct with a view; its accessors are
// T_field, and T_has_field where a field may be absent.
#define KWV_MESSAGE(T)                                                                   \
  typedef struct T { kw_view v; } T;                                                     \
  KW_INLINE T T##_of_proto(kw_str bytes) { return (T){kw_proto(bytes)}; }                \
  KW_INLINE T T##_of_json(kw_str text) { return (T){kw_json(text)}; }
// The macros do not call one another, since a field may have the name of a macro, such as stdin.
#define KWV_HAS(T, f, n) KW_INLINE bool T##_has_##f(T m) { return kw_get_has(m.v, n, KW(#f)); }
#define KWV_STRING(T, f, n) KW_INLINE kw_str T##_##f(T m) { return kw_get_string(m.v, n, KW(#f)); }
#define KWV_BYTES(T, f, n) KW_INLINE kw_str T##_##f(T m) { return kw_get_base64(m.v, n, KW(#f)); }
#define KWV_RAW(T, f, n) KW_INLINE kw_str T##_##f(T m) { return kw_get_raw(m.v, n, KW(#f)); }
#define KWV_BOOL(T, f, n) KW_INLINE bool T##_##f(T m) { return kw_get_bool(m.v, n, KW(#f)); }
#define KWV_I32(T, f, n) KW_INLINE int32_t T##_##f(T m) { return (int32_t)kw_get_number(m.v, n, KW(#f)); }
#define KWV_I64(T, f, n) KW_INLINE int64_t T##_##f(T m) { return (int64_t)kw_get_number(m.v, n, KW(#f)); }
#define KWV_U32(T, f, n) KW_INLINE uint32_t T##_##f(T m) { return (uint32_t)kw_get_number(m.v, n, KW(#f)); }
#define KWV_U64(T, f, n) KW_INLINE uint64_t T##_##f(T m) { return kw_get_number(m.v, n, KW(#f)); }
#define KWV_S32(T, f, n) KW_INLINE int32_t T##_##f(T m) { return (int32_t)kw_get_zigzag(m.v, n, KW(#f)); }
#define KWV_S64(T, f, n) KW_INLINE int64_t T##_##f(T m) { return kw_get_zigzag(m.v, n, KW(#f)); }
#define KWV_FLOAT(T, f, n) KW_INLINE float T##_##f(T m) { return kw_get_float(m.v, n, KW(#f)); }
#define KWV_DOUBLE(T, f, n) KW_INLINE double T##_##f(T m) { return kw_get_double(m.v, n, KW(#f)); }
#define KWV_ONE(T, f, n, U) \
  KW_INLINE U T##_##f(T m) { return (U){kw_get_message(m.v, n, KW(#f))}; }
#define KWV_INLINED(T, f, n, U) KW_INLINE U T##_##f(T m) { return (U){kw_get_inlined(m.v, n)}; }
#define KWV_LIST(T, f, n) KW_INLINE kw_list T##_##f(T m) { return kw_get_list(m.v, n, KW(#f)); }
#define KWV_MAP(T, f, n) KW_INLINE kw_map T##_##f(T m) { return (kw_map){m.v, n, KW(#f)}; }
#define KWV_REF(T, f, n, U, kind) \
  KW_INLINE U T##_##f(T m) { return (U){kw_by_ref(kw_get_number(m.v, n, KW(#f)), kind)}; }
// KWV_NAMED_… are for a field whose name in JSON differs from that of its accessor.
#define KWV_NAMED_HAS(T, f, n, name) KW_INLINE bool T##_has_##f(T m) { return kw_get_has(m.v, n, KW(name)); }
#define KWV_NAMED_STRING(T, f, n, name) KW_INLINE kw_str T##_##f(T m) { return kw_get_string(m.v, n, KW(name)); }
#define KWV_NAMED_BYTES(T, f, n, name) KW_INLINE kw_str T##_##f(T m) { return kw_get_base64(m.v, n, KW(name)); }
#define KWV_NAMED_BOOL(T, f, n, name) KW_INLINE bool T##_##f(T m) { return kw_get_bool(m.v, n, KW(name)); }
#define KWV_NAMED_I32(T, f, n, name) KW_INLINE int32_t T##_##f(T m) { return (int32_t)kw_get_number(m.v, n, KW(name)); }
#define KWV_NAMED_I64(T, f, n, name) KW_INLINE int64_t T##_##f(T m) { return (int64_t)kw_get_number(m.v, n, KW(name)); }
#define KWV_NAMED_U32(T, f, n, name) KW_INLINE uint32_t T##_##f(T m) { return (uint32_t)kw_get_number(m.v, n, KW(name)); }
#define KWV_NAMED_U64(T, f, n, name) KW_INLINE uint64_t T##_##f(T m) { return kw_get_number(m.v, n, KW(name)); }
#define KWV_NAMED_S32(T, f, n, name) KW_INLINE int32_t T##_##f(T m) { return (int32_t)kw_get_zigzag(m.v, n, KW(name)); }
#define KWV_NAMED_S64(T, f, n, name) KW_INLINE int64_t T##_##f(T m) { return kw_get_zigzag(m.v, n, KW(name)); }
#define KWV_NAMED_REF(T, f, n, name, U, kind) \
  KW_INLINE U T##_##f(T m) { return (U){kw_by_ref(kw_get_number(m.v, n, KW(name)), kind)}; }
#define KWV_NAMED_FLOAT(T, f, n, name) KW_INLINE float T##_##f(T m) { return kw_get_float(m.v, n, KW(name)); }
#define KWV_NAMED_DOUBLE(T, f, n, name) KW_INLINE double T##_##f(T m) { return kw_get_double(m.v, n, KW(name)); }
#define KWV_NAMED_ONE(T, f, n, name, U) KW_INLINE U T##_##f(T m) { return (U){kw_get_message(m.v, n, KW(name))}; }
#define KWV_NAMED_LIST(T, f, n, name) KW_INLINE kw_list T##_##f(T m) { return kw_get_list(m.v, n, KW(name)); }
#define KWV_NAMED_MAP(T, f, n, name) KW_INLINE kw_map T##_##f(T m) { return (kw_map){m.v, n, KW(name)}; }
#define KWV_NAMED_VALUE(T, f, n, name, type) KW_INLINE type T##_##f(T m) { return type##_get(m.v, n, KW(name)); }
#define KWV_VALUE(T, f, n, type) KW_INLINE type T##_##f(T m) { return type##_get(m.v, n, KW(#f)); }

// ---- Values -----------------------------------------------------------------------------

// kw_quantity is a quantity of a resource: units and billionths of one, which are not below 0.
// As in Kubernetes, a fraction below a billionth is rounded up, away from 0. What is beyond 64
// bits is the largest or the smallest that there is.
typedef struct { int64_t units; int32_t nanos; } kw_quantity;

// kw_quantity_parse reads a quantity such as "100m", "1.5Gi" or "1e3". *problem says what is wrong
// if it returns false; problem may be 0.
KW_INLINE bool kw_quantity_parse(kw_str s, kw_quantity *q, kw_str *problem) {
  const kw_str format = KW("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
  kw_str why = format;
  *q = (kw_quantity){0, 0};
  bool negative = s.n && *s.p == '-';
  if (s.n && (*s.p == '-' || *s.p == '+')) s.p++, s.n--;
  uint32_t i = 0, point = 0;
  while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') i++;
  kw_str whole = {s.p, i}, fraction = {s.p, 0};
  if (i < s.n && s.p[i] == '.') {
    point = ++i;
    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') i++;
    fraction = (kw_str){s.p + point, i - point};
  }
  kw_str suffix = {s.p + i, s.n - i};
  int64_t exponent = 0;
  uint32_t binary = 0;
  bool known = true;
  static const char decimals[] = "num kMGTPE", binaries[] = "KMGTPE";
  if (suffix.n == 1) {
    known = false;
    for (int d = 0; d < 10; d++)
      if (decimals[d] == *suffix.p && d != 3) exponent = 3 * d - 9, known = true;
  } else if (suffix.n == 2 && suffix.p[1] == 'i') {
    known = false;
    for (uint32_t d = 0; d < 6; d++)
      if (binaries[d] == *suffix.p) binary = 10 * (d + 1), known = true;
  } else if (suffix.n) {
    kw_str digits = {suffix.p + 1, suffix.n - 1};
    if (digits.n && *digits.p == '+') digits.p++, digits.n--;
    known = (*suffix.p | 32) == 'e' && digits.n && digits.n < 11 && kw_decimal(digits, &exponent) && !(digits.p[-1] == '+' && *digits.p == '-') &&
            exponent >= INT32_MIN && exponent <= INT32_MAX;
  }
  if (!known) {
    // Letters, a sign and digits are a suffix that there is not; other text is no quantity.
    uint32_t j = 0;
    while (j < suffix.n && kw_str_find(KW("eEinumkKMGTP"), suffix.p[j])) j++;
    if (j < suffix.n && (suffix.p[j] == '+' || suffix.p[j] == '-')) j++;
    while (j < suffix.n && suffix.p[j] >= '0' && suffix.p[j] <= '9') j++;
    if (j == suffix.n) why = KW("unable to parse quantity's suffix");
    goto wrong;
  }
  if (s.n == 0) goto wrong;
  if (whole.n + fraction.n == 0) {
    why = KW("unable to parse numeric part of quantity");
    goto wrong;
  }
  while (whole.n && *whole.p == '0') whole.p++, whole.n--;
  if (exponent > 1000000 || whole.n + fraction.n > 1000000) {
    why = KW("unable to parse numeric part of quantity");
    goto wrong;
  }
  // The digits, with the point moved by the exponent: those before it are units.
  uint64_t units = 0;
  uint32_t nanos = 0;
  bool large = false, rest = false;
  const int64_t before = (int64_t)whole.n + exponent, digits = (int64_t)whole.n + fraction.n;
#define KW_DIGIT(d) ((d) < 0 || (d) >= digits ? 0u : (d) < (int64_t)whole.n ? (uint32_t)(whole.p[d] - '0') : (uint32_t)(fraction.p[(d) - whole.n] - '0'))
  for (int64_t d = 0; d < before && !large; d++) {
    if (d >= digits && units == 0) break; // 0, whatever the exponent is.
    uint64_t digit = KW_DIGIT(d);
    if (units > (UINT64_MAX / 2 - digit) / 10) large = true;
    else units = units * 10 + digit;
  }
  for (int64_t d = before; d < before + 9; d++) nanos = nanos * 10 + KW_DIGIT(d);
  for (int64_t d = before + 9 > 0 ? before + 9 : 0; d < digits; d++) rest = rest || KW_DIGIT(d);
  if (binary && !large) {
    // (units + nanos) * 2^binary: in steps of 2^10, which keep the nanos below 2^41.
    uint64_t fractions = nanos;
    for (uint32_t b = 0; b < binary && !large; b += 10) {
      fractions <<= 10;
      if (units > UINT64_MAX / 2 >> 10) large = true;
      units = (units << 10) + fractions / 1000000000u;
      fractions %= 1000000000u;
    }
    nanos = (uint32_t)fractions;
  }
  if (rest && ++nanos == 1000000000) nanos = 0, units++;
  if (large || units > (uint64_t)INT64_MAX) units = INT64_MAX, nanos = 0;
  if (negative) {
    q->units = nanos ? -(int64_t)units - 1 : -(int64_t)units;
    q->nanos = nanos ? (int32_t)(1000000000 - nanos) : 0;
  } else q->units = (int64_t)units, q->nanos = (int32_t)nanos;
  return true;
wrong:
  if (problem) *problem = why;
  return false;
}

// kw_quantity_value is a quantity in units, kw_quantity_milli in thousandths of one; both are
// rounded away from 0.
KW_INLINE int64_t kw_quantity_value(kw_quantity q) { return q.units + (q.nanos > 0 && q.units >= 0 && q.units < INT64_MAX); }
KW_INLINE int64_t kw_quantity_milli(kw_quantity q) {
  // A product that is checked by a builtin calls a function of a library.
  if (q.units > INT64_MAX / 1000 || q.units < INT64_MIN / 1000) return q.units < 0 ? INT64_MIN : INT64_MAX;
  int64_t v = q.units * 1000, more = (q.nanos + (q.units < 0 ? 0 : 999999)) / 1000000;
  return __builtin_add_overflow(v, more, &v) ? INT64_MAX : v;
}
KW_INLINE int kw_quantity_compare(kw_quantity a, kw_quantity b) {
  return a.units != b.units ? (a.units < b.units ? -1 : 1) : a.nanos < b.nanos ? -1 : a.nanos > b.nanos;
}
KW_INLINE kw_quantity kw_quantity_add(kw_quantity a, kw_quantity b) {
  kw_quantity sum = {0, a.nanos + b.nanos};
  int64_t carry = sum.nanos >= 1000000000;
  sum.nanos -= carry ? 1000000000 : 0;
  if (__builtin_add_overflow(a.units, b.units, &sum.units) || __builtin_add_overflow(sum.units, carry, &sum.units))
    sum = (kw_quantity){a.units < 0 ? INT64_MIN : INT64_MAX, 0};
  return sum;
}
// Text of a field: protobuf has a message with the text, JSON a string or a number.
KW_INLINE kw_quantity kw_quantity_of(kw_str raw, bool json) {
  kw_quantity q;
  if (!json) raw = kw_get_raw(kw_proto(raw), 1, (kw_str){0, 0});
  else if (kw_json_is(raw, '"')) raw = kw_json_text(raw);
  kw_quantity_parse(raw, &q, 0);
  return q;
}
KW_INLINE kw_quantity kw_quantity_get(kw_view v, uint32_t number, kw_str name) { return kw_quantity_of(kw_get_raw(v, number, name), v.json); }
// kw_lookup_quantity finds a quantity in a map of them, such as the requests of a container.
KW_INLINE bool kw_lookup_quantity_of(kw_map m, kw_str key, kw_quantity *q) {
  kw_str raw;
  bool found = kw_lookup_raw(m, key, &raw);
  *q = found ? kw_quantity_of(raw, m.v.json) : (kw_quantity){0, 0};
  return found;
}
#define kw_lookup_quantity(map, key, quantity) kw_lookup_quantity_of(map, kw_s(key), quantity)

// kw_time is a time in seconds since 1970 and nanoseconds, or a span of time.
typedef struct { int64_t seconds; int32_t nanos; } kw_time;

// kw_days returns the days from 1970 to a date.
KW_INLINE int64_t kw_days(int64_t y, int64_t m, int64_t d) {
  y -= m <= 2;
  int64_t era = (y >= 0 ? y : y - 399) / 400, year = y - era * 400, day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
  return era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468;
}
// kw_time_parse reads a time of RFC 3339.
KW_INLINE bool kw_time_parse(kw_str s, kw_time *t) {
  static const uint8_t at[] = {0, 5, 8, 11, 14, 17, 19};
  int64_t part[6];
  *t = (kw_time){0, 0};
  if (s.n < 20 || s.p[4] != '-' || s.p[7] != '-' || (s.p[10] | 32) != 't' || s.p[13] != ':' || s.p[16] != ':') return false;
  for (int i = 0; i < 6; i++)
    if (!kw_decimal((kw_str){s.p + at[i], i ? 2 : 4}, &part[i]) || part[i] < 0) return false;
  uint32_t i = 19;
  int64_t nanos = 0, scale = 100000000, zone = 0, minutes;
  if (s.p[i] == '.')
    for (i++; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++, scale /= 10) nanos += (s.p[i] - '0') * scale;
  if (i < s.n && (s.p[i] == '+' || s.p[i] == '-')) {
    if (s.n - i != 6 || !kw_decimal((kw_str){s.p + i + 1, 2}, &zone) || !kw_decimal((kw_str){s.p + i + 4, 2}, &minutes)) return false;
    zone = (zone * 60 + minutes) * (s.p[i] == '-' ? -60 : 60);
  } else if (s.n - i != 1 || (s.p[i] | 32) != 'z') return false;
  *t = (kw_time){kw_days(part[0], part[1], part[2]) * 86400 + part[3] * 3600 + part[4] * 60 + part[5] - zone, (int32_t)nanos};
  return true;
}
KW_INLINE kw_time kw_time_of(kw_str raw, bool json) {
  kw_time t;
  if (json) kw_time_parse(kw_json_text(raw), &t);
  else t = (kw_time){(int64_t)kw_get_number(kw_proto(raw), 1, (kw_str){0, 0}), (int32_t)kw_get_number(kw_proto(raw), 2, (kw_str){0, 0})};
  return t;
}
KW_INLINE kw_time kw_time_get(kw_view v, uint32_t number, kw_str name) { return kw_time_of(kw_get_raw(v, number, name), v.json); }

// kw_duration is a metav1.Duration, in nanoseconds.
typedef int64_t kw_duration;
KW_INLINE kw_duration kw_duration_get(kw_view v, uint32_t number, kw_str name) {
  kw_str s = kw_get_raw(v, number, name);
  if (!v.json) return (int64_t)kw_get_number(kw_proto(s), 1, (kw_str){0, 0});
  s = kw_json_text(s);
  bool negative = s.n && *s.p == '-';
  double total = 0;
  for (uint32_t i = s.n && (*s.p == '-' || *s.p == '+'); i < s.n;) {
    uint32_t start = i;
    while (i < s.n && ((s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '.')) i++;
    double n = kw_real((kw_str){s.p + start, i - start});
    char u = i < s.n ? s.p[i] : 0, w = i + 1 < s.n ? s.p[i + 1] : 0;
    if (i == start || !u) break;
    total += n * (u == 'h' ? 3.6e12 : u == 'm' && w != 's' ? 6e10 : u == 's' ? 1e9 : u == 'm' ? 1e6 : u == 'n' ? 1 : 1e3);
    while (i < s.n && !(s.p[i] >= '0' && s.p[i] <= '9') && s.p[i] != '.') i++;
  }
  if (total > 9.2e18) total = 9.2e18;
  return (int64_t)(negative ? -total : total);
}

// kw_intstr is a number or a text.
typedef struct { bool is_string; int32_t number; kw_str string; } kw_intstr;
KW_INLINE kw_intstr kw_intstr_of(kw_str raw, bool json) {
  if (json) return kw_json_is(raw, '"') ? (kw_intstr){true, 0, kw_json_text(raw)} : (kw_intstr){false, (int32_t)kw_json_integer(raw), {0, 0}};
  kw_view m = kw_proto(raw);
  return (kw_intstr){kw_get_number(m, 1, (kw_str){0, 0}) != 0, (int32_t)kw_get_number(m, 2, (kw_str){0, 0}), kw_get_raw(m, 3, (kw_str){0, 0})};
}
KW_INLINE kw_intstr kw_intstr_get(kw_view v, uint32_t number, kw_str name) { return kw_intstr_of(kw_get_raw(v, number, name), v.json); }
// kw_lookup_intstr finds a number or a text in a map of them.
KW_INLINE bool kw_lookup_intstr_of(kw_map m, kw_str key, kw_intstr *i) {
  kw_str raw;
  bool found = kw_lookup_raw(m, key, &raw);
  *i = found ? kw_intstr_of(raw, m.v.json) : (kw_intstr){0};
  return found;
}
#define kw_lookup_intstr(map, key, intstr) kw_lookup_intstr_of(map, kw_s(key), intstr)

// kw_raw is a field that any object may be in: its JSON, empty if it is of protobuf.
typedef kw_str kw_raw;
KW_INLINE kw_raw kw_raw_get(kw_view v, uint32_t number, kw_str name) {
  kw_str raw = kw_get_raw(v, number, name);
  if (v.json) return kw_json_is(raw, 'n') ? (kw_str){"", 0} : raw; // null is no value.
  return kw_get_raw(kw_proto(raw), 1, (kw_str){0, 0});
}

// kw_items is a message that is a list of texts in JSON.
typedef kw_list kw_items;
KW_INLINE kw_items kw_items_get(kw_view v, uint32_t number, kw_str name) {
  kw_str raw = kw_get_raw(v, number, name);
  kw_list l = {0};
  if ((l.json = v.json)) l.members = kw_json_members(raw);
  else l.rest = raw, l.number = 1;
  return l;
}

// ---- Kubernetes -------------------------------------------------------------------------

#include "kubewasm/meta/meta.h"
#include "kubewasm/core/core.h"

// kw_ref returns the ref of an object that came by ref, 0 of any other.
#define kw_ref(message) ((message).v.object && (message).v.part == 0 ? (message).v.object->ref : 0)

// Labels are selected by requirements: key, operator and values, as in a selector.
typedef struct { kw_str key, op; kw_list values; kw_str one; } kw_requirement;

KW_INLINE bool kw_requirement_has(const kw_requirement *r, kw_str value) {
  kw_str want;
  if (r->one.p) return kw_str_equal(r->one, value);
  for (kw_list l = r->values; kw_next_string(&l, &want);)
    if (kw_str_equal(want, value)) return true;
  return false;
}

KW_INLINE bool kw_label_name(kw_str s) {
  if (s.n == 0 || s.n > 63) return false;
  for (uint32_t i = 0; i < s.n; i++) {
    char c = s.p[i];
    bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && (i == 0 || i == s.n - 1 || (c != '-' && c != '_' && c != '.'))) return false;
  }
  return true;
}

KW_INLINE bool kw_label_key(kw_str key) {
  kw_str rest = key, prefix, part;
  kw_cut(&rest, '/', &prefix);
  if (!rest.p) return kw_label_name(key);
  if (prefix.n > 253) return false;
  for (kw_str parts = prefix; kw_cut(&parts, '.', &part);) {
    if (part.n == 0 || part.p[0] == '-' || part.p[part.n - 1] == '-') return false;
    for (uint32_t i = 0; i < part.n; i++)
      if (!(part.p[i] == '-' || (part.p[i] >= '0' && part.p[i] <= '9') || (part.p[i] >= 'a' && part.p[i] <= 'z'))) return false;
  }
  return kw_label_name(rest);
}

// kw_requirement_valid reports whether a requirement makes sense, as Kubernetes does. Only the
// selectors of nodes have the operators Gt and Lt.
KW_INLINE bool kw_requirement_valid(const kw_requirement *r, bool of_node) {
  uint32_t n = r->one.p ? 1 : kw_count(r->values);
  kw_str value;
  if (kw_equal(r->op, "In") || kw_equal(r->op, "NotIn")) {
    if (!n) return false;
  } else if (kw_equal(r->op, "Exists") || kw_equal(r->op, "DoesNotExist")) {
    if (n) return false;
  } else if (of_node && (kw_equal(r->op, "Gt") || kw_equal(r->op, "Lt"))) {
    int64_t number;
    kw_list l = r->values;
    if (n != 1 || !kw_next_string(&l, &value) || !kw_decimal(value, &number)) return false;
  } else return false;
  if (!kw_label_key(r->key)) return false;
  for (kw_list l = r->values; kw_next_string(&l, &value);)
    if (value.n && !kw_label_name(value)) return false;
  return !r->one.p || r->one.n == 0 || kw_label_name(r->one);
}

// kw_requirement_met reports whether labels meet a requirement, which is valid.
KW_INLINE bool kw_requirement_met(const kw_requirement *r, kw_map labels) {
  kw_str value, want;
  bool found = kw_lookup(labels, r->key, &value);
  int64_t have, number;
  if (kw_equal(r->op, "In")) return found && kw_requirement_has(r, value);
  if (kw_equal(r->op, "NotIn")) return !found || !kw_requirement_has(r, value);
  if (kw_equal(r->op, "Exists")) return found;
  if (kw_equal(r->op, "DoesNotExist")) return !found;
  kw_list l = r->values;
  if (!found || !kw_decimal(value, &have) || !kw_next_string(&l, &want) || !kw_decimal(want, &number)) return false;
  return kw_equal(r->op, "Gt") ? have > number : have < number;
}

// kw_selects reports whether a selector selects labels. An empty selector selects all, and one that
// is not there none; so does one that makes no sense, and *valid is false then. valid may be 0.
KW_INLINE bool kw_selects(meta_LabelSelector s, kw_map labels, bool *valid) {
  bool all = s.v.bytes.p != 0 || s.v.object, right = true;
  KW_EACH_ENTRY(key, want, meta_LabelSelector_matchLabels(s)) {
    kw_requirement r = {key, KW("In"), {0}, want};
    right = right && kw_requirement_valid(&r, false);
    all = all && right && kw_requirement_met(&r, labels);
  }
  KW_EACH(meta_LabelSelectorRequirement, e, meta_LabelSelector_matchExpressions(s)) {
    kw_requirement r = {meta_LabelSelectorRequirement_key(e), meta_LabelSelectorRequirement_operator(e), meta_LabelSelectorRequirement_values(e), {0, 0}};
    right = right && kw_requirement_valid(&r, false);
    all = all && right && kw_requirement_met(&r, labels);
  }
  if (valid) *valid = right;
  return all && right;
}

// kw_selector_text writes a selector as "app=web,tier in (a,b)", empty if it selects all. It returns
// false for one that selects none.
KW_INLINE bool kw_selector_text(meta_LabelSelector s, kw_str *text) {
  kw_strs parts = {0};
  bool valid = s.v.bytes.p != 0 || s.v.object;
  KW_EACH_ENTRY(key, want, meta_LabelSelector_matchLabels(s)) {
    kw_requirement r = {key, KW("In"), {0}, want};
    valid = valid && kw_requirement_valid(&r, false);
    kw_strs_add(&kw_call, &parts, kw_text(key, "=", want));
  }
  KW_EACH(meta_LabelSelectorRequirement, e, meta_LabelSelector_matchExpressions(s)) {
    kw_requirement r = {meta_LabelSelectorRequirement_key(e), meta_LabelSelectorRequirement_operator(e), meta_LabelSelectorRequirement_values(e), {0, 0}};
    valid = valid && kw_requirement_valid(&r, false);
    kw_strs values = {0};
    KW_EACH_STRING(value, r.values) kw_strs_add(&kw_call, &values, value);
    if (kw_equal(r.op, "Exists")) kw_strs_add(&kw_call, &parts, r.key);
    else if (kw_equal(r.op, "DoesNotExist")) kw_strs_add(&kw_call, &parts, kw_text("!", r.key));
    else kw_strs_add(&kw_call, &parts, kw_text(r.key, kw_equal(r.op, "In") ? " in (" : " notin (", kw_join(values, ","), ")"));
  }
  *text = kw_join(parts, ",");
  return valid;
}

// kw_term_matches reports whether a Node meets all requirements of a term; a term without any, or
// with one that makes no sense, matches none.
KW_INLINE bool kw_term_matches(core_NodeSelectorTerm term, core_Node node) {
  uint32_t requirements = 0;
  bool met = true;
  KW_EACH(core_NodeSelectorRequirement, e, core_NodeSelectorTerm_matchExpressions(term)) {
    kw_requirement r = {core_NodeSelectorRequirement_key(e), core_NodeSelectorRequirement_operator(e), core_NodeSelectorRequirement_values(e), {0, 0}};
    requirements++;
    if (!kw_requirement_valid(&r, true)) return false;
    met = met && kw_requirement_met(&r, meta_ObjectMeta_labels(core_Node_metadata(node)));
  }
  KW_EACH(core_NodeSelectorRequirement, f, core_NodeSelectorTerm_matchFields(term)) {
    kw_str op = core_NodeSelectorRequirement_operator(f), value = {0, 0};
    kw_list values = core_NodeSelectorRequirement_values(f);
    requirements++;
    if ((!kw_equal(op, "In") && !kw_equal(op, "NotIn")) || kw_count(values) != 1) return false;
    kw_next_string(&values, &value);
    kw_str name = meta_ObjectMeta_name(core_Node_metadata(node));
    kw_str have = kw_equal(core_NodeSelectorRequirement_key(f), "metadata.name") ? name : KW("");
    if (name.n) met = met && kw_equal(have, value) == kw_equal(op, "In");
  }
  return met && requirements;
}

// kw_pod_request returns the amount of a resource that a Pod requests of a node, as the scheduler
// computes it for a Pod that it has to place: that of the containers or, if it is more, that of an init
// container with the sidecars before it; in place of that the request of the Pod as a whole; and its
// overhead.
KW_INLINE kw_quantity kw_container_request(core_Container c, kw_str name) {
  kw_quantity q;
  kw_lookup_quantity(core_ResourceRequirements_requests(core_Container_resources(c)), name, &q);
  return q;
}
KW_INLINE bool kw_of_pod(kw_str name) { return kw_equal(name, "cpu") || kw_equal(name, "memory") || kw_starts(name, "hugepages-"); }
KW_INLINE kw_quantity kw_pod_request_of(core_Pod pod, kw_str name) {
  core_PodSpec spec = core_Pod_spec(pod);
  kw_quantity sum = {0, 0}, sidecars = {0, 0}, peak = {0, 0}, of;
  KW_EACH(core_Container, c, core_PodSpec_containers(spec)) sum = kw_quantity_add(sum, kw_container_request(c, name));
  KW_EACH(core_Container, c, core_PodSpec_initContainers(spec)) {
    of = kw_container_request(c, name);
    kw_quantity together = kw_quantity_add(sidecars, of);
    if (kw_quantity_compare(together, peak) > 0) peak = together;
    if (kw_equal(core_Container_restartPolicy(c), "Always")) sum = kw_quantity_add(sum, of), sidecars = together;
  }
  if (kw_quantity_compare(peak, sum) > 0) sum = peak;
  if (kw_of_pod(name) && kw_lookup_quantity(core_ResourceRequirements_requests(core_PodSpec_resources(spec)), name, &of)) sum = of;
  kw_lookup_quantity(core_PodSpec_overhead(spec), name, &of);
  return kw_quantity_add(sum, of);
}
#define kw_pod_request(pod, name) kw_pod_request_of(pod, kw_s(name))

// kw_qos_class returns the QoS class of a Pod: that of its status, which the API server sets, or else
// the one that Kubernetes computes of its resources: Guaranteed, Burstable or BestEffort.
KW_INLINE kw_str kw_common_class(kw_str a, kw_str b) { return !a.n || kw_equal(a, b) ? b : KW("Burstable"); }
KW_INLINE kw_str kw_class_of(core_ResourceRequirements r) {
  const kw_str names[] = {KW("cpu"), KW("memory")};
  kw_str class = {0, 0};
  for (int i = 0; i < 2; i++) {
    kw_quantity request, limit;
    kw_lookup_quantity(core_ResourceRequirements_requests(r), names[i], &request);
    kw_lookup_quantity(core_ResourceRequirements_limits(r), names[i], &limit);
    kw_str of = kw_quantity_compare(request, limit) ? KW("Burstable") : request.units || request.nanos ? KW("Guaranteed") : KW("BestEffort");
    class = kw_common_class(class, of);
  }
  return class;
}
KW_INLINE kw_str kw_qos_class(core_Pod pod) {
  kw_str class = core_PodStatus_qosClass(core_Pod_status(pod));
  if (class.n) return class;
  core_PodSpec spec = core_Pod_spec(pod);
  core_ResourceRequirements r = core_PodSpec_resources(spec);
  KW_EACH_ENTRY(request, requested, core_ResourceRequirements_requests(r)) if ((void)requested, kw_of_pod(request)) return kw_class_of(r);
  KW_EACH_ENTRY(limit, limited, core_ResourceRequirements_limits(r)) if ((void)limited, kw_of_pod(limit)) return kw_class_of(r);
  KW_EACH(core_Container, c, core_PodSpec_initContainers(spec)) class = kw_common_class(class, kw_class_of(core_Container_resources(c)));
  KW_EACH(core_Container, c, core_PodSpec_containers(spec)) class = kw_common_class(class, kw_class_of(core_Container_resources(c)));
  return class.n ? class : KW("BestEffort");
}

// kw_pod_matches_node reports whether a Node has what the Pod requires in its nodeSelector and its
// node affinity.
KW_INLINE bool kw_pod_matches_node(core_Pod pod, core_Node node) {
  core_PodSpec spec = core_Pod_spec(pod);
  kw_map labels = meta_ObjectMeta_labels(core_Node_metadata(node));
  KW_EACH_ENTRY(key, want, core_PodSpec_nodeSelector(spec)) {
    kw_str have;
    if (!kw_lookup(labels, key, &have) || !kw_equal(have, want)) return false;
  }
  core_Affinity affinity = core_PodSpec_affinity(spec);
  core_NodeAffinity of_node = core_Affinity_nodeAffinity(affinity);
  if (!core_NodeAffinity_has_requiredDuringSchedulingIgnoredDuringExecution(of_node)) return true;
  core_NodeSelector selector = core_NodeAffinity_requiredDuringSchedulingIgnoredDuringExecution(of_node);
  KW_EACH(core_NodeSelectorTerm, term, core_NodeSelector_nodeSelectorTerms(selector))
    if (kw_term_matches(term, node)) return true;
  return false;
}

// kw_terms_read reads a taint or a toleration in one pass.
KW_INLINE kw_terms kw_terms_read(kw_view v, bool toleration) {
  kw_terms of = {0};
  kw_field f;
  if (v.json && toleration) {
    core_Toleration t = {v};
    return (kw_terms){v.bytes, core_Toleration_key(t), core_Toleration_value(t), core_Toleration_effect(t), core_Toleration_operator(t)};
  } else if (v.json) {
    core_Taint t = {v};
    return (kw_terms){v.bytes, core_Taint_key(t), core_Taint_value(t), core_Taint_effect(t), {0, 0}};
  }
  of.bytes = v.bytes;
  for (kw_str rest = v.bytes; kw_next_field(&rest, &f);)
    if (f.number == 1) of.key = f.bytes;
    else if (f.number == (toleration ? 3 : 2)) of.value = f.bytes;
    else if (f.number == (toleration ? 4 : 3)) of.effect = f.bytes;
    else if (f.number == 2) of.op = f.bytes;
  return of;
}

// kw_terms_next reads up to KW_TERMS elements off a list into kept, and returns them and their
// number. Those of a part stay there, so that the next call has nothing to read.
enum { KW_TERMS = 16 };
__attribute__((noinline)) KW_INLINE const kw_terms *kw_terms_next(kw_list *l, bool tolerations, kw_terms *kept, uint32_t *n) {
  kw_part *part = l->part && l->rest.p == (const char *)l->part->p && l->rest.n == l->part->n ? l->part : 0;
  uint32_t of = l->number << 1 | tolerations;
  if (part && part->terms_of == of) {
    l->rest = (kw_str){0, 0};
    *n = part->terms_n;
    return part->terms;
  }
  kw_view v;
  for (*n = 0; *n < KW_TERMS && kw_next_message(l, &v); ++*n) kept[*n] = kw_terms_read(v, tolerations);
  if (!part || part->terms_of || *n == KW_TERMS) return kept; // Those of another field may be in use.
  uint32_t size = *n * (uint32_t)sizeof *kept;
  if (part->terms_room < size) {
    kw_free(part->terms, part->terms_room);
    part->terms_room = 1u << kw_class(size);
    part->terms = (kw_terms *)kw_alloc(part->terms_room);
  }
  kw_copy(part->terms, kept, size);
  part->terms_n = *n, part->terms_of = of;
  return part->terms;
}
#define KW_SAME(a, b) ((a).n == (b).n && kw_same((a).p, (b).p, (a).n)) // Where a call would copy the structs.
KW_INLINE bool kw_terms_match(const kw_terms *t, const kw_terms *taint) {
  if (t->effect.n && !KW_SAME(t->effect, taint->effect)) return false;
  if (t->key.n && !KW_SAME(t->key, taint->key)) return false;
  if (KW_SAME(t->op, KW("Exists"))) return true;
  if (!t->op.n || KW_SAME(t->op, KW("Equal"))) return KW_SAME(taint->value, t->value);
  int64_t have, want;
  if (!kw_decimal(taint->value, &have) || !kw_decimal(t->value, &want)) return false;
  if (!kw_equal(kw_s(have), taint->value) || !kw_equal(kw_s(want), t->value)) return false; // As the API writes them.
  return kw_equal(t->op, "Lt") ? have < want : kw_equal(t->op, "Gt") && have > want;
}

// kw_tolerates reports whether a toleration matches a taint, with comparison operators enabled.
KW_INLINE bool kw_tolerates(core_Toleration t, core_Taint taint) {
  kw_terms toleration = kw_terms_read(t.v, true), of = kw_terms_read(taint.v, false);
  return kw_terms_match(&toleration, &of);
}

// kw_find_untolerated finds the first taint that keeps a Pod with the tolerations from being
// scheduled.
KW_INLINE bool kw_find_untolerated(kw_list taints, kw_list tolerations, core_Taint *found) {
  kw_terms kept_taints[KW_TERMS], kept[KW_TERMS];
  const kw_terms *of_pod = 0;
  uint32_t n, of_pod_n = 0;
  do {
    const kw_terms *taint = kw_terms_next(&taints, false, kept_taints, &n);
    for (const kw_terms *last = taint + n; taint < last; taint++) {
      if (!KW_SAME(taint->effect, KW("NoSchedule")) && !KW_SAME(taint->effect, KW("NoExecute"))) continue;
      if (!of_pod) of_pod = kw_terms_next(&tolerations, true, kept, &of_pod_n);
      bool tolerated = false;
      for (uint32_t i = 0; !tolerated && i < of_pod_n; i++) tolerated = kw_terms_match(&of_pod[i], taint);
      kw_view more;
      for (kw_list rest = tolerations; !tolerated && kw_next_message(&rest, &more);) {
        kw_terms t = kw_terms_read(more, true);
        tolerated = kw_terms_match(&t, taint);
      }
      if (tolerated) continue;
      found->v = (kw_view){taint->bytes, 0, 0, taints.json};
      return true;
    }
  } while (n == KW_TERMS);
  return false;
}

// kw_taint_text returns a taint as kubectl writes it: key=value:effect.
KW_INLINE kw_str kw_taint_text(core_Taint t) {
  kw_str value = core_Taint_value(t), effect = core_Taint_effect(t);
  return kw_text(core_Taint_key(t), value.n ? "=" : "", value, effect.n ? ":" : "", effect);
}

// ---- Plugins ----------------------------------------------------------------------------

// What the plugin says of itself (section 7 of SPEC.md) stands in comments, from which kubewasm
// build makes the section: //kubewasm:name, version, source, licenses, reads, decides, matches.

// The marker: a function that is implemented has a symbol, which others find by its absence.
#define KW_POINTS(X) \
  X(0, preenqueue) X(1, queuesort) X(2, eventstoregister) X(3, queueinghint) X(4, prefilter) X(5, addpod) X(6, removepod) X(7, filter) \
  X(8, postfilter) X(9, prescore) X(10, score) X(11, normalizescore) X(12, reserve) X(13, unreserve) X(14, permit) X(15, prebindpreflight) \
  X(16, prebind) X(17, bind) X(18, postbind) X(19, signpod) X(20, podgrouppostfilter) X(21, generateplacements) X(22, scoreplacement) \
  X(23, normalizeplacementscore) X(24, clonecycle) X(25, prequeueinghint) X(26, potentialvictims) X(32, validate) X(33, mutate) X(34, convert) X(48, hook) \
  X(56, configure) X(60, services)
#define KW_DECLARE_POINT(bit, name) extern const char kw_implements_##name __attribute__((weak));
KW_POINTS(KW_DECLARE_POINT)
#ifdef __wasm__
#define KW_POINT_BIT(bit, name) (&kw_implements_##name ? 1ull << bit : 0) |
KW_SHARED KW_EXPORT("kubewasm_abi_v1") uint64_t kw_marker(void) { return KW_POINTS(KW_POINT_BIT) 0; }
#endif
#define KW_IMPLEMENTS(name) const char kw_implements_##name = 1;

// kw_result is what an extension point returns: a code and, above it, a second number.
typedef uint64_t kw_result;
enum { KW_SUCCESS, KW_ERROR, KW_UNSCHEDULABLE, KW_UNRESOLVABLE, KW_WAIT, KW_SKIP, KW_PENDING };
enum { KW_ALLOW = 0, KW_DENY = 2 };

// kw_because gives a code its reason.
KW_INLINE kw_result kw_because(kw_result code, kw_str reason) {
  kw_host_status_reason(reason.p, reason.n);
  return code;
}
#define kw_error(...) kw_because(KW_ERROR, kw_text(__VA_ARGS__))
#define kw_unschedulable(...) kw_because(KW_UNSCHEDULABLE, kw_text(__VA_ARGS__))
#define kw_unresolvable(...) kw_because(KW_UNRESOLVABLE, kw_text(__VA_ARGS__))
#define kw_pending(...) kw_because(KW_PENDING, kw_text(__VA_ARGS__))

// ---- Configuration ----------------------------------------------------------------------

// kw_option is a member of the configuration and the variable that it fills.
typedef enum { KW_OF_STRING, KW_OF_STRINGS, KW_OF_BOOL, KW_OF_INT, KW_OF_DOUBLE, KW_OF_JSON } kw_option_type;
typedef struct { kw_str name; kw_option_type type; void *variable; } kw_option;
#define KW_OPTION_STRING(name, variable) {KW(name), KW_OF_STRING, (kw_str *){&(variable)}}
#define KW_OPTION_STRINGS(name, variable) {KW(name), KW_OF_STRINGS, (kw_strs *){&(variable)}}
#define KW_OPTION_BOOL(name, variable) {KW(name), KW_OF_BOOL, (bool *){&(variable)}}
#define KW_OPTION_INT(name, variable) {KW(name), KW_OF_INT, (int64_t *){&(variable)}}
#define KW_OPTION_DOUBLE(name, variable) {KW(name), KW_OF_DOUBLE, (double *){&(variable)}}
#define KW_OPTION_JSON(name, variable) {KW(name), KW_OF_JSON, (kw_str *){&(variable)}} // Its text, for kw_json_members.

// kw_edits returns the number of edits that make one text of the other, as for misspelt names.
KW_INLINE uint32_t kw_edits(kw_str a, kw_str b) {
  uint32_t width = b.n + 1, *rows = (uint32_t *)kw_take(3 * width * 4), *before = rows, *above = rows + width, *row = above + width;
#define KW_LOWER(c) ((c) >= 'A' && (c) <= 'Z' ? (c) | 32 : (c))
  for (uint32_t j = 0; j <= b.n; j++) above[j] = j, before[j] = 0;
  for (uint32_t i = 0; i < a.n; i++) {
    row[0] = i + 1;
    for (uint32_t j = 0; j < b.n; j++) {
      uint32_t cost = above[j] + (KW_LOWER(a.p[i]) != KW_LOWER(b.p[j]));
      if (above[j + 1] + 1 < cost) cost = above[j + 1] + 1;
      if (row[j] + 1 < cost) cost = row[j] + 1;
      if (i && j && KW_LOWER(a.p[i]) == KW_LOWER(b.p[j - 1]) && KW_LOWER(a.p[i - 1]) == KW_LOWER(b.p[j]) && before[j - 1] + 1 < cost) cost = before[j - 1] + 1;
      row[j + 1] = cost;
    }
    uint32_t *last = before;
    before = above, above = row, row = last;
  }
  return above[b.n];
}

typedef struct { const kw_option *of; uint32_t n; kw_buf mistakes; } kw_options;

KW_INLINE void kw_mistake(kw_options *o, kw_str text) {
  if (o->mistakes.n) kw_put(&o->mistakes, KW("; "));
  kw_put(&o->mistakes, text);
}
#define kw_mistakes(options, ...) kw_mistake(options, kw_text(__VA_ARGS__))

KW_INLINE void kw_unknown_option(kw_options *o, kw_str name) {
  uint32_t least = name.n / 3 + 1;
  kw_str best = {0, 0};
  kw_buf all = {0};
  for (uint32_t i = 0; i < o->n; i++) {
    kw_str other = o->of[i].name;
    if (i) kw_put(&all, KW(", "));
    kw_put(&all, other);
    if (name.n > 100) continue;
    uint32_t edits = kw_edits(name, other);
    if (edits < least) least = edits, best = other;
  }
  if (!o->n) kw_mistakes(o, name, ": unknown field");
  else if (best.p) kw_mistakes(o, name, ": unknown field, did you mean \"", best, "\"?");
  else kw_mistakes(o, name, ": unknown field, there are ", kw_bytes(&all));
}

KW_INLINE void kw_set_option(kw_options *o, const kw_option *option, kw_str v) {
  kw_str key, element;
  switch (option->type) {
  case KW_OF_STRING:
    if (!kw_json_is(v, '"')) kw_mistakes(o, option->name, ": want string, got ", kw_json_kind(v));
    else *(kw_str *)option->variable = kw_keep(kw_json_text(v));
    break;
  case KW_OF_STRINGS: {
    kw_strs list = {0};
    if (!kw_json_is(v, '[')) {
      kw_mistakes(o, option->name, ": want array, got ", kw_json_kind(v));
      break;
    }
    uint32_t i = 0;
    for (kw_members m = kw_json_members(v); kw_json_next(&m, &key, &element); i++)
      if (kw_json_is(element, '"')) kw_strs_add(&kw_always, &list, kw_keep(kw_json_text(element)));
      else kw_mistakes(o, option->name, "[", i, "]: want string, got ", kw_json_kind(element));
    *(kw_strs *)option->variable = list;
    break;
  }
  case KW_OF_BOOL:
    if (!kw_json_is(v, 't') && !kw_json_is(v, 'f')) kw_mistakes(o, option->name, ": want bool, got ", kw_json_kind(v));
    else *(bool *)option->variable = kw_json_is(v, 't');
    break;
  case KW_OF_INT:
  case KW_OF_DOUBLE:
    if (!kw_equal(kw_json_kind(v), "number")) kw_mistakes(o, option->name, ": want number, got ", kw_json_kind(v));
    else if (option->type == KW_OF_DOUBLE) *(double *)option->variable = kw_real(v);
    else if (!kw_decimal(v, (int64_t *)option->variable)) kw_mistakes(o, option->name, ": want int64, got ", v);
    break;
  case KW_OF_JSON: *(kw_str *)option->variable = kw_keep(v); break;
  }
}

// kw_configure fills the variables, and returns an error that names every mistake.
KW_INLINE kw_result kw_configure(const kw_option *options, uint32_t n) {
  kw_str text = KW_ANSWER(kw_host_config(buf, limit)), key, value;
  kw_options o = {options, n, {0}};
  text.p = kw_json_space(text.p, text.p + text.n) == text.p + text.n ? 0 : text.p;
  if (!text.p) return KW_SUCCESS;
  if (!kw_json_valid(text)) return kw_error("the configuration is not valid JSON");
  kw_str trimmed = kw_trim(text);
  if (kw_equal(trimmed, "null")) return KW_SUCCESS;
  if (!kw_json_is(trimmed, '{')) return kw_error("want object, got ", kw_json_kind(trimmed));
  uint64_t seen = 0;
  for (kw_members m = kw_json_members(trimmed); kw_json_next(&m, &key, &value);) {
    uint32_t i = 0;
    key = kw_json_unescape(key);
    while (i < n && !kw_equal(options[i].name, key)) i++;
    if (i == n) kw_unknown_option(&o, key);
    else if (i < 64 && seen >> i & 1) kw_mistakes(&o, key, ": field occurs twice");
    else {
      if (i < 64) seen |= 1ull << i;
      if (!kw_json_is(value, 'n')) kw_set_option(&o, &options[i], value);
    }
  }
  return o.mistakes.n ? kw_because(KW_ERROR, kw_bytes(&o.mistakes)) : KW_SUCCESS;
}

// KW_CONFIG declares the configuration: its options, and a function that is called when they are
// set. It returns KW_SUCCESS, or kw_error if the plugin cannot work with them.
#define KW_CONFIG(...)                                                                          \
  KW_IMPLEMENTS(configure)                                                                      \
  static kw_result kw_configured(void);                                                         \
  KW_EXPORT("configure") int32_t kw_export_configure(void) {                                    \
    static const kw_option options[] = {__VA_ARGS__};                                           \
    kw_begin();                                                                                 \
    kw_result result = kw_configure(options, sizeof options / sizeof *options);                 \
    return (int32_t)(result ? result : kw_configured());                                        \
  }                                                                                             \
  static kw_result kw_configured(void)

// ---- Look-ups ---------------------------------------------------------------------------

// kw_get_object returns an object by its resource, such as "v1/persistentvolumeclaims": protobuf
// in a scheduler, JSON of custom resources there, and of all in admission, hooks and services; nothing if there is none. The guest needs the grant
// objects. A hook gets the object that has the name of its node.
KW_INLINE kw_str kw_get_object_text(kw_str question) { return KW_ANSWER(kw_host_get_object(question.p, question.n, buf, limit)); }
#define kw_get_object(resource, namespace, name) kw_get_object_text(kw_text(resource, KW("\0"), namespace, KW("\0"), name))

KWV_MESSAGE(kw_Objects)
KWV_LIST(kw_Objects, objects, 1)
KWV_STRING(kw_Objects, next, 2)

// kw_list_page returns a page of a list, kw_Objects; after is where it begins, empty at first,
// and its next where the one after it does, empty at the end. All of selector and namespace may be
// empty.
KW_INLINE kw_Objects kw_list_text(kw_str q) { return kw_Objects_of_proto(KW_ANSWER(kw_host_list_objects(q.p, q.n, buf, limit))); }
#define kw_list_page(resource, namespace, selector, after) \
  kw_list_text(kw_text(resource, KW("\0"), namespace, KW("\0"), selector, KW("\0"), after))
// kw_list_all returns all at once.
#define kw_list_all(resource, namespace, selector) kw_list_text(kw_text(resource, KW("\0"), namespace, KW("\0"), selector))

// ---- State that all instances share -----------------------------------------------------

// The memory of a guest belongs to one instance, and a plugin has several: a quota that is counted
// in a variable lets as many Pods in as there are instances. This state lies in the host and needs
// the grant state. A call is a transaction: it sees one moment and its own writes, which count
// together, or not at all if it traps, fails or refuses without kw_state_keep. Keys have 1 to 512
// bytes. A version changes whenever the entry is written.
typedef struct { kw_str key, value; uint64_t version; } kw_entry;
#define KW_ANY_VERSION (-1)

// kw_state_get reads an entry, and reports whether there is one.
KW_INLINE bool kw_state_get(kw_str key, kw_entry *e) {
  kw_str b = KW_ANSWER(kw_host_state_get(key.p, key.n, buf, limit));
  if (b.n < 8) return false;
  e->key = key;
  kw_copy(&e->version, b.p, 8);
  e->value = (kw_str){b.p + 8, b.n - 8};
  return true;
}
// kw_state_number is the number of a counter, 0 without one.
KW_INLINE int64_t kw_state_number(kw_str key) {
  kw_entry e;
  int64_t n = 0;
  if (kw_state_get(key, &e) && e.value.n == 8) kw_copy(&n, e.value.p, 8);
  return n;
}
// kw_state_put writes an entry that has the version: KW_ANY_VERSION, or 0 if there is none. It
// reports false if it has another, or the state is full.
KW_INLINE bool kw_state_put(kw_str key, kw_str value, int64_t version) {
  return kw_host_state_put(key.p, key.n, value.p, value.n, version) == 0;
}
// kw_state_delete deletes an entry that has the version, and reports whether there was one.
KW_INLINE bool kw_state_delete(kw_str key, int64_t version) { return kw_host_state_delete(key.p, key.n, version) == 0; }
// kw_state_add adds to a counter, which is 0 if it is not there. It reports false, and adds nothing,
// if the sum would be above max or, with a delta below 0, below it, or if the state is full.
KW_INLINE bool kw_state_add(kw_str key, int64_t delta, int64_t max) {
  uint32_t result = kw_host_state_add(key.p, key.n, delta, max);
  if (result == 3) kw_die(KW("state: the entry is no counter"));
  return result == 0;
}
// kw_state_keep has the writes of the call count also if it refuses.
KW_INLINE void kw_state_keep(void) { kw_host_state_keep(); }

// kw_state_list lists the entries whose keys begin with a prefix, in the order of their keys:
//
//   kw_state_list l = {.prefix = KW("pod/")};
//   for (kw_entry e; kw_state_next(&l, &e);) …
typedef struct { kw_str prefix, after, page; } kw_state_list;
KW_INLINE bool kw_state_next(kw_state_list *l, kw_entry *e) {
  if (!l->page.n) l->page = KW_ANSWER(kw_host_state_list(l->prefix.p, l->prefix.n, l->after.p, l->after.n, buf, limit));
  if (l->page.n < 16) return false;
  uint32_t key, value;
  kw_copy(&key, l->page.p, 4), kw_copy(&value, l->page.p + 4, 4), kw_copy(&e->version, l->page.p + 8, 8);
  e->key = l->after = (kw_str){l->page.p + 16, key};
  e->value = (kw_str){l->page.p + 16 + key, value};
  uint32_t size = 16 + key + value;
  l->page = (kw_str){l->page.p + size, l->page.n - size};
  return true;
}

// ---- The scheduler ----------------------------------------------------------------------

typedef uint64_t kw_cycle;

// What a plugin remembers of a cycle. kw_cycle_begin returns fresh memory of n bytes, of zeros, for
// prefilter; kw_cycle_state what was there for the cycle, 0 if nothing was. kw_cycle_arena is for
// what belongs to it: it stays as long.
//
// An instance that has not seen a cycle repeats prefilter, addpod, removepod, prescore and reserve:
// look-ups, waiting Pods and nodes are as they were the first time, and events and rejections happen
// once. permit, prebind, bind, postbind and unreserve run on an instance that has the state. If the
// guest has trapped meanwhile, and prefilter or prescore asked about nodes, the call fails without
// reaching the guest, and the Pod is tried again. score comes without prescore in a profile that has
// the plugin at score only.
typedef struct { uint32_t version, n; void *state; kw_arena arena; } kw_cycle_memory;
KW_SHARED kw_cycle_memory **kw_cycles;
KW_SHARED uint32_t kw_cycles_room;

KW_INLINE kw_cycle_memory *kw_cycle_slot(kw_cycle cycle) {
  uint32_t slot = (uint32_t)cycle;
  if (slot >= kw_cycles_room) {
    if (slot >= 1u << 24) kw_die(KW("the host uses more slots than there can be cycles"));
    uint32_t room = kw_cycles_room ? kw_cycles_room : 16;
    while (room <= slot) room *= 2;
    kw_cycle_memory **more = (kw_cycle_memory **)kw_alloc(room * (uint32_t)sizeof *more);
    kw_copy(more, kw_cycles, kw_cycles_room * sizeof *more);
    for (uint32_t i = kw_cycles_room; i < room; i++) more[i] = 0;
    kw_free(kw_cycles, kw_cycles_room * (uint32_t)sizeof *more);
    kw_cycles = more, kw_cycles_room = room;
  }
  if (!kw_cycles[slot]) {
    kw_cycles[slot] = (kw_cycle_memory *)kw_alloc(sizeof(kw_cycle_memory));
    *kw_cycles[slot] = (kw_cycle_memory){0};
  }
  return kw_cycles[slot];
}
KW_INLINE void *kw_cycle_begin(kw_cycle cycle, uint32_t n) {
  kw_cycle_memory *m = kw_cycle_slot(cycle);
  kw_arena_reset(&m->arena);
  m->version = (uint32_t)(cycle >> 32), m->n = n;
  m->state = kw_arena_take(&m->arena, n);
  __builtin_memset(m->state, 0, n);
  return m->state;
}
KW_INLINE void *kw_cycle_state(kw_cycle cycle) {
  kw_cycle_memory *m = kw_cycle_slot(cycle);
  return m->version == (uint32_t)(cycle >> 32) ? m->state : 0;
}
KW_INLINE kw_arena *kw_cycle_arena(kw_cycle cycle) { return &kw_cycle_slot(cycle)->arena; }

// The extension points. Each macro is followed by the body of a function, which returns a
// kw_result; the arguments are names of its parameters.
#define KW_POINT(name, bits, result, parameters, body_parameters, arguments)                     \
  KW_IMPLEMENTS(name)                                                                            \
  static kw_result kw_point_##name body_parameters;                                              \
  KW_EXPORT(#name) result kw_export_##name parameters {                                          \
    kw_begin();                                                                                  \
    return (result)kw_point_##name arguments;                                                    \
  }                                                                                              \
  static kw_result kw_point_##name body_parameters
#define KW_CYCLE_POD(name, result, cycle, pod) \
  KW_POINT(name, , result, (uint64_t c, uint64_t p), (kw_cycle cycle, core_Pod pod), (c, kw_pod(p)))
#define KW_CYCLE_POD_NODE(name, result, cycle, pod, node) \
  KW_POINT(name, , result, (uint64_t c, uint64_t p, uint64_t n), (kw_cycle cycle, core_Pod pod, core_Node node), (c, kw_pod(p), kw_node(n)))
#define KW_CYCLE_CHANGE(name, cycle, pod, other, node) \
  KW_POINT(name, , int32_t, (uint64_t c, uint64_t p, uint64_t o, uint64_t n), (kw_cycle cycle, core_Pod pod, core_Pod other, core_Node node), \
           (c, kw_pod(p), kw_pod(o), kw_node(n)))
#define KW_OF_CYCLE(name, result, cycle) KW_POINT(name, , result, (uint64_t c), (kw_cycle cycle), (c))
#define KW_TELL(name, cycle, pod)                                                                \
  KW_IMPLEMENTS(name)                                                                            \
  static void kw_point_##name(kw_cycle cycle, core_Pod pod);                                     \
  KW_EXPORT(#name) void kw_export_##name(uint64_t c, uint64_t p) { kw_begin(), kw_point_##name(c, kw_pod(p)); } \
  static void kw_point_##name(kw_cycle cycle, core_Pod pod)

KW_INLINE core_Pod kw_pod(uint64_t ref) { return (core_Pod){kw_by_ref(ref, KW_POD)}; }
KW_INLINE core_Node kw_node(uint64_t ref) { return (core_Node){kw_by_ref(ref, KW_NODE)}; }

#define KW_PREENQUEUE(pod) KW_POINT(preenqueue, , int32_t, (uint64_t p), (core_Pod pod), (kw_pod(p)))
// KW_QUEUESORT returns a number below, at or above 0. The times are in nanoseconds since 1970.
#define KW_QUEUESORT(first, second, first_time, second_time)                                     \
  KW_IMPLEMENTS(queuesort)                                                                       \
  static int kw_point_queuesort(core_Pod first, core_Pod second, int64_t first_time, int64_t second_time); \
  KW_EXPORT("queuesort") int32_t kw_export_queuesort(uint64_t a, uint64_t b, int64_t at, int64_t bt) { \
    kw_begin();                                                                                  \
    return kw_point_queuesort(kw_pod(a), kw_pod(b), at, bt);                                     \
  }                                                                                              \
  static int kw_point_queuesort(core_Pod first, core_Pod second, int64_t first_time, int64_t second_time)
// KW_QUEUESORT_BY is KW_QUEUESORT with all that the scheduler knows of two Pods in the queue: when each
// was last queued and when it was first queued to be tried, 0 if it was not yet, and how many times it
// was tried.
typedef struct { core_Pod pod; int64_t time, first_attempt, attempts; } kw_queued;
#define KW_QUEUESORT_BY(first, second)                                                           \
  KW_IMPLEMENTS(queuesort)                                                                       \
  static int kw_point_queuesort(kw_queued first, kw_queued second);                              \
  KW_EXPORT("queuesort") int32_t kw_export_queuesort(uint64_t a, uint64_t b, int64_t at, int64_t bt, int64_t af, int64_t bf, int64_t an, int64_t bn) { \
    kw_begin();                                                                                  \
    return kw_point_queuesort((kw_queued){kw_pod(a), at, af, an}, (kw_queued){kw_pod(b), bt, bf, bn}); \
  }                                                                                              \
  static int kw_point_queuesort(kw_queued first, kw_queued second)
// KW_EVENTS lists the events that may make Pods schedulable: KW_EVENT(resource, actions). With
// KW_HINT among the actions queueinghint is asked, with KW_PREHINT prequeueinghint.
#define KW_EVENTS(...)                                                                           \
  KW_IMPLEMENTS(eventstoregister)                                                                \
  KW_EXPORT("eventstoregister") int32_t kw_export_eventstoregister(void) {                       \
    static const uint32_t events[] = {__VA_ARGS__};                                              \
    kw_host_result_cluster_events(events, sizeof events);                                        \
    return KW_SUCCESS;                                                                           \
  }
#define KW_EVENT(resource, actions) KW_RESOURCE_##resource, (uint32_t)(actions)
// KW_EVENTSTOREGISTER hands over a list of events that has names in it: kw_add_event adds one of the
// resources above, and kw_add_named_event one about any resource that the objects of the plugin's
// configuration name, with the actions KW_ADD, KW_UPDATE and KW_DELETE.
//
//   KW_EVENTSTOREGISTER() {
//     kw_buf list = {0};
//     kw_add_named_event(&list, "scheduling.x-k8s.io/v1alpha1/podgroups", KW_ADD | KW_UPDATE | KW_HINT);
//     return kw_set_events(&list);
//   }
#define KW_EVENTSTOREGISTER() KW_POINT(eventstoregister, , int32_t, (void), (void), ())
KW_INLINE void kw_put_u32(kw_buf *b, uint32_t v) { kw_put(b, (kw_str){(const char *)&v, 4}); }
#define kw_add_event(list, resource, actions) (kw_put_u32(list, KW_RESOURCE_##resource), kw_put_u32(list, actions))
KW_INLINE void kw_add_named_event_text(kw_buf *list, kw_str name, uint32_t actions) {
  kw_put_u32(list, 255), kw_put_u32(list, actions), kw_put_u32(list, name.n), kw_put(list, name);
}
#define kw_add_named_event(list, name, actions) kw_add_named_event_text(list, kw_s(name), actions)
KW_INLINE kw_result kw_set_events(const kw_buf *list) {
  kw_host_result_cluster_events(list->p, list->n);
  return KW_SUCCESS;
}
enum {
  KW_RESOURCE_Pod, KW_RESOURCE_AssignedPod, KW_RESOURCE_UnscheduledPod, KW_RESOURCE_TargetPod, KW_RESOURCE_Node, KW_RESOURCE_PersistentVolume,
  KW_RESOURCE_PersistentVolumeClaim, KW_RESOURCE_CSINode, KW_RESOURCE_CSIDriver, KW_RESOURCE_VolumeAttachment, KW_RESOURCE_CSIStorageCapacity,
  KW_RESOURCE_StorageClass, KW_RESOURCE_ResourceClaim, KW_RESOURCE_ResourceSlice, KW_RESOURCE_DeviceClass, KW_RESOURCE_PodGroup,
  KW_RESOURCE_CompositePodGroup, KW_RESOURCE_any
};
#define KW_ADD 1u
#define KW_DELETE (1u << 1)
#define KW_UPDATE_NODE_ALLOCATABLE (1u << 2)
#define KW_UPDATE_NODE_LABEL (1u << 3)
#define KW_UPDATE_NODE_TAINT (1u << 4)
#define KW_UPDATE_NODE_CONDITION (1u << 5)
#define KW_UPDATE_NODE_ANNOTATION (1u << 6)
#define KW_UPDATE_NODE_DECLARED_FEATURE (1u << 7)
#define KW_UPDATE_NODE_PREEMPTION_POLICY (1u << 8)
#define KW_UPDATE_POD_LABEL (1u << 9)
#define KW_UPDATE_POD_SCALE_DOWN (1u << 10)
#define KW_UPDATE_POD_SCALE_UP (1u << 11)
#define KW_UPDATE_POD_TOLERATION (1u << 12)
#define KW_UPDATE_POD_SCHEDULING_GATES_ELIMINATED (1u << 13)
#define KW_UPDATE_POD_GENERATED_RESOURCE_CLAIM (1u << 14)
#define KW_UPDATE (((1u << 15) - 1) & ~(KW_ADD | KW_DELETE))
#define KW_HINT (1u << 31)
#define KW_PREHINT (1u << 30)
// KW_QUEUEINGHINT returns kw_queue(true) to try the Pod again. old and new are refs of an object of
// the kind of the event, 0 if there is none: kw_pod and kw_node read them, and kw_event_object
// returns the bytes of another object, as kw_get_object does.
KW_INLINE kw_str kw_event_object(uint64_t ref) { return KW_ANSWER(kw_host_object(ref, buf, limit)); }
#define KW_QUEUEINGHINT(event, pod, old, new)                                                    \
  KW_POINT(queueinghint, , uint64_t, (int32_t e, uint64_t p, uint64_t o, uint64_t n), (uint32_t event, core_Pod pod, uint64_t old, uint64_t new), \
           ((uint32_t)e, kw_pod(p), o, n))
#define kw_queue(again) ((kw_result)(again) << 32)
// KW_PREQUEUEINGHINT hands over the Pods to ask about by kw_hint_pods, or else all.
#define KW_PREQUEUEINGHINT(event, old, new) \
  KW_POINT(prequeueinghint, , int32_t, (int32_t e, uint64_t o, uint64_t n), (uint32_t event, uint64_t old, uint64_t new), ((uint32_t)e, o, n))
// kw_hint_pods takes namespaces and names in turn.
KW_INLINE void kw_hint_pods(kw_strs pods) {
  kw_str text = pods.n ? kw_text(kw_join(pods, KW("\0")), KW("\0")) : (kw_str){"", 0};
  kw_host_result_pods(text.p, text.n);
}
// KW_SIGNPOD hands over keys and values, which are JSON, by kw_sign: kw_sign("zone", json, …).
#define KW_SIGNPOD(pod) KW_POINT(signpod, , int32_t, (uint64_t p), (core_Pod pod), (kw_pod(p)))
KW_INLINE kw_result kw_sign_text(kw_str text) {
  kw_host_result_sign_fragments(text.p, text.n);
  return KW_SUCCESS;
}
#define kw_sign(...) \
  kw_sign_text(kw_text(kw_joined(KW("\0"), (const kw_str[]){KW_EACH_ARG(kw_s, __VA_ARGS__)}, KW_COUNT(__VA_ARGS__)), KW("\0")))

#define KW_PREFILTER(cycle, pod) KW_CYCLE_POD(prefilter, int32_t, cycle, pod)
// kw_only_node narrows the cycle down to one node, kw_only_nodes to several.
KW_INLINE void kw_only_nodes(kw_strs nodes) {
  kw_str text = nodes.n ? kw_text(kw_join(nodes, KW("\0")), KW("\0")) : (kw_str){"", 0};
  kw_host_result_node_names(text.p, text.n);
}
KW_INLINE void kw_only_node(kw_str node) { kw_only_nodes((kw_strs){&node, 1}); }
#define KW_ADDPOD(cycle, pod, added, node) KW_CYCLE_CHANGE(addpod, cycle, pod, added, node)
#define KW_REMOVEPOD(cycle, pod, removed, node) KW_CYCLE_CHANGE(removepod, cycle, pod, removed, node)
// KW_CLONECYCLE makes cycle what from is. kw_clone_state does it for a state without pointers.
#define KW_CLONECYCLE(cycle, from) KW_POINT(clonecycle, , int32_t, (uint64_t c, uint64_t f), (kw_cycle cycle, kw_cycle from), (c, f))
KW_INLINE void kw_clone_state(kw_cycle cycle, kw_cycle from) {
  void *state = kw_cycle_state(from);
  if (state) kw_copy(kw_cycle_begin(cycle, kw_cycle_slot(from)->n), state, kw_cycle_slot(from)->n);
}
#define KW_FILTER(cycle, pod, node) KW_CYCLE_POD_NODE(filter, int32_t, cycle, pod, node)
#define KW_POSTFILTER(cycle, pod) KW_CYCLE_POD(postfilter, uint64_t, cycle, pod)
// kw_nominate nominates a node; without one, empty, it takes the nomination away.
KW_INLINE kw_result kw_nominate(kw_str node) {
  kw_host_result_nominated_node_name(node.p, node.n);
  return 1ull << 32;
}
// KW_POTENTIALVICTIMS hands over the Pods of the node that may be evicted by kw_victims, or else none.
#define KW_POTENTIALVICTIMS(cycle, pod, node) KW_CYCLE_POD_NODE(potentialvictims, int32_t, cycle, pod, node)
#define KW_PRESCORE(cycle, pod) KW_CYCLE_POD(prescore, int32_t, cycle, pod)
#define KW_SCORE(cycle, pod, node) KW_CYCLE_POD_NODE(score, uint64_t, cycle, pod, node)
KW_INLINE kw_result kw_scored(int64_t score) {
  if (score != (int32_t)score) kw_host_result_score(score);
  return (uint64_t)score << 32;
}
#define KW_NORMALIZESCORE(cycle, pod) KW_CYCLE_POD(normalizescore, int32_t, cycle, pod)
#define KW_RESERVE(cycle, pod) KW_CYCLE_POD(reserve, int32_t, cycle, pod)
#define KW_UNRESERVE(cycle, pod) KW_TELL(unreserve, cycle, pod)
#define KW_PERMIT(cycle, pod) KW_CYCLE_POD(permit, uint64_t, cycle, pod)
KW_INLINE kw_result kw_wait(uint32_t milliseconds) { return (uint64_t)milliseconds << 32 | KW_WAIT; }
#define KW_PREBINDPREFLIGHT(cycle, pod) KW_CYCLE_POD(prebindpreflight, uint64_t, cycle, pod)
#define kw_prebind(parallel) ((kw_result)(parallel) << 32) // What it returns if prebind has work.
#define KW_PREBIND(cycle, pod) KW_CYCLE_POD(prebind, int32_t, cycle, pod)
#define KW_BIND(cycle, pod) KW_CYCLE_POD(bind, int32_t, cycle, pod)
#define KW_POSTBIND(cycle, pod) KW_TELL(postbind, cycle, pod)
#define KW_PODGROUPPOSTFILTER(cycle) KW_OF_CYCLE(podgrouppostfilter, int32_t, cycle)
#define KW_GENERATEPLACEMENTS(cycle) KW_OF_CYCLE(generateplacements, int32_t, cycle)
#define KW_SCOREPLACEMENT(cycle) KW_OF_CYCLE(scoreplacement, uint64_t, cycle)
#define KW_NORMALIZEPLACEMENTSCORE(cycle) KW_OF_CYCLE(normalizeplacementscore, int32_t, cycle)

// The nodes of the call: their names, as kw_cut takes them off with '\0' as the separator, but for
// the last, empty one; and their refs in the same order.
KW_INLINE kw_str kw_node_names(void) {
  kw_str names = KW_ANSWER(kw_host_node_names(buf, limit));
  return names.n ? (kw_str){names.p, names.n - 1} : (kw_str){0, 0};
}
typedef struct { const uint64_t *of; uint32_t n; } kw_refs;
KW_INLINE kw_refs kw_refs_of(kw_str answer) { return (kw_refs){(const uint64_t *)(const void *)answer.p, answer.n / 8}; }
KW_INLINE kw_refs kw_node_refs(void) { return kw_refs_of(KW_ANSWER(kw_host_node_refs(buf, limit))); }
KW_INLINE void kw_victims(kw_refs pods) { kw_host_result_victims(pods.of, 8 * pods.n); }
KW_INLINE kw_refs kw_nominated_pods(core_Node node) { uint64_t ref = kw_ref(node); return kw_refs_of(KW_ANSWER(kw_host_nominated_pods(ref, buf, limit))); }
KW_INLINE kw_refs kw_node_pods(core_Node node) { uint64_t ref = kw_ref(node); return kw_refs_of(KW_ANSWER(kw_host_node_pods(ref, buf, limit))); }
// kw_list_pods returns the Pods of the cluster that are in a namespace, or in any if it is empty, and
// chosen by a selector, sorted by namespace and name; with those that have a deletionTimestamp only if
// terminating is set. The guest needs the grant objects, and a configuration that names v1/pods.
KW_INLINE kw_refs kw_list_pods_text(kw_str question, bool terminating) {
  return kw_refs_of(KW_ANSWER(kw_host_list_pods(terminating, question.p, question.n, buf, limit)));
}
#define kw_list_pods(namespace, selector, terminating) kw_list_pods_text(kw_text(namespace, KW("\0"), selector), terminating)
// kw_count_pods returns how many Pods of each node are in a namespace, or in any if it is empty, and
// chosen by a selector such as that of kw_selector_text; with those that have a deletionTimestamp only
// if terminating is set. The host counts them, of many nodes side by side: ask about all at once.
typedef struct { const uint32_t *of; uint32_t n; } kw_counts;
KW_INLINE kw_counts kw_count_pods_text(kw_refs nodes, kw_str question, bool terminating) {
  kw_str answer = KW_ANSWER(kw_host_count_pods(terminating, nodes.of, 8 * nodes.n, question.p, question.n, buf, limit));
  return (kw_counts){(const uint32_t *)(const void *)answer.p, answer.n / 4};
}
#define kw_count_pods(nodes, namespace, selector, terminating) kw_count_pods_text(nodes, kw_text(namespace, KW("\0"), selector), terminating)
KW_INLINE core_Node kw_node_by_name(kw_str name) { return kw_node(kw_host_node_by_name(name.p, name.n)); }
KW_INLINE kw_str kw_chosen_node(void) { return KW_ANSWER(kw_host_node_name(buf, limit)); } // From reserve on.

// kw_scores are the scores of the nodes of kw_node_names, in their order. kw_set_scores hands them
// over.
typedef struct { int64_t *of; uint32_t n; } kw_scores;
KW_INLINE kw_scores kw_node_scores(void) {
  kw_str answer = KW_ANSWER(kw_host_node_scores(buf, limit));
  return (kw_scores){(int64_t *)(uintptr_t)answer.p, answer.n / 8};
}
KW_INLINE kw_result kw_set_scores(kw_scores scores) {
  kw_host_result_scores(scores.of, scores.n * 8);
  return KW_SUCCESS;
}

KWV_MESSAGE(kw_Resource)
KWV_I64(kw_Resource, milli_cpu, 1)
KWV_I64(kw_Resource, memory, 2)
KWV_I64(kw_Resource, ephemeral_storage, 3)
KWV_I64(kw_Resource, allowed_pod_number, 4)
KWV_MAP(kw_Resource, scalar_resources, 5)
KWV_MESSAGE(kw_HostPort)
KWV_STRING(kw_HostPort, ip, 1)
KWV_STRING(kw_HostPort, protocol, 2)
KWV_I32(kw_HostPort, port, 3)
KWV_MESSAGE(kw_NodeInfo)
KWV_ONE(kw_NodeInfo, requested, 1, kw_Resource)
KWV_ONE(kw_NodeInfo, non_zero_requested, 2, kw_Resource)
KWV_ONE(kw_NodeInfo, allocatable, 3, kw_Resource)
KWV_LIST(kw_NodeInfo, used_ports, 4)
KWV_MAP(kw_NodeInfo, pvc_ref_counts, 5)
KWV_I32(kw_NodeInfo, pods, 6)
KWV_MESSAGE(kw_ImageState)
KWV_STRING(kw_ImageState, name, 1)
KWV_I64(kw_ImageState, size, 2)
KWV_I32(kw_ImageState, num_nodes, 3)
KWV_MESSAGE(kw_NodeImages)
KWV_LIST(kw_NodeImages, images, 1)
KWV_MESSAGE(kw_NodeStatus)
KWV_STRING(kw_NodeStatus, node_name, 1)
KWV_I32(kw_NodeStatus, code, 2)
KWV_STRING(kw_NodeStatus, reason, 3)
KWV_MESSAGE(kw_NodeStatuses)
KWV_LIST(kw_NodeStatuses, statuses, 1)
KWV_MESSAGE(kw_PodGroup)
KWV_STRING(kw_PodGroup, type, 1)
KWV_STRING(kw_PodGroup, namespace, 2)
KWV_STRING(kw_PodGroup, name, 3)
KWV_I32(kw_PodGroup, unscheduled_pods, 4)
KWV_MESSAGE(kw_Assignment)
KWV_STRING(kw_Assignment, namespace, 1)
KWV_STRING(kw_Assignment, name, 2)
KWV_STRING(kw_Assignment, node_name, 3)
KWV_MESSAGE(kw_Placement)
KWV_STRING(kw_Placement, name, 1)
KWV_LIST(kw_Placement, node_names, 2)
KWV_LIST(kw_Placement, assignments, 3)
KWV_MESSAGE(kw_Trial)
KWV_I64(kw_Trial, code, 1)
KWV_STRING(kw_Trial, reason, 2)
KWV_LIST(kw_Trial, assignments, 3)
KWV_MESSAGE(kw_WaitingPod)
KWV_STRING(kw_WaitingPod, uid, 1)
KWV_STRING(kw_WaitingPod, namespace, 2)
KWV_STRING(kw_WaitingPod, name, 3)
KWV_LIST(kw_WaitingPod, pending_plugins, 4)
KWV_MESSAGE(kw_WaitingPods)
KWV_LIST(kw_WaitingPods, pods, 1)

// What the scheduler knows of a node: kw_node_info_version tells whether it changed.
KW_INLINE uint64_t kw_node_info_version(core_Node node) { return kw_host_node_info_version(kw_ref(node)); }
KW_INLINE kw_NodeInfo kw_node_info(core_Node node) { uint64_t ref = kw_ref(node); return kw_NodeInfo_of_proto(KW_ANSWER(kw_host_node_info(ref, buf, limit))); }
KW_INLINE kw_NodeImages kw_node_images(core_Node node) { uint64_t ref = kw_ref(node); return kw_NodeImages_of_proto(KW_ANSWER(kw_host_node_images(ref, buf, limit))); }
KW_INLINE kw_NodeStatuses kw_node_statuses(void) { return kw_NodeStatuses_of_proto(KW_ANSWER(kw_host_node_statuses(buf, limit))); }

// Groups of Pods.
KW_INLINE kw_PodGroup kw_pod_group(void) { return kw_PodGroup_of_proto(KW_ANSWER(kw_host_pod_group(buf, limit))); }
KW_INLINE core_Pod kw_pod_group_pod(uint32_t index) { return core_Pod_of_proto(KW_ANSWER(kw_host_pod_group_pod(index, buf, limit))); }
KW_INLINE kw_Trial kw_try_pod_group(kw_strs uids) {
  kw_str text = uids.n ? kw_text(kw_join(uids, KW("\0")), KW("\0")) : (kw_str){"", 0};
  return kw_Trial_of_proto(KW_ANSWER(kw_host_try_pod_group(text.p, text.n, buf, limit)));
}
KW_INLINE kw_Placement kw_placement(void) { return kw_Placement_of_proto(KW_ANSWER(kw_host_placement(buf, limit))); }
// kw_put_assignment adds an Assignment: to Nominations as field 1, to a Placement as field 3.
KW_INLINE void kw_put_assignment(kw_buf *b, uint32_t field, kw_str namespace, kw_str name, kw_str node) {
  kw_buf a = {0};
  kw_put_bytes(&a, 1, namespace), kw_put_bytes(&a, 2, name), kw_put_bytes(&a, 3, node);
  kw_put_message(b, field, &a);
}
KW_INLINE kw_result kw_set_nominations(const kw_buf *nominations) {
  kw_host_result_nominations(nominations->p, nominations->n);
  return KW_SUCCESS;
}
KW_INLINE kw_result kw_set_placements(const kw_buf *placements) {
  kw_host_result_placements(placements->p, placements->n);
  return KW_SUCCESS;
}

// kw_event reports an event about the Pod of the call, with the grant events.
KW_INLINE void kw_event_texts(kw_str type, kw_str reason, kw_str action, kw_str note) {
  kw_buf e = {0};
  kw_put_bytes(&e, 1, type), kw_put_bytes(&e, 2, reason), kw_put_bytes(&e, 3, action), kw_put_bytes(&e, 4, note);
  kw_host_event(e.p, e.n);
}
#define kw_event(type, reason, action, ...) kw_event_texts(kw_s(type), kw_s(reason), kw_s(action), kw_text(__VA_ARGS__))

// Pods that wait in permit, with the grant waiting-pods.
KW_INLINE kw_WaitingPods kw_waiting_pods(void) { return kw_WaitingPods_of_proto(KW_ANSWER(kw_host_waiting_pods(buf, limit))); }
KW_INLINE core_Pod kw_waiting_pod(kw_str uid) { return core_Pod_of_proto(KW_ANSWER(kw_host_waiting_pod(uid.p, uid.n, buf, limit))); }
KW_INLINE bool kw_allow_waiting_pod(kw_str uid) { return kw_host_allow_waiting_pod(uid.p, uid.n); }
KW_INLINE bool kw_reject_waiting_pod_text(kw_str text) { return kw_host_reject_waiting_pod(text.p, text.n); }
// kw_activate has the queue try Pods again, with the grant activate: namespaces and names in turn, of
// at most 1,000 Pods in a call and 8 KiB together. It takes effect after the call, for a Pod at most
// once a second, in preenqueue, postfilter, reserve, unreserve, permit, prebind and postbind.
KW_INLINE void kw_activate(kw_strs pods) {
  if (!pods.n) return;
  kw_str text = kw_text(kw_join(pods, KW("\0")), KW("\0"));
  kw_host_activate(text.p, text.n);
}
// kw_apply_annotations has the host apply annotations to an object after the call, in postfilter,
// unreserve, prebind and postbind: keys and values in turn, which are all that the plugin manages of it.
// kw_apply_status does so with the fields of the status, a JSON object. A call applies to at most 100
// objects, 8 KiB each. They need the grant apply, and a configuration that names the resource with
// apply: [annotations, status].
KW_INLINE void kw_apply_annotations_text(kw_str object, kw_strs annotations) {
  kw_str text = annotations.n ? kw_text(object, kw_join(annotations, KW("\0")), KW("\0")) : object;
  kw_host_apply_annotations(text.p, text.n);
}
#define kw_apply_annotations(resource, namespace, name, annotations) \
  kw_apply_annotations_text(kw_text(resource, KW("\0"), namespace, KW("\0"), name, KW("\0")), annotations)
KW_INLINE void kw_apply_status_text(kw_str text) { kw_host_apply_status(text.p, text.n); }
#define kw_apply_status(resource, namespace, name, ...) kw_apply_status_text(kw_text(resource, KW("\0"), namespace, KW("\0"), name, KW("\0"), __VA_ARGS__))
// kw_await_object has prebind called again after an object has changed, if it returns KW_WAIT, and
// refuses the Pod after so many milliseconds since it was first called. It needs the grant objects.
KW_INLINE void kw_await_object_text(kw_str text, uint32_t milliseconds) { kw_host_await_object(text.p, text.n, milliseconds); }
#define kw_await_object(resource, namespace, name, milliseconds) \
  kw_await_object_text(kw_text(resource, KW("\0"), namespace, KW("\0"), name), milliseconds)
#define kw_reject_waiting_pod(uid, ...) kw_reject_waiting_pod_text(kw_text(uid, KW("\0"), __VA_ARGS__))

// ---- Admission --------------------------------------------------------------------------

KWV_MESSAGE(kw_GroupVersionKind)
KWV_STRING(kw_GroupVersionKind, group, 1)
KWV_STRING(kw_GroupVersionKind, version, 2)
KWV_STRING(kw_GroupVersionKind, kind, 3)
KWV_MESSAGE(kw_GroupVersionResource)
KWV_STRING(kw_GroupVersionResource, group, 1)
KWV_STRING(kw_GroupVersionResource, version, 2)
KWV_STRING(kw_GroupVersionResource, resource, 3)
KWV_MESSAGE(kw_UserInfo)
KWV_STRING(kw_UserInfo, username, 1)
KWV_STRING(kw_UserInfo, uid, 2)
KWV_LIST(kw_UserInfo, groups, 3)
KWV_MAP(kw_UserInfo, extra, 4)
KWV_MESSAGE(kw_Request)
KWV_STRING(kw_Request, uid, 1)
KWV_ONE(kw_Request, kind, 2, kw_GroupVersionKind)
KWV_ONE(kw_Request, resource, 3, kw_GroupVersionResource)
KWV_STRING(kw_Request, subResource, 4)
KWV_STRING(kw_Request, name, 5)
KWV_STRING(kw_Request, namespace, 6)
KWV_STRING(kw_Request, operation, 7)
KWV_ONE(kw_Request, userInfo, 8, kw_UserInfo)
KWV_BOOL(kw_Request, dryRun, 11)
KWV_ONE(kw_Request, requestKind, 13, kw_GroupVersionKind)
KWV_ONE(kw_Request, requestResource, 14, kw_GroupVersionResource)
KWV_STRING(kw_Request, requestSubResource, 15)

// kw_with_index returns an object of the request, whose readers skip by the host's index.
KW_INLINE kw_str kw_with_index(kw_str json, uint32_t i) {
  kw_str places = kw_unpack(kw_find_bytes(kw_request_bytes.p, kw_request_bytes.n, 101 + i));
  kw_indexes[i] = (kw_index){json, places.p, places.n / 8};
  return json;
}

// kw_object_json and kw_old_object_json return the objects of the request, nothing if there is
// none. kw_object_view and kw_old_object_view are views of them for the accessors of any type. The
// host makes protobuf of objects of Kubernetes on demand, which costs it more than reading a few
// fields of JSON does here: kw_object_proto_view is for a guest that reads much.
KW_INLINE kw_str kw_object_json(void) { return kw_with_index(KW_ANSWER(kw_host_admission_object(buf, limit)), 0); }
KW_INLINE kw_str kw_old_object_json(void) { return kw_with_index(KW_ANSWER(kw_host_old_object(buf, limit)), 1); }
KW_INLINE kw_str kw_options_json(void) { return KW_ANSWER(kw_host_options(buf, limit)); }
KW_INLINE kw_view kw_object_view(void) { return kw_json(kw_object_json()); }
KW_INLINE kw_view kw_old_object_view(void) { return kw_json(kw_old_object_json()); }
KW_INLINE kw_view kw_object_proto_view(void) {
  kw_str proto = KW_ANSWER(kw_host_object_proto(buf, limit));
  return proto.n ? kw_proto(proto) : kw_object_view();
}
KW_INLINE kw_view kw_old_object_proto_view(void) {
  kw_str proto = KW_ANSWER(kw_host_old_object_proto(buf, limit));
  return proto.n ? kw_proto(proto) : kw_old_object_view();
}

// What a verdict carries, in kw_verdict.
KW_SHARED kw_buf kw_verdict;
#define kw_warn(...) kw_put_bytes(&kw_verdict, 3, kw_text(__VA_ARGS__))
#define kw_audit(key, value) kw_put_entry(&kw_verdict, 4, kw_s(key), kw_s(value))
KW_SHARED uint32_t kw_field_errors;
KW_INLINE void kw_field_error(kw_str path, kw_str type, kw_str bad, kw_str message) {
  kw_buf e = {0};
  kw_put_bytes(&e, 1, path), kw_put_bytes(&e, 2, type), kw_put_bytes(&e, 3, message);
  if (bad.p) kw_put_bytes(&e, 4, bad);
  kw_put_message(&kw_verdict, 2, &e);
  kw_field_errors++;
}
KW_INLINE kw_str kw_json_of(kw_str s) {
  kw_buf b = {0};
  kw_put_json(&b, s);
  return kw_bytes(&b);
}
// Field errors: the path, as text of several parts if need be, and what is wrong. A plugin that has
// made one returns kw_verdict_of_errors().
#define kw_invalid(path, value, ...) kw_field_error(kw_s(path), KW("FieldValueInvalid"), kw_json_of(kw_s(value)), kw_text(__VA_ARGS__))
#define kw_required(path, ...) kw_field_error(kw_s(path), KW("FieldValueRequired"), (kw_str){0, 0}, kw_text(__VA_ARGS__))
#define kw_forbidden(path, ...) kw_field_error(kw_s(path), KW("FieldValueForbidden"), (kw_str){0, 0}, kw_text(__VA_ARGS__))
#define kw_not_supported(path, value, ...) kw_field_error(kw_s(path), KW("FieldValueNotSupported"), kw_json_of(kw_s(value)), kw_text(__VA_ARGS__))
KW_INLINE kw_result kw_verdict_of_errors(void) { return kw_field_errors ? KW_DENY : KW_ALLOW; }
#define kw_deny(...) kw_because(KW_DENY, kw_text(__VA_ARGS__))
// kw_deny_as denies with a status code of HTTP and no reason.
KW_INLINE kw_result kw_deny_as(uint32_t status) { return (uint64_t)status << 32 | KW_DENY; }

#define KW_REVIEW(name, request)                                                                 \
  KW_IMPLEMENTS(name)                                                                            \
  static kw_result kw_point_##name(kw_Request request);                                          \
  KW_EXPORT(#name) uint64_t kw_export_##name(void) {                                             \
    kw_begin();                                                                                  \
    kw_verdict = (kw_buf){0}, kw_field_errors = 0;                                               \
    kw_result result = kw_point_##name(kw_Request_of_proto(kw_request_bytes = KW_ANSWER(kw_host_admission_request(buf, limit)))); \
    if (kw_verdict.n) kw_host_result(kw_verdict.p, kw_verdict.n);                                \
    return result;                                                                               \
  }                                                                                              \
  static kw_result kw_point_##name(kw_Request request)
#define KW_VALIDATE(request) KW_REVIEW(validate, request)
#define KW_MUTATE(request) KW_REVIEW(mutate, request)
// KW_CONVERT gets the apiVersion to convert to; kw_object_json is the object.
#define KW_CONVERT(version)                                                                      \
  KW_POINT(convert, , uint64_t, (void), (kw_str version), (KW_ANSWER(kw_host_desired_api_version(buf, limit))))

// Changes of the object: kw_set_object hands it over whole, in JSON; kw_patch a JSON Patch, which
// kw_patch_add makes of operations: op, a JSON Pointer, and a value in JSON, nothing for remove.
KW_INLINE void kw_set_object(kw_str json) { kw_host_mutated_object(json.p, json.n); }
KW_INLINE void kw_patch_add(kw_buf *patch, kw_str op, kw_str path, kw_str value) {
  if (patch->n) patch->n--; // The bracket.
  kw_put(patch, patch->n ? KW(",{\"op\":") : KW("[{\"op\":"));
  kw_put_json(patch, op), kw_put(patch, KW(",\"path\":")), kw_put_json(patch, path);
  if (value.n) kw_put(patch, KW(",\"value\":")), kw_put(patch, value);
  kw_put(patch, KW("}]"));
}
KW_INLINE void kw_patch(const kw_buf *patch) { kw_host_patch(patch->p, patch->n); }

// ---- Hooks ------------------------------------------------------------------------------

enum {
  KW_STAGE_PRE_RUN_POD_SANDBOX = 1, KW_STAGE_PRE_CREATE_CONTAINER, KW_STAGE_PRE_START_CONTAINER, KW_STAGE_POST_START_CONTAINER,
  KW_STAGE_PRE_UPDATE_CONTAINER_RESOURCES, KW_STAGE_POST_STOP_CONTAINER, KW_STAGE_POST_STOP_POD_SANDBOX, KW_STAGE_PRE_REMOVE_RUN_POD_SANDBOX,
  KW_STAGE_RECONCILE
};
enum { KW_LEVEL_QOS = 1, KW_LEVEL_POD, KW_LEVEL_CONTAINER };
enum { KW_QOS_GUARANTEED = 1, KW_QOS_BURSTABLE, KW_QOS_BEST_EFFORT };

KWV_MESSAGE(kw_PodMeta)
KWV_STRING(kw_PodMeta, namespace, 1)
KWV_STRING(kw_PodMeta, name, 2)
KWV_STRING(kw_PodMeta, uid, 3)
KWV_MESSAGE(kw_ContainerMeta)
KWV_STRING(kw_ContainerMeta, name, 1)
KWV_STRING(kw_ContainerMeta, id, 2)
// KW_RESOURCE_FIELDS are the numbers and texts of the resources of a cgroup, in hook.proto.
#define KW_RESOURCE_FIELDS(NUMBER, TEXT) \
  NUMBER(cpu_shares, 1) NUMBER(cfs_quota_us, 2) NUMBER(cfs_period_us, 3) TEXT(cpuset_cpus, 4) TEXT(cpuset_mems, 5) NUMBER(cpu_bvt, 6) \
  NUMBER(cpu_idle, 7) NUMBER(cpu_burst_us, 8) NUMBER(memory_limit_bytes, 9) NUMBER(memory_min_bytes, 10) NUMBER(memory_low_bytes, 11) \
  NUMBER(memory_high_bytes, 12) NUMBER(oom_score_adj, 13) NUMBER(net_cls_classid, 15) TEXT(core_sched_group, 16) TEXT(resctrl_group, 17) \
  TEXT(resctrl_schemata, 18)
KWV_MESSAGE(kw_CgroupResources)
#define KW_READ_NUMBER(f, n) KWV_I64(kw_CgroupResources, f, n) KWV_HAS(kw_CgroupResources, f, n)
#define KW_READ_TEXT(f, n) KWV_STRING(kw_CgroupResources, f, n) KWV_HAS(kw_CgroupResources, f, n)
KW_RESOURCE_FIELDS(KW_READ_NUMBER, KW_READ_TEXT)
KWV_MAP(kw_CgroupResources, unified, 14)
// Where the processors of the node are. Lists of CPUs are the kernel's: "0-3,8".
KWV_MESSAGE(kw_NUMANode)
KWV_I64(kw_NUMANode, id, 1)
KWV_STRING(kw_NUMANode, cpus, 2)
KWV_I64(kw_NUMANode, memory_bytes, 3)
KWV_MESSAGE(kw_CPUGroup)
KWV_I64(kw_CPUGroup, id, 1)
KWV_STRING(kw_CPUGroup, cpus, 2)
KWV_MESSAGE(kw_CPUCache)
KWV_I64(kw_CPUCache, level, 1)
KWV_STRING(kw_CPUCache, type, 2)
KWV_I64(kw_CPUCache, size_bytes, 3)
KWV_STRING(kw_CPUCache, cpus, 4)
KWV_MESSAGE(kw_NodeTopology)
KWV_STRING(kw_NodeTopology, online_cpus, 1)
KWV_LIST(kw_NodeTopology, numa_nodes, 2)
KWV_LIST(kw_NodeTopology, sockets, 3)
KWV_LIST(kw_NodeTopology, cores, 4)
KWV_LIST(kw_NodeTopology, caches, 5)
KWV_MESSAGE(kw_HookRequest)
KWV_I32(kw_HookRequest, stage, 1)
KWV_I32(kw_HookRequest, level, 2)
KWV_ONE(kw_HookRequest, pod, 3, kw_PodMeta)
KWV_ONE(kw_HookRequest, container, 4, kw_ContainerMeta)
KWV_MAP(kw_HookRequest, pod_labels, 5)
KWV_MAP(kw_HookRequest, pod_annotations, 6)
KWV_MAP(kw_HookRequest, container_annotations, 7)
KWV_STRING(kw_HookRequest, cgroup_parent, 8)
KWV_I32(kw_HookRequest, qos_class, 9)
KWV_ONE(kw_HookRequest, resources, 10, kw_CgroupResources)
KWV_MAP(kw_HookRequest, container_envs, 11)
// Those of the node are empty if the host follows none.
KWV_STRING(kw_HookRequest, node_name, 12)
KWV_MAP(kw_HookRequest, node_labels, 13)
KWV_MAP(kw_HookRequest, node_annotations, 14)
KWV_MAP(kw_HookRequest, node_capacity, 15)
KWV_MAP(kw_HookRequest, node_allocatable, 16)
KWV_ONE(kw_HookRequest, node_topology, 17, kw_NodeTopology)

// What a hook decides: kw_decide_cpu_shares(n) and so on for each field of the resources, and
// functions for a container.
KW_SHARED kw_buf kw_resources, kw_decision;
#define KW_WRITE_NUMBER(f, n) KW_INLINE void kw_decide_##f(int64_t v) { kw_put_number(&kw_resources, n, (uint64_t)v); }
#define KW_WRITE_TEXT(f, n) KW_INLINE void kw_decide_##f(kw_str v) { kw_put_bytes(&kw_resources, n, v); }
KW_RESOURCE_FIELDS(KW_WRITE_NUMBER, KW_WRITE_TEXT)
KW_INLINE void kw_decide_unified(kw_str file, kw_str value) { kw_put_entry(&kw_resources, 14, file, value); }
KW_INLINE void kw_decide_annotation(kw_str key, kw_str value) { kw_put_entry(&kw_decision, 2, key, value); }
KW_INLINE void kw_decide_env(kw_str name, kw_str value) { kw_put_entry(&kw_decision, 3, name, value); }
KW_INLINE void kw_decide_mount(kw_str destination, kw_str source, kw_str type, kw_strs options) {
  kw_buf m = {0};
  kw_put_bytes(&m, 1, destination), kw_put_bytes(&m, 2, source), kw_put_bytes(&m, 3, type);
  for (uint32_t i = 0; i < options.n; i++) kw_put_bytes(&m, 4, options.of[i]);
  kw_put_message(&kw_decision, 4, &m);
}
KW_INLINE void kw_decide_device(kw_str path, kw_str type, int64_t major, int64_t minor) {
  kw_buf d = {0};
  kw_put_bytes(&d, 1, path), kw_put_bytes(&d, 2, type), kw_put_number(&d, 3, (uint64_t)major), kw_put_number(&d, 4, (uint64_t)minor);
  kw_put_message(&kw_decision, 5, &d);
}

// KW_HOOK returns KW_SUCCESS or kw_error.
#define KW_HOOK(request)                                                                         \
  KW_IMPLEMENTS(hook)                                                                            \
  static kw_result kw_point_hook(kw_HookRequest request);                                        \
  KW_EXPORT("hook") int32_t kw_export_hook(void) {                                               \
    kw_begin();                                                                                  \
    kw_resources = kw_decision = (kw_buf){0};                                                    \
    kw_result result = kw_point_hook(kw_HookRequest_of_proto(KW_ANSWER(kw_host_hook_request(buf, limit)))); \
    if (kw_resources.n) kw_put_message(&kw_decision, 1, &kw_resources);                          \
    if (kw_decision.n) kw_host_decision(kw_decision.p, kw_decision.n);                           \
    return (int32_t)result;                                                                      \
  }                                                                                              \
  static kw_result kw_point_hook(kw_HookRequest request)

// ---- Services ---------------------------------------------------------------------------

// What kubewasm gen --lang c writes of a service calls these.

KW_INLINE kw_str kw_service_request(void) { return KW_ANSWER(kw_host_service_request(buf, limit)); }

// The codes of errors of services, as in gRPC: those of google.rpc.Code. A host may return any other
// number, too. The code 1 of gRPC, CANCELLED, is not among them: it is KW_ERROR, an error without a code.
enum {
  KW_UNKNOWN = 2, KW_INVALID_ARGUMENT, KW_DEADLINE_EXCEEDED, KW_NOT_FOUND, KW_ALREADY_EXISTS, KW_PERMISSION_DENIED,
  KW_RESOURCE_EXHAUSTED, KW_FAILED_PRECONDITION, KW_ABORTED, KW_OUT_OF_RANGE, KW_UNIMPLEMENTED, KW_INTERNAL,
  KW_UNAVAILABLE, KW_DATA_LOSS, KW_UNAUTHENTICATED
};

// kw_error_as is kw_error with a code, for a method to return: kw_error_as(KW_NOT_FOUND, "no ", name).
// The code 0 is an error all the same.
KW_INLINE kw_result kw_coded(int32_t code) { return code ? (uint32_t)code : KW_ERROR; }
#define kw_error_as(code, ...) kw_because(kw_coded(code), kw_text(__VA_ARGS__))

// kw_answer is what a host service returned: the response, or the text of an error and its number,
// KW_ERROR without a code.
typedef struct { bool failed; kw_str bytes; int32_t code; } kw_answer;
KW_INLINE kw_answer kw_answer_of(uint64_t result) {
  uint32_t n = (uint32_t)(result >> 32);
  char *p = (char *)kw_take(n);
  if (kw_host_answer(p, n) != n) kw_die(KW("the host answered in another length than before"));
  return (kw_answer){(uint32_t)result != 0, {p, n}, (int32_t)result};
}

// KW_METHOD exports a method under its full name; request is a message and response a buffer to
// which the functions Response_put_… of the generated header add fields.
#define KW_METHOD(path, symbol, Request, request, response)                                      \
  static kw_result symbol(Request request, kw_buf *response);                                    \
  KW_EXPORT(path) int32_t symbol##_export(void) {                                                \
    kw_begin();                                                                                  \
    kw_buf kw_response = {0};                                                                    \
    kw_result result = symbol(Request##_of_proto(kw_service_request()), &kw_response);           \
    if (kw_response.n) kw_host_response(kw_response.p, kw_response.n);                           \
    return (int32_t)result;                                                                      \
  }                                                                                              \
  static kw_result symbol(Request request, kw_buf *response)
// KW_SERVES declares the extension points that a guest implements: their full names, each with a
// "\0" after it.
#define KW_SERVES(names)                                                                         \
  KW_IMPLEMENTS(services)                                                                        \
  KW_EXPORT("services") void kw_export_services(void) { kw_host_serve(names, sizeof(names) - 1); }

#endif
