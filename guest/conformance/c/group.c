// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o group.wasm group.c
#include "guest.h"

IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "pod_group") u32 pod_group(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "pod_group_pod") u32 pod_group_pod(u32 index, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "try_pod_group") u32 try_pod_group(const void *ptr, u32 len, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "result_nominations") void result_nominations(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "node_names") u32 node_names(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_by_name") u64 node_by_name(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "result_placements") void result_placements(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "placement") u32 placement(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_scores") u32 node_scores(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "result_scores") void result_scores(const void *ptr, u32 len);

enum { ERROR = 1, UNSCHEDULABLE = 2 };

EXPORT("kubewasm_abi_v1") u64 marker(void) { return 1 << 20 | 1 << 21 | 1 << 22 | 1 << 23; }

// nominate adds a Pod with its node to Nominations.
static void nominate(buffer *nominations, span namespace, span name, span node) {
  buffer assignment = make(1024);
  add_field(&assignment, 1, namespace);
  add_field(&assignment, 2, name);
  add_field(&assignment, 3, node);
  add_field(nominations, 1, all(&assignment));
}

// try tries the group out without Pods and nominates what the trial assigned.
static u32 try(const buffer *uids, buffer *nominations) {
  span trial = READ(try_pod_group(uids->p, uids->n, buf, limit)), assignment;
  i64 code = number(trial, 1);
  if (code != 0) {
    buffer reason = make(4096);
    ADD(&reason, "trial: ");
    add_decimal(&reason, code);
    ADD(&reason, " ");
    add(&reason, field(trial, 2));
    say(&reason);
    return UNSCHEDULABLE;
  }
  for (u32 n; (n = next(&trial, &assignment));)
    if (n == 3) nominate(nominations, field(assignment, 1), field(assignment, 2), field(assignment, 3));
  result_nominations(nominations->p, nominations->n);
  return 0;
}

EXPORT("podgrouppostfilter") u32 podgrouppostfilter(u64 cycle) {
  begin();
  span group = READ(pod_group(buf, limit));
  u32 pods = number(group, 4);
  buffer uids = make(1 << 16), nominations = make(1 << 16);
  for (u32 i = 0; i < pods; i++) {
    span m = field(READ(pod_group_pod(i, buf, limit)), 1);
    if (HAS(m, "evict")) {
      add(&uids, LABEL(m, "evict"));
      ADD(&uids, "\0");
    }
    if (HAS(m, "node")) nominate(&nominations, field(m, 3), field(m, 1), LABEL(m, "node"));
  }
  if (uids.n) {
    nominations.n = 0;
    return try(&uids, &nominations);
  }
  if (nominations.n) {
    result_nominations(nominations.p, nominations.n);
    return 0;
  }
  buffer reason = make(1024);
  add(&reason, field(group, 1));
  ADD(&reason, " ");
  add(&reason, field(group, 2));
  ADD(&reason, "/");
  add(&reason, field(group, 3));
  ADD(&reason, " of ");
  add_decimal(&reason, pods);
  ADD(&reason, " Pods is stuck");
  say(&reason);
  return UNSCHEDULABLE;
}

EXPORT("generateplacements") u32 generateplacements(u64 cycle) {
  begin();
  enum { RACKS = 64 };
  struct { span name; buffer placement; } racks[RACKS];
  u32 count = 0;
  for (span names = READ(node_names(buf, limit)); names.p < names.end;) {
    span name = cut(&names);
    u64 node = node_by_name(name.p, len(name));
    if (!node) continue;
    span m = field(READ(object(node, buf, limit)), 1), rack = LABEL(m, "rack");
    if (!HAS(m, "rack")) continue;
    u32 i = 0;
    while (i < count && !same(racks[i].name, rack)) i++;
    if (i == count) {
      if (count++ == RACKS) __builtin_trap();
      racks[i].name = rack;
      racks[i].placement = make(1 << 14);
      add_field(&racks[i].placement, 1, rack);
    }
    add_field(&racks[i].placement, 2, name);
  }
  if (count == 0) {
    SAY("no racks");
    return UNSCHEDULABLE;
  }
  buffer placements = make(1 << 16);
  for (u32 i = 0; i < count; i++) add_field(&placements, 1, all(&racks[i].placement));
  result_placements(placements.p, placements.n);
  return 0;
}

EXPORT("scoreplacement") u64 scoreplacement(u64 cycle) {
  begin();
  span p = READ(placement(buf, limit)), bytes;
  if (IS(field(p, 1), "odd")) {
    SAY("odd");
    return ERROR;
  }
  i32 score = -(i32)count(p, 2);
  span assignments = p;
  for (u32 n; (n = next(&assignments, &bytes));) {
    if (n != 3) continue;
    span nodes = p, node;
    for (u32 m; (m = next(&nodes, &node));)
      if (m == 2 && same(node, field(bytes, 3))) {
        score += 10;
        break;
      }
  }
  return (u64)(u32)score << 32;
}

EXPORT("normalizeplacementscore") u32 normalizeplacementscore(u64 cycle) {
  begin();
  span bytes = READ(node_scores(buf, limit)); // At an address that 8 divides.
  i64 *scores = (i64 *)bytes.p;
  u32 n = len(bytes) / 8;
  i64 highest = scores[0];
  for (u32 i = 1; i < n; i++)
    if (scores[i] > highest) highest = scores[i];
  for (u32 i = 0; i < n; i++) {
    scores[i] += 100 - highest;
    if (scores[i] < 0) scores[i] = 0;
  }
  result_scores(scores, n * 8);
  return 0;
}
