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

static u8 buf[1 << 18];

static const u8 *varint(const u8 *p, const u8 *end, u64 *v) {
  u32 shift = 0;
  for (*v = 0; p < end && shift < 64; shift += 7) {
    u8 b = *p++;
    *v |= (u64)(b & 127) << shift;
    if (b < 128) return p;
  }
  return 0;
}

// Is the entry in [p, end) that of the annotation? If so, *value is its value.
static u32 entry(const u8 *p, const u8 *end, const u8 **value, u32 *len) {
  static const char want[] = "kubewasm.dev/cpu";
  u32 found = 0;
  for (u64 key, n; p < end; p += n) {
    if (!(p = varint(p, end, &key)) || !(p = varint(p, end, &n)) || n > (u64)(end - p)) return 0;
    if (key == 0x0a && n == sizeof want - 1) {
      u32 i = 0;
      while (i < n && p[i] == (u8)want[i]) i++;
      found = i == n;
    }
    if (key == 0x12) *value = p, *len = n;
  }
  return found;
}

static u8 *put(u8 *p, u8 field, u64 v) {
  for (*p++ = field << 3; v >= 128; v >>= 7) *p++ = v | 128;
  *p++ = v;
  return p;
}

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1ull << 48; } // hook

EXPORT("hook") u32 hook(void) {
  u32 size = request(buf, sizeof buf);
  if (size > sizeof buf) return 1;
  const u8 *p = buf, *end = buf + size, *value = 0;
  u32 len = 0;
  for (u64 key, n; p < end;) {
    if (!(p = varint(p, end, &key)) || !(p = varint(p, end, &n))) return 1;
    if ((key & 7) == 0) continue; // A number: n was its value.
    if ((key & 7) != 2 || n > (u64)(end - p)) return 1;
    const u8 *v;
    u32 l = 0;
    if (key == (6 << 3 | 2) && entry(p, p + n, &v, &l)) value = v, len = l; // pod_annotations
    p += n;
  }
  if (!value) return 0;
  u64 milli = 0;
  u32 i = 0;
  for (; i < len && value[i] >= '0' && value[i] <= '9'; i++) milli = milli * 10 + value[i] - '0';
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
