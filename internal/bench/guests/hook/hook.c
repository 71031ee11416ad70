// The runtime hook of examples/hooks/cpu-from-annotation in C, for the benchmark:
// what a guest costs without the Go runtime.
//
// clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o hook.wasm hook.c
#define IMPORT(m, n) __attribute__((import_module(m), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n)))
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

IMPORT("k8s.io/hooks", "request") u32 request(u8 *buf, u32 limit);
IMPORT("k8s.io/hooks", "decision") void decision(const u8 *ptr, u32 len);

enum { LIMIT = 1 << 18, POD_ANNOTATIONS = 6 << 3 | 2 };

// A load of eight bytes may reach beyond the request, not beyond the buffer.
static u8 buf[LIMIT + 8];

static u64 load64(const u8 *p) {
  u64 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

static const u8 *varint(const u8 *p, const u8 *end, u64 *v) {
  u32 shift = 0;
  for (*v = 0; p < end && shift < 64; shift += 7) {
    u8 b = *p++;
    *v |= (u64)(b & 127) << shift;
    if (b < 128) return p;
  }
  return 0;
}

// header reads the key of a field and its number or length, of any size.
__attribute__((noinline)) static const u8 *header(const u8 *p, const u8 *end, u64 *key, u64 *n) {
  return (p = varint(p, end, key)) ? varint(p, end, n) : 0;
}

// annotation reports whether 16 bytes are the key of the annotation.
static u32 annotation(const u8 *p) {
  static const char key[] = "kubewasm.dev/cpu";
  return ((load64(p) ^ load64((const u8 *)key)) | (load64(p + 8) ^ load64((const u8 *)key + 8))) == 0;
}

// any_entry is entry for what no encoder writes.
__attribute__((noinline)) static u32 any_entry(const u8 *p, const u8 *end, const u8 **value, u32 *len) {
  u32 found = 0;
  *value = p, *len = 0;
  for (u64 key, n; p < end; p += n) {
    if (!(p = header(p, end, &key, &n)) || (key & 7) != 2 || n > (u64)(end - p)) return 0;
    if (key == 0x0a) found = n == 16 && annotation(p);
    if (key == 0x12) *value = p, *len = n;
  }
  return found;
}

// Is the entry in [p, end) that of the annotation? If so, *value is its value.
static u32 entry(const u8 *p, const u8 *end, const u8 **value, u32 *len) {
  // The key comes first, and each length in as few bytes as it needs.
  u32 n = end - p;
  if (n < 4 || p[0] != 0x0a || p[1] >= 128) return any_entry(p, end, value, len);
  if (p[1] != 16) return 0;
  if (n < 20 || p[18] != 0x12 || p[19] != n - 20) return any_entry(p, end, value, len);
  *value = p + 20, *len = n - 20;
  return annotation(p + 2);
}

static u8 *put(u8 *p, u8 field, u32 v) {
  for (*p++ = field << 3; v >= 128; v >>= 7) *p++ = v | 128;
  *p++ = v;
  return p;
}

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1ull << 48; } // hook

EXPORT("hook") u32 hook(void) {
  u32 size = request(buf, LIMIT);
  if (size > LIMIT) return 1;
  const u8 *p = buf, *end = buf + size, *value;
  u32 len;
  for (;;) {
    // Fields come in the order of their numbers. Most have a key of one byte, of
    // wire type 0 or 2, and a number or a length of one byte, too.
    u64 head = load64(p), key = head & 0xff, n = head >> 8 & 0xff;
    if (p >= end || key > POD_ANNOTATIONS) return 0;
    const u8 *at = p + 2;
    if (head & 0x8005) {
      if (!(at = header(p, end, &key, &n)) || key & 5 || (key & 2 && n > LIMIT)) return 1;
    }
    n &= -(key >> 1 & 1); // A number is followed by nothing.
    if (key == POD_ANNOTATIONS && at + n <= end && entry(at, at + n, &value, &len)) break;
    p = at + n;
  }
  u32 milli = 0, i = 0;
  for (; i < len && value[i] >= '0' && value[i] <= '9' && milli <= 256000; i++) milli = milli * 10 + value[i] - '0';
  if (i + 1 == len && value[i] == 'm') i++;
  else milli *= 1000;
  if (i != len || milli == 0 || milli > 256000) return 1;
  static u8 out[40];
  u8 *q = out + 2;
  q = put(q, 1, milli * 1024 / 1000); // cpu_shares
  q = put(q, 2, milli * 100);         // cfs_quota_us
  q = put(q, 3, 100000);              // cfs_period_us
  out[0] = 0x0a;
  out[1] = q - out - 2;
  decision(out, q - out);
  return 0;
}
