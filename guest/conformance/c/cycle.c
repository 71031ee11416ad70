// clang --target=wasm32 -O2 -fno-builtin -nostdlib -Wl,--no-entry -o cycle.wasm cycle.c
#include "guest.h"

IMPORT("k8s.io/api", "object") u32 object(u64 ref, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_names") u32 node_names(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_refs") u32 node_refs(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_info_version") u64 node_info_version(u64 node);
IMPORT("k8s.io/scheduler", "node_info") u32 node_info(u64 node, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_images") u32 node_images(u64 node, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_pods") u32 node_pods(u64 node, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_name") u32 node_name(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "node_statuses") u32 node_statuses(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "result_nominated_node_name") void result_nominated_node_name(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "event") void event(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "waiting_pods") u32 waiting_pods(void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "waiting_pod") u32 waiting_pod(const void *ptr, u32 len, void *buf, u32 limit);
IMPORT("k8s.io/scheduler", "allow_waiting_pod") u32 allow_waiting_pod(const void *ptr, u32 len);
IMPORT("k8s.io/scheduler", "reject_waiting_pod") u32 reject_waiting_pod(const void *ptr, u32 len);
IMPORT("k8s.io/api", "get_object") u32 get_object(const void *ptr, u32 len, void *buf, u32 limit);
IMPORT("k8s.io/api", "list_objects") u32 list_objects(const void *ptr, u32 len, void *buf, u32 limit);

enum { SLOTS = 1 << 12, ERROR = 1, UNSCHEDULABLE = 2, WAIT = 4, SKIP = 5, PENDING = 6 };

EXPORT("kubewasm_abi_v1") u64 marker(void) {
  u64 functions = 0;
  for (u32 f = 4; f <= 18; f++) // prefilter to postbind
    if (f != 11) functions |= 1ull << f; // normalizescore
  functions |= 1ull << 24; // clonecycle
  return functions;
}

// name is that of a Node, of at most 253 bytes.
typedef struct { u8 n, bytes[255]; } name;

static void keep(name *to, span s) {
  if (len(s) > sizeof to->bytes) __builtin_trap();
  to->n = len(s);
  for (u32 i = 0; i < to->n; i++) to->bytes[i] = s.p[i];
}
static span kept(const name *n) { return (span){n->bytes, n->bytes + n->n}; }

// What is remembered of cycles, and of nodes by the versions that it was told in.
static struct { u32 version, nodes; i32 total; name first, reserved; } cycles[SLOTS];
static struct { u64 ref, version; i64 requested, allocatable, image; } infos[SLOTS];

static u32 slot(u64 ref) {
  if ((u32)ref >= SLOTS) __builtin_trap();
  return (u32)ref;
}

// cycle_of returns the slot of a cycle that prefilter has begun.
static u32 cycle_of(u64 cycle) {
  u32 i = slot(cycle);
  if (cycles[i].version != (u32)(cycle >> 32)) __builtin_trap();
  return i;
}

// ref cuts the first ref off a list.
static u64 ref(span *list) {
  u64 first;
  __builtin_memcpy(&first, list->p, sizeof first);
  list->p += sizeof first;
  return first;
}

static span metadata(u64 ref) { return field(READ(object(ref, buf, limit)), 1); }

// look returns the slot of a node about which node_info and node_images were asked
// in its current version.
static u32 look(u64 node) {
  u32 i = slot(node);
  u64 version = node_info_version(node);
  if (infos[i].ref == node && infos[i].version == version) return i;
  span info = READ(node_info(node, buf, limit)), images = READ(node_images(node, buf, limit)), image;
  infos[i].ref = node, infos[i].version = version, infos[i].image = 0;
  infos[i].requested = number(field(info, 1), 1);
  infos[i].allocatable = number(field(info, 3), 1);
  for (u32 n; (n = next(&images, &image));)
    if (n == 1 && IS(field(image, 1), "web:1")) infos[i].image = number(image, 2);
  return i;
}

// here counts the Pods of an app on a node.
static u32 here(u64 node, span app) {
  u32 n = 0;
  for (span pods = READ(node_pods(node, buf, limit)); pods.p < pods.end;) n += same(app, LABEL(metadata(ref(&pods)), "app"));
  return n;
}

EXPORT("prefilter") u32 prefilter(u64 cycle, u64 pod) {
  begin();
  span app = LABEL(metadata(pod), "app"), nodes = READ(node_refs(buf, limit));
  u32 i = slot(cycle);
  cycles[i].version = (u32)(cycle >> 32);
  cycles[i].total = 0;
  keep(&cycles[i].reserved, SPAN("nothing"));
  while (nodes.p < nodes.end) cycles[i].total += here(ref(&nodes), app);
  return 0;
}

EXPORT("clonecycle") u32 clonecycle(u64 cycle, u64 from) {
  u32 i = slot(cycle), original = cycle_of(from);
  cycles[i].version = (u32)(cycle >> 32);
  cycles[i].total = cycles[original].total;
  cycles[i].nodes = cycles[original].nodes;
  keep(&cycles[i].first, kept(&cycles[original].first));
  keep(&cycles[i].reserved, kept(&cycles[original].reserved));
  return 0;
}

EXPORT("addpod") u32 addpod(u64 cycle, u64 pod, u64 added, u64 node) {
  begin();
  cycles[cycle_of(cycle)].total += same(LABEL(metadata(pod), "app"), LABEL(metadata(added), "app"));
  return 0;
}

EXPORT("removepod") u32 removepod(u64 cycle, u64 pod, u64 removed, u64 node) {
  begin();
  cycles[cycle_of(cycle)].total -= same(LABEL(metadata(pod), "app"), LABEL(metadata(removed), "app"));
  return 0;
}

EXPORT("filter") u32 filter(u64 cycle, u64 pod, u64 node) {
  begin();
  u32 i = look(node);
  buffer reason = make(256);
  ADD(&reason, "total=");
  add_decimal(&reason, cycles[cycle_of(cycle)].total);
  ADD(&reason, " here=");
  add_decimal(&reason, here(node, LABEL(metadata(pod), "app")));
  ADD(&reason, " cpu=");
  add_decimal(&reason, infos[i].requested);
  ADD(&reason, "/");
  add_decimal(&reason, infos[i].allocatable);
  ADD(&reason, " image=");
  add_decimal(&reason, infos[i].image);
  say(&reason);
  return UNSCHEDULABLE;
}

EXPORT("postfilter") u64 postfilter(u64 cycle, u64 pod) {
  begin();
  const u64 override = 1ull << 32;
  if (HAS(metadata(pod), "clear")) return override;
  span statuses = READ(node_statuses(buf, limit)), status;
  for (u32 n; (n = next(&statuses, &status));) {
    if (n != 1 || number(status, 2) != UNSCHEDULABLE || !IS(field(status, 3), "full")) continue;
    span node = field(status, 1);
    result_nominated_node_name(node.p, len(node));
    return override;
  }
  buffer reason = make(256);
  ADD(&reason, "none of ");
  u32 nodes = 0;
  for (span names = READ(node_names(buf, limit)); names.p < names.end; nodes++) cut(&names);
  add_decimal(&reason, nodes);
  ADD(&reason, " nodes");
  say(&reason);
  return UNSCHEDULABLE;
}

EXPORT("prescore") u32 prescore(u64 cycle, u64 pod) {
  begin();
  u32 i = cycle_of(cycle);
  span names = READ(node_names(buf, limit));
  for (cycles[i].nodes = 0; names.p < names.end; cycles[i].nodes++) {
    span node = cut(&names);
    if (cycles[i].nodes == 0) keep(&cycles[i].first, node);
  }
  return 0;
}

EXPORT("score") u64 score(u64 cycle, u64 pod, u64 node) {
  begin();
  u32 i = cycle_of(cycle), first = same(kept(&cycles[i].first), field(metadata(node), 1));
  return (u64)(cycles[i].nodes * (first ? 10 : 1)) << 32;
}

EXPORT("reserve") u32 reserve(u64 cycle, u64 pod) {
  begin();
  span node = READ(node_name(buf, limit));
  keep(&cycles[cycle_of(cycle)].reserved, node);
  if (!same(node, LABEL(metadata(pod), "refuse"))) return 0;
  SAY("refused");
  return UNSCHEDULABLE;
}

// report reports an event about the Pod of the call, whose action is Binding.
static void report(span type, span reason, span note) {
  buffer e = make(1024);
  add_field(&e, 1, type);
  add_field(&e, 2, reason);
  add_field(&e, 3, SPAN("Binding"));
  add_field(&e, 4, note);
  event(e.p, e.n);
}

EXPORT("unreserve") void unreserve(u64 cycle, u64 pod) {
  begin();
  buffer note = make(600);
  add(&note, READ(node_name(buf, limit)));
  ADD(&note, ", reserved ");
  add(&note, kept(&cycles[cycle_of(cycle)].reserved));
  report(SPAN("Warning"), SPAN("Unreserved"), all(&note));
}

// reject rejects a Pod that waits, which is a WaitingPod.
static u32 reject(span pod) {
  buffer text = make(4096);
  add(&text, field(pod, 1));
  ADD(&text, "\0");
  add(&text, field(pod, 3));
  ADD(&text, " waits for ");
  span plugin;
  u32 plugins = 0;
  for (u32 n; (n = next(&pod, &plugin));) {
    if (n != 4) continue;
    if (plugins++) ADD(&text, ",");
    add(&text, plugin);
  }
  return reject_waiting_pod(text.p, text.n);
}

EXPORT("permit") u64 permit(u64 cycle, u64 pod) {
  begin();
  span m = metadata(pod), action = LABEL(m, "permit");
  if (IS(action, "wait")) return 1500ull << 32 | WAIT;
  if (IS(action, "deny")) {
    buffer reason = make(300);
    ADD(&reason, "denied on ");
    add(&reason, READ(node_name(buf, limit)));
    say(&reason);
    return UNSCHEDULABLE;
  }
  u32 allows = IS(action, "allow");
  if (allows || IS(action, "reject")) {
    span group = LABEL(m, "group"), pods = READ(waiting_pods(buf, limit)), other;
    u32 waited = 0;
    for (u32 n; (n = next(&pods, &other));) {
      if (n != 1) continue;
      span uid = field(other, 1), object = READ(waiting_pod(uid.p, len(uid), buf, limit));
      if (!same(group, LABEL(field(object, 1), "group"))) continue;
      waited |= allows ? allow_waiting_pod(uid.p, len(uid)) : reject(other);
    }
    if (waited) return 0;
    SAY("nobody waits");
    return UNSCHEDULABLE;
  }
  if (IS(action, "ghost")) {
    // A UID without a reason is a request to reject, too.
    if (waiting_pod("ghost", 5, 0, 0) || allow_waiting_pod("ghost", 5) || reject_waiting_pod("ghost", 5)) return 0;
    SAY("there is no ghost");
    return UNSCHEDULABLE;
  }
  return 0;
}

EXPORT("prebindpreflight") u64 prebindpreflight(u64 cycle, u64 pod) {
  begin();
  span m = metadata(pod);
  if (!HAS(m, "claim")) return SKIP;
  return (u64)HAS(m, "parallel") << 32;
}

// claims counts the claims of a namespace, or of all.
static u32 claims(span namespace) {
  buffer text = make(512);
  ADD(&text, "v1/persistentvolumeclaims\0");
  add(&text, namespace);
  return count(READ(list_objects(text.p, text.n, buf, limit)), 1);
}

EXPORT("prebind") u32 prebind(u64 cycle, u64 pod) {
  begin();
  span m = metadata(pod), namespace = field(m, 3), claim = LABEL(m, "claim");
  buffer question = make(512), reason = make(1024);
  ADD(&question, "v1/persistentvolumeclaims\0");
  add(&question, namespace);
  ADD(&question, "\0");
  add(&question, claim);
  span object = READ(get_object(question.p, question.n, buf, limit));
  if (len(object) == 0) {
    ADD(&reason, "no claim ");
    add(&reason, namespace);
    ADD(&reason, "/");
    add(&reason, claim);
    say(&reason);
    return ERROR;
  }
  span volume = field(field(object, 2), 3); // spec.volumeName
  if (len(volume) == 0) {
    ADD(&reason, "claim ");
    add(&reason, claim);
    ADD(&reason, " is not bound");
    say(&reason);
    return PENDING;
  }
  add(&reason, volume);
  ADD(&reason, ", ");
  add_decimal(&reason, claims(namespace));
  ADD(&reason, " claims of ");
  add_decimal(&reason, claims(SPAN("")));
  say(&reason);
  return UNSCHEDULABLE;
}

EXPORT("bind") u32 bind(u64 cycle, u64 pod) {
  begin();
  if (!IS(LABEL(metadata(pod), "bind"), "self")) return SKIP;
  span node = READ(node_name(buf, limit)), reserved = kept(&cycles[cycle_of(cycle)].reserved);
  if (same(node, reserved)) return 0;
  buffer reason = make(600);
  add(&reason, node);
  ADD(&reason, " is not ");
  add(&reason, reserved);
  say(&reason);
  return ERROR;
}

EXPORT("postbind") void postbind(u64 cycle, u64 pod) {
  begin();
  buffer note = make(300);
  ADD(&note, "to ");
  add(&note, READ(node_name(buf, limit)));
  report(SPAN("Normal"), SPAN("Bound"), all(&note));
}
