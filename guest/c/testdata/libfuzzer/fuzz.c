// A target of libFuzzer that reads any bytes by the readers of kubewasm.h: see fuzz_test.go. The
// sanitizers end it at a read beyond the bytes, and at what C leaves undefined.
#include <kubewasm.h>
#include <kubewasm/apps/apps.h>

// What the host answers about objects by ref: parts of the input.
static kw_str answers;

static uint32_t answer(void *buf, uint32_t limit) {
  if (answers.n && answers.n <= limit) kw_copy(buf, answers.p, answers.n);
  return answers.n;
}
uint32_t kw_host_object(uint64_t ref, void *buf, uint32_t limit) { return (void)ref, answer(buf, limit); }
uint32_t kw_host_object_part(uint64_t ref, uint32_t part, uint64_t fields, void *buf, uint32_t limit) {
  return (void)ref, (void)part, (void)fields, answer(buf, limit);
}
uint32_t kw_host_object_entry(uint64_t ref, uint32_t field, const void *p, uint32_t n, void *buf, uint32_t limit) {
  (void)ref, (void)field, (void)p;
  return n % 3 == 0 ? (uint32_t)-1 : answer(buf, limit);
}

// read is what was read: without it the compiler leaves the readers out.
static volatile uint64_t read;

static void use(kw_str s) {
  for (uint32_t i = 0; i < s.n; i++) read += (uint8_t)s.p[i];
}

static void use_map(kw_map m) {
  kw_str found;
  KW_EACH_ENTRY(key, value, m) {
    use(key), use(value);
    if (!kw_lookup(m, key, &found)) kw_die(KW("a key that is there is not found"));
    use(found);
  }
  use(kw_value(m, "app"));
}

static void use_amounts(kw_map m) {
  kw_quantity q;
  if (kw_lookup_quantity(m, "cpu", &q)) read += (uint64_t)kw_quantity_milli(kw_quantity_add(q, q)) + (uint64_t)kw_quantity_value(q);
}

static void use_metadata(meta_ObjectMeta m) {
  use(meta_ObjectMeta_name(m)), use(meta_ObjectMeta_uid(m)), use(meta_ObjectMeta_resourceVersion(m));
  use_map(meta_ObjectMeta_labels(m)), use_map(meta_ObjectMeta_annotations(m));
  read += (uint64_t)meta_ObjectMeta_creationTimestamp(m).seconds;
  KW_EACH(meta_OwnerReference, o, meta_ObjectMeta_ownerReferences(m)) use(meta_OwnerReference_name(o)), read += meta_OwnerReference_controller(o);
  KW_EACH_STRING(f, meta_ObjectMeta_finalizers(m)) use(f);
}

static void use_container(core_Container c) {
  use(core_Container_name(c)), use(core_Container_image(c));
  KW_EACH_STRING(word, core_Container_command(c)) use(word);
  KW_EACH(core_ContainerPort, p, core_Container_ports(c)) read += (uint64_t)core_ContainerPort_hostPort(p);
  KW_EACH(core_EnvVar, e, core_Container_env(c)) use(core_EnvVar_name(e)), use(core_EnvVar_value(e));
  use_amounts(core_ResourceRequirements_requests(core_Container_resources(c)));
  use_amounts(core_ResourceRequirements_limits(core_Container_resources(c)));
  core_Probe probe = core_Container_livenessProbe(c);
  kw_intstr port = core_HTTPGetAction_port(core_ProbeHandler_httpGet(core_Probe_handler(probe)));
  use(port.string), read += (uint64_t)port.number;
}

static void use_pod(core_Pod pod, core_Node node) {
  core_PodSpec s = core_Pod_spec(pod);
  use_metadata(core_Pod_metadata(pod));
  KW_EACH(core_Container, c, core_PodSpec_containers(s)) use_container(c);
  KW_EACH(core_Container, c, core_PodSpec_initContainers(s)) use_container(c);
  KW_EACH(core_Volume, v, core_PodSpec_volumes(s)) use(core_Volume_name(v));
  KW_EACH(core_Toleration, t, core_PodSpec_tolerations(s)) use(core_Toleration_key(t)), read += (uint64_t)core_Toleration_tolerationSeconds(t);
  use_map(core_PodSpec_nodeSelector(s)), use_amounts(core_PodSpec_overhead(s));
  read += (uint64_t)core_PodSpec_priority(s) + core_PodSpec_hostNetwork(s);
  core_Affinity affinity = core_PodSpec_affinity(s);
  KW_EACH(core_PodAffinityTerm, t, core_PodAffinity_requiredDuringSchedulingIgnoredDuringExecution(core_Affinity_podAffinity(affinity))) {
    bool valid;
    read += kw_selects(core_PodAffinityTerm_labelSelector(t), meta_ObjectMeta_labels(core_Pod_metadata(pod)), &valid);
  }
  core_Taint taint;
  read += kw_pod_matches_node(pod, node);
  if (kw_find_untolerated(core_NodeSpec_taints(core_Node_spec(node)), core_PodSpec_tolerations(s), &taint)) use(kw_taint_text(taint));
  use(core_PodStatus_phase(core_Pod_status(pod)));
  KW_EACH(core_PodCondition, c, core_PodStatus_conditions(core_Pod_status(pod))) read += (uint64_t)core_PodCondition_lastTransitionTime(c).seconds;
}

static void use_node(core_Node node) {
  use_metadata(core_Node_metadata(node));
  use_amounts(core_NodeStatus_allocatable(core_Node_status(node)));
  KW_EACH(core_ContainerImage, i, core_NodeStatus_images(core_Node_status(node))) {
    read += (uint64_t)core_ContainerImage_sizeBytes(i);
    KW_EACH_STRING(name, core_ContainerImage_names(i)) use(name);
  }
}

static void use_deployment(apps_Deployment d) {
  use_metadata(apps_Deployment_metadata(d));
  apps_DeploymentSpec s = apps_Deployment_spec(d);
  read += (uint64_t)apps_DeploymentSpec_replicas(s);
  kw_intstr surge = apps_RollingUpdateDeployment_maxSurge(apps_DeploymentStrategy_rollingUpdate(apps_DeploymentSpec_strategy(s)));
  use(surge.string);
}

static bool is_utf8(kw_str text) {
  for (const char *p = text.p, *end = p + text.n; p < end;) {
    uint32_t n = kw_rune_length(p, end);
    if (!n) return false;
    p += n;
  }
  return true;
}

static void use_json(kw_str text) {
  kw_str key, value;
  read += kw_json_valid(text);
  for (kw_members m = kw_json_members(text); kw_json_next(&m, &key, &value);) use(kw_json_unescape(key)), use(kw_json_text(value));
  kw_buf b = {0};
  kw_put_json(&b, text);
  kw_str again = kw_json_text(kw_bytes(&b));
  if (is_utf8(text) ? !kw_equal(again, text) : kw_equal(again, text)) kw_die(KW("text that was escaped is another one"));
  if (!is_utf8(again)) kw_die(KW("text is no UTF-8"));
  read += (uint64_t)(kw_json_real(text) > 0) + kw_json_integer(text);
}

static void use_values(kw_str text) {
  kw_quantity q;
  kw_time t;
  int64_t n;
  if (kw_quantity_parse(text, &q, 0)) {
    kw_quantity twice = kw_quantity_add(q, q);
    read += (uint64_t)kw_quantity_milli(twice) + (uint64_t)kw_quantity_value(q) + (uint64_t)kw_quantity_compare(q, twice);
    if (q.nanos < 0 || q.nanos >= 1000000000) kw_die(KW("billionths of a quantity are none"));
  }
  if (kw_time_parse(text, &t) && (t.nanos < 0 || t.nanos >= 1000000000)) kw_die(KW("nanoseconds of a time are none"));
  if (kw_decimal(text, &n) && !kw_equal(kw_s((long long)n), text) && *text.p != '0' && *text.p != '-') kw_die(KW("a whole number is another one"));
  read += (uint64_t)(kw_real(text) > 0);
  kw_str rest = text, piece;
  while (kw_cut(&rest, ',', &piece)) use(kw_trim(piece));
}

// The first byte says how the others are read.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint32_t version;
  if (size == 0 || size > 1 << 20) return 0;
  kw_str in = {(const char *)data + 1, (uint32_t)size - 1};
  kw_begin();
  switch (*data % 6) {
  case 0:
    use_pod(core_Pod_of_proto(in), core_Node_of_proto(in)), use_node(core_Node_of_proto(in)), use_deployment(apps_Deployment_of_proto(in));
    break;
  case 1:
    use_pod(core_Pod_of_json(in), core_Node_of_json(in)), use_node(core_Node_of_json(in)), use_deployment(apps_Deployment_of_json(in));
    break;
  case 2:
    answers = in;
    version++;
    use_pod(kw_pod((uint64_t)version << 32 | 1), kw_node((uint64_t)version << 32 | 2)), use_node(kw_node((uint64_t)version << 32 | 2));
    break;
  case 3: use_json(in); break;
  case 4: use_values(in); break;
  case 5: { // Places of an index, as many as the first byte says, and a document.
    uint32_t n = in.n ? (uint8_t)*in.p % 64 : 0;
    if (in.n < 1 + 8 * n) break;
    kw_str doc = {in.p + 1 + 8 * n, in.n - 1 - 8 * n};
    kw_indexes[1] = (kw_index){doc, in.p + 1, n};
    use_pod(core_Pod_of_json(doc), core_Node_of_json(doc)), use_deployment(apps_Deployment_of_json(doc)), use_json(doc);
    break;
  }
  }
  return 0;
}
