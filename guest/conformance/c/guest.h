// What the guests share: imports, exports, memory, and a reader of protobuf.
#define IMPORT(m, n) __attribute__((import_module(m), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n)))
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned char u8;

IMPORT("kubewasm", "status_reason") void status_reason(const void *ptr, u32 len);

#define SAY(text) status_reason(text, sizeof(text) - 1)

extern u8 __heap_base;

// grow makes the memory from __heap_base on at least n bytes long.
static u8 *grow(u32 n) {
  u32 have = __builtin_wasm_memory_size(0) << 16, want = (u32)&__heap_base + n;
  if (want > have && __builtin_wasm_memory_grow(0, (want - have + 65535) >> 16) == (u32)-1) __builtin_trap();
  return &__heap_base;
}

typedef struct { const u8 *p, *end; } span;

static u32 len(span s) { return (u32)(s.end - s.p); }

static u32 equal(span s, const void *text, u32 n) {
  if (len(s) != n) return 0;
  for (u32 i = 0; i < n; i++)
    if (s.p[i] != ((const u8 *)text)[i]) return 0;
  return 1;
}
#define IS(s, text) equal(s, text, sizeof(text) - 1)

static u32 varint(span *s, u64 *v) {
  u32 shift = 0;
  for (*v = 0; s->p < s->end && shift < 64; shift += 7) {
    u8 b = *s->p++;
    *v |= (u64)(b & 127) << shift;
    if (b < 128) return 1;
  }
  return 0;
}

// next reads a field of a message: its number, and its bytes if it has any.
static u32 next(span *m, span *bytes) {
  u64 key, n;
  bytes->p = bytes->end = 0;
  if (m->p >= m->end || !varint(m, &key)) return 0;
  switch (key & 7) {
  case 0:
    return varint(m, &n) ? (u32)(key >> 3) : 0;
  case 1:
    n = 8;
    break;
  case 5:
    n = 4;
    break;
  case 2:
    if (varint(m, &n)) break;
  default:
    return 0;
  }
  if (n > len(*m)) return 0;
  bytes->p = m->p, bytes->end = m->p += n;
  return (u32)(key >> 3);
}

// field returns the last field of that number.
static span field(span m, u32 number) {
  span found = {0, 0}, bytes;
  for (u32 n; (n = next(&m, &bytes));)
    if (n == number) found = bytes;
  return found;
}

// lookup finds a key in the map field of that number, and counts its entries.
static u32 lookup(span m, u32 number, span key, span *value, u32 *entries) {
  u32 found = 0;
  span bytes;
  *entries = 0;
  for (u32 n; (n = next(&m, &bytes));) {
    if (n != number) continue;
    ++*entries;
    if (equal(field(bytes, 1), key.p, len(key))) *value = field(bytes, 2), found = 1;
  }
  return found;
}
#define SPAN(text) ((span){(const u8 *)text, (const u8 *)text + sizeof(text) - 1})
