// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o queue.wasm queue.c
#include "guest.h"

IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "result_cluster_events") void result_cluster_events(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "result_pods") void result_pods(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "result_sign_fragments") void result_sign_fragments(const void *ptr, u32 len);

enum { ERROR = 1, UNSCHEDULABLE = 2, UNRESOLVABLE = 3 };

EXPORT("kubewasm_abi_v1") u64 marker(void) {
  return 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 19 | 1 << 25;
}

// metadata is field 1 of every object.
static span metadata(u64 ref) { return field(READ(object(ref, buf, limit)), 1); }

EXPORT("preenqueue") u32 preenqueue(u64 pod) {
  begin();
  span m = metadata(pod);
  if (!HAS(m, "hold")) return 0;
  buffer reason = make(256);
  if (IS(LABEL(m, "hold"), "twice")) {
    ADD(&reason, "first\0second");
  } else {
    ADD(&reason, "held: ");
    add(&reason, LABEL(m, "hold"));
  }
  say(&reason);
  return UNRESOLVABLE;
}

EXPORT("queuesort") i32 queuesort(u64 first, u64 second, i64 first_time, i64 second_time) {
  begin();
  span a = LABEL(metadata(first), "order"), b = LABEL(metadata(second), "order");
  for (; a.p < a.end && b.p < b.end; a.p++, b.p++)
    if (*a.p != *b.p) return *a.p < *b.p ? -1 : 1;
  if (len(a) != len(b)) return len(a) < len(b) ? -1 : 1;
  return first_time > second_time ? -1 : first_time < second_time;
}

EXPORT("eventstoregister") u32 eventstoregister(void) {
  static const u32 events[] = {
      4, 1u << 31 | 1 << 3 | 1 << 0, // Node: UpdateNodeLabel and Add, with a hint
      1, 1u << 31 | 1 << 1,          // AssignedPod: Delete, with a hint
      6, 1 << 0,                     // PersistentVolumeClaim: Add
      0, 1u << 30 | 1 << 0,          // Pod: Add, with a hint for all Pods
  };
  result_cluster_events(events, sizeof events);
  return 0;
}

EXPORT("queueinghint") u64 queueinghint(u32 event, u64 pod, u64 old, u64 new) {
  begin();
  span m = metadata(pod);
  if (HAS(m, "puzzled")) {
    SAY("no hint");
    return ERROR;
  }
  u64 queue;
  if (event == 0) {
    span zone = LABEL(m, "zone");
    queue = same(zone, LABEL(metadata(new), "zone")) && (old == 0 || !same(zone, LABEL(metadata(old), "zone")));
  } else {
    queue = same(LABEL(m, "after"), field(metadata(old), 1)); // The name is field 1.
  }
  return queue << 32;
}

EXPORT("prequeueinghint") u32 prequeueinghint(u32 event, u64 old, u64 new) {
  begin();
  span m = metadata(new);
  if (HAS(m, "puzzled")) {
    SAY("no hint");
    return ERROR;
  }
  if (HAS(m, "everyone")) return 0;
  buffer pods = make(256);
  if (HAS(m, "before")) {
    ADD(&pods, "default\0");
    add(&pods, LABEL(m, "before"));
    ADD(&pods, "\0default\0always\0");
  }
  result_pods(pods.p, pods.n);
  return 0;
}

EXPORT("signpod") u32 signpod(u64 pod) {
  begin();
  span m = metadata(pod), zone = {0, 0};
  if (HAS(m, "unlike")) {
    SAY("unlike any other");
    return UNSCHEDULABLE;
  }
  u32 labels;
  lookup(m, 11, SPAN("zone"), &zone, &labels);
  buffer fragments = make(256);
  ADD(&fragments, "zone\0\"");
  add(&fragments, zone);
  ADD(&fragments, "\"\0labels\0");
  add_decimal(&fragments, labels);
  ADD(&fragments, "\0");
  result_sign_fragments(fragments.p, fragments.n);
  return 0;
}
