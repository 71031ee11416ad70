// The policy of the benchmark in C, by abi/SPEC.md alone: the labels app and owner,
// and images of registry.example.com.
//
//   clang --target=wasm32 -O3 -msimd128 -nostdlib -Wl,--no-entry -o policy.wasm policy.c
#define IMPORT(m, n) __attribute__((import_module(m), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n)))
typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;

IMPORT("k8s.io/admission", "object") u32 object(u8 *buf, u32 limit);
IMPORT("kubewasm", "status_reason") void status_reason(const char *ptr, u32 len);

static u8 buf[4 << 20];

#define LOWS 0x0101010101010101ull
#define ZERO(w) (((w)-LOWS) & ~(w) & (LOWS * 0x80))

// after_string returns what follows the string whose first character is p. The
// object ends with a NUL.
static const u8 *after_string(const u8 *p) {
  for (;;) {
    u64 w = *(const u64 *)p;
    u64 m = ZERO(w ^ '"' * LOWS) | ZERO(w ^ '\\' * LOWS);
    if (!m) {
      p += 8;
      continue;
    }
    p += __builtin_ctzll(m) / 8;
    if (*p == '"') return p + 1;
    p += 2;
  }
}

static const u8 *space(const u8 *p) {
  while (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r') p++;
  return p;
}

// after_value returns what follows the value at p.
static const u8 *after_value(const u8 *p) {
  if (*p == '"') return after_string(p + 1);
  if (*p != '{' && *p != '[') {
    while (*p && *p != ',' && *p != '}' && *p != ']') p++;
    return p;
  }
  int depth = 0;
  for (; *p; p++) {
    switch (*p) {
      case '"':
        p = after_string(p + 1) - 1;
        break;
      case '{':
      case '[':
        depth++;
        break;
      case '}':
      case ']':
        if (--depth == 0) return p + 1;
    }
  }
  return p;
}

static int equal(const u8 *p, const char *word, u32 n) {
  for (u32 i = 0; i < n; i++)
    if (p[i] != (u8)word[i]) return 0;
  return p[n] == '"';
}

// member moves *p, which is in an object, to its next member: it sets key and
// returns the value, 0 at the end.
static const u8 *member(const u8 **p, const u8 **key) {
  const u8 *q = space(*p);
  if (*q == ',') q = space(q + 1);
  if (*q != '"') return 0;
  *key = q + 1;
  q = space(after_string(q + 1));
  if (*q != ':') return 0;
  q = space(q + 1);
  *p = after_value(q);
  return q;
}

// find returns the value of a member of the object at p, 0 if there is none.
static const u8 *find(const u8 *p, const char *name, u32 n) {
  const u8 *key, *value;
  if (!p || *p++ != '{') return 0;
  // The value of the last one would count, and an API server sends each once.
  for (;;) {
    const u8 *q = space(p);
    if (*q == ',') q = space(q + 1);
    if (*q != '"') return 0;
    key = q + 1;
    q = space(after_string(key));
    value = space(q + 1);
    if (equal(key, name, n)) return value;
    p = after_value(value);
  }
}
#define FIND(p, name) find(p, name, sizeof name - 1)

static u64 deny(const char *why, u32 n) {
  status_reason(why, n);
  return 2;
}
#define DENY(why) deny(why, sizeof why - 1)

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1ull << 32; }

EXPORT("validate") u64 validate(void) {
  static const char registry[] = "registry.example.com/";
  u32 n = object(buf, sizeof buf - 8);
  if (n > sizeof buf - 8) return 1;
  *(u64 *)(buf + n) = 0;
  const u8 *pod = space(buf), *labels = FIND(FIND(pod, "metadata"), "labels");
  if (!FIND(labels, "app")) return DENY("label app is missing");
  if (!FIND(labels, "owner")) return DENY("label owner is missing");
  const u8 *p = FIND(FIND(pod, "spec"), "containers");
  if (!p || *p++ != '[') return 0;
  for (;;) {
    p = space(p);
    if (*p == ',') p = space(p + 1);
    if (*p != '{') return 0;
    const u8 *image = FIND(p, "image");
    if (!image || *image++ != '"') return DENY("an image is missing");
    for (u32 i = 0; i < sizeof registry - 1; i++)
      if (image[i] != (u8)registry[i]) return DENY("an image comes from elsewhere");
    p = after_value(p);
  }
}
