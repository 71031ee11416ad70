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

// take returns room for n bytes that nobody has, until begin gives all of it back.
static u8 *top;

static u8 *take(u32 n) {
  u32 used = top - &__heap_base;
  grow(used + n + 8);
  u8 *room = (u8 *)(((u32)top + 7) & ~7u);
  top = room + n;
  return room;
}

// begin is called first in an exported function that takes.
static void begin(void) { top = &__heap_base; }

typedef struct { const u8 *p, *end; } span;

// READ is the answer of a host function by the buffer-limit rule. The call in the
// brackets has buf and limit as its last arguments. The buffer is small, so that
// the second attempt is tried as well.
#define READ(call)                          \
  ({                                        \
    u32 limit = 256, size;                  \
    u8 *buf = take(limit);                  \
    if ((size = (call)) > limit) {          \
      buf = take(limit = size);             \
      if ((call) != size) __builtin_trap(); \
    }                                       \
    (span){buf, buf + size};                \
  })

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

// next_value reads a field of a message: its number and its bytes, of a varint as they
// stand there, and its value.
static u32 next_value(span *m, span *bytes, u64 *value) {
  u64 key, n;
  bytes->p = bytes->end = 0;
  if (m->p >= m->end || !varint(m, &key)) return 0;
  switch (key & 7) {
  case 0:
    bytes->p = m->p;
    if (!varint(m, value)) return 0;
    bytes->end = m->p;
    return (u32)(key >> 3);
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

// next is next_value without the value.
static u32 next(span *m, span *bytes) {
  u64 value;
  return next_value(m, bytes, &value);
}

// field returns the last field of that number.
static span field(span m, u32 number) {
  span found = {0, 0}, bytes;
  for (u32 n; (n = next(&m, &bytes));)
    if (n == number) found = bytes;
  return found;
}

// number returns the last field of that number, which is one, and 0 if there is none.
static i64 number(span m, u32 field_number) {
  span bytes = field(m, field_number);
  u64 v;
  varint(&bytes, &v);
  return (i64)v;
}

// count returns how often there is a field of that number.
static u32 count(span m, u32 number) {
  u32 times = 0;
  span bytes;
  for (u32 n; (n = next(&m, &bytes));) times += n == number;
  return times;
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

// LABEL is a label of an object, and HAS says whether there is one. Its labels
// are field 11 of the metadata.
static span label_of(span metadata, span key) {
  span value = {0, 0};
  u32 entries;
  lookup(metadata, 11, key, &value, &entries);
  return value;
}
static u32 has_label(span metadata, span key) {
  span value;
  u32 entries;
  return lookup(metadata, 11, key, &value, &entries);
}
#define LABEL(metadata, text) label_of(metadata, SPAN(text))
#define HAS(metadata, text) has_label(metadata, SPAN(text))

static u32 same(span a, span b) { return equal(a, b.p, len(b)); }

// cut takes the text before the next NUL from a list.
static span cut(span *list) {
  span text = *list;
  while (*list->p) list->p++;
  text.end = list->p++;
  return text;
}

// buffer is what a guest writes: a text, or a message.
typedef struct { u8 *p; u32 n, room; } buffer;

static buffer make(u32 room) { return (buffer){take(room), 0, room}; }
static span all(const buffer *b) { return (span){b->p, b->p + b->n}; }

static void add(buffer *b, span s) {
  if (len(s) > b->room - b->n) __builtin_trap();
  for (u32 i = 0; i < len(s); i++) b->p[b->n + i] = s.p[i];
  b->n += len(s);
}
#define ADD(b, text) add(b, SPAN(text))

static void add_decimal(buffer *b, i64 v) {
  u8 digits[20];
  u32 i = sizeof digits;
  u64 rest = v < 0 ? -(u64)v : (u64)v;
  do digits[--i] = '0' + rest % 10;
  while (rest /= 10);
  if (v < 0) ADD(b, "-");
  add(b, (span){digits + i, digits + sizeof digits});
}

// add_field adds a field of bytes to a message.
static void add_field(buffer *b, u32 number, span bytes) {
  u8 head[6] = {(u8)(number << 3 | 2)};
  u32 i = 1, n = len(bytes);
  for (; n > 127; n >>= 7) head[i++] = (u8)(n | 128);
  head[i++] = (u8)n;
  add(b, (span){head, head + i});
  add(b, bytes);
}

static void say(const buffer *b) { status_reason(b->p, b->n); }
