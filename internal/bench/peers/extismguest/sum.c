// The guest adds numbers of a protobuf message, by the functions of Extism's kernel. It is built
// with clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;
#define IMPORT(n) __attribute__((import_module("extism:host/env"), import_name(n)))

IMPORT("input_length") u64 input_length(void);
IMPORT("input_load_u64") u64 input_load_u64(u64 at);
IMPORT("input_load_u8") u32 input_load_u8(u64 at);
IMPORT("alloc") u64 allocate(u64 n);
IMPORT("store_u8") void store_u8(u64 at, u32 v);
IMPORT("store_u64") void store_u64(u64 at, u64 v);
IMPORT("output_set") void output_set(u64 at, u64 n);

static u8 in[256];

static u64 varint(u32 *i, u32 n) {
  u64 v = 0;
  for (u32 shift = 0; *i < n && shift < 64; shift += 7) {
    u8 c = in[(*i)++];
    v |= (u64)(c & 127) << shift;
    if (c < 128) break;
  }
  return v;
}

__attribute__((export_name("sum"))) u32 sum(void) {
  u32 n = (u32)input_length(), i = 0;
  if (n > sizeof in) return 1;
  for (; i + 8 <= n; i += 8) {
    u64 v = input_load_u64(i);
    __builtin_memcpy(in + i, &v, sizeof v);
  }
  for (; i < n; i++) in[i] = (u8)input_load_u8(i);
  double total = 0;
  for (i = 0; i < n;) {
    u64 key = varint(&i, n);
    if ((key & 7) == 1) {
      if (n - i < 8) return 1;
      double e;
      __builtin_memcpy(&e, in + i, sizeof e);
      i += 8;
      total += e;
    } else {
      u64 v = varint(&i, n);
      total += key >> 3 <= 2 ? (double)(long long)v : (double)v;
    }
  }
  u64 at = allocate(9), bits;
  __builtin_memcpy(&bits, &total, sizeof bits);
  store_u8(at, 1 << 3 | 1);
  store_u64(at + 1, bits);
  output_set(at, 9);
  return 0;
}
