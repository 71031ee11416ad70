// The guest of guests/measure in C, from section 9 of the SPEC alone.
#include "guest.h"

#define MEASURE "kubewasm.bench.v1.Measure"

IMPORT("kubewasm/service", "request") u32 request(void *buf, u32 limit);
IMPORT("kubewasm/service", "response") void response(const void *ptr, u32 len);
IMPORT("kubewasm/service", "serve") void serve(const void *ptr, u32 len);
IMPORT("k8s.io/api", "object_entry") u32 object_entry(u64 ref, u32 field, const void *ptr, u32 len, void *buf, u32 limit);

enum { LABELS = 11, NO_ENTRY = -1 };

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1ull << 60; }

EXPORT("services") void services(void) { serve(MEASURE, sizeof MEASURE); }

EXPORT(MEASURE "/Sum") u32 sum(void) {
  begin();
  span message = READ(request(buf, limit)), bytes;
  double total = 0;
  u64 v = 0;
  for (u32 n; (n = next_value(&message, &bytes, &v));) {
    if (n == 5) {
      double e;
      __builtin_memcpy(&e, bytes.p, sizeof e);
      total += e;
      continue;
    }
    total += n == 1 || n == 2 ? (double)(i64)v : (double)v;
  }
  u8 answer[9] = {1 << 3 | 1};
  __builtin_memcpy(answer + 1, &total, sizeof total);
  response(answer, sizeof answer);
  return 0;
}

// The label of the Pod that was asked for last: a ref names one version of it.
static u64 known;
static u8 zone[2 + 127] = {1 << 3 | 2};

EXPORT(MEASURE "/Zone") u32 zone_of(void) {
  begin();
  span message = READ(request(buf, limit)), bytes;
  u64 ref = 0;
  for (u32 n; (n = next(&message, &bytes));)
    if (n == 1) __builtin_memcpy(&ref, bytes.p, sizeof ref);
  if (ref && ref != known) {
    u32 n = object_entry(ref, LABELS, "zone", 4, zone + 2, sizeof zone - 2);
    zone[1] = n > sizeof zone - 2 ? 0 : (u8)n; // NO_ENTRY is more, too.
    known = ref;
  }
  if (ref) response(zone, 2 + zone[1]);
  return 0;
}
