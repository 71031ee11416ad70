// The hook batch-resource in C: what ../main.go is in Go, held against the same ../cases.yaml.
#include <kubewasm.h>

//kubewasm:name batch-resource

#define ANNOTATION "node.koordinator.sh/extended-resource-spec"

enum { PERIOD = 100000, LEAST_QUOTA = 1000, LEAST_SHARES = 2, MOST_SHARES = 262144, UNLIMITED = -1 };

static bool cfs_quota = true;
static int64_t ratio_percent; // Divides quotas, in hundredths; 100 or less does not.

KW_CONFIG(KW_OPTION_BOOL("cfsQuota", cfs_quota), KW_OPTION_INT("ratioPercent", ratio_percent)) { return KW_SUCCESS; }

// amount reads an amount of a container; 0 is none.
static bool amount(kw_str container, const char *list, const char *resource, int64_t *n, kw_str *problem) {
  kw_str raw = kw_json_member(kw_json_member(container, kw_s(list)), kw_s(resource)), text = raw, why;
  kw_quantity q;
  *n = 0;
  if (!raw.n) return true;
  while (text.n && *text.p == '"') text.p++, text.n--;
  while (text.n && text.p[text.n - 1] == '"') text.n--;
  if (!kw_quantity_parse(text, &q, &why)) {
    *problem = kw_text(resource, " is ", raw, ": ", why);
    return false;
  }
  *n = kw_quantity_value(q);
  if (*n < 0) *n = 0;
  return true;
}

static int64_t between(int64_t least, int64_t n, int64_t most) { return n < least ? least : n > most ? most : n; }

// unread logs an annotation that cannot be read: the pod keeps the resources of the kubelet.
#define unread(...) \
  (kw_log(KW_WARN, "a pod keeps the resources of the kubelet: its annotation cannot be read", "pod", \
          kw_PodMeta_name(kw_HookRequest_pod(request)), "annotation", ANNOTATION, "err", kw_text(__VA_ARGS__)), \
   KW_SUCCESS)

KW_HOOK(request) {
  kw_str text, name, container;
  if (kw_HookRequest_level(request) == KW_LEVEL_QOS) return KW_SUCCESS;
  if (!kw_equal(kw_value(kw_HookRequest_pod_labels(request), "koordinator.sh/qosClass"), "BE")) return KW_SUCCESS;
  if (!kw_lookup(kw_HookRequest_pod_annotations(request), ANNOTATION, &text)) return KW_SUCCESS;
  if (!kw_json_valid(text)) return unread("not valid JSON");
  kw_str own = kw_ContainerMeta_name(kw_HookRequest_container(request));
  bool of_container = kw_HookRequest_level(request) == KW_LEVEL_CONTAINER;
  int64_t sum[3] = {0}; // Of requests and limits of CPU, and limits of memory.
  bool unlimited[3] = {false}, any = false;
  for (kw_members m = kw_json_members(kw_json_member(text, KW("containers"))); kw_json_next(&m, &name, &container);) {
    name = kw_json_unescape(name);
    if (of_container && !kw_equal(name, own)) continue;
    any = true;
    static const struct { const char *list, *resource; } amounts[3] = {
        {"requests", "kubernetes.io/batch-cpu"}, {"limits", "kubernetes.io/batch-cpu"}, {"limits", "kubernetes.io/batch-memory"}};
    for (int i = 0; i < 3; i++) {
      int64_t n;
      kw_str problem;
      if (!amount(container, amounts[i].list, amounts[i].resource, &n, &problem))
        return unread("container ", kw_json_of(name), ": ", problem);
      unlimited[i] = unlimited[i] || n == 0;
      if (__builtin_add_overflow(sum[i], n, &sum[i]) || sum[i] > INT64_MAX / PERIOD)
        return unread("container ", kw_json_of(name), ": more than there can be");
    }
  }
  if (!any) return KW_SUCCESS;
  kw_decide_cpu_shares(between(LEAST_SHARES, sum[0] * 1024 / 1000, MOST_SHARES));
  int64_t quota = UNLIMITED;
  if (!unlimited[1] && cfs_quota) {
    kw_decide_cfs_period_us(PERIOD); // The kubelet's may be another.
    quota = between(LEAST_QUOTA, sum[1] * PERIOD / 1000, INT64_MAX);
    if (ratio_percent > 100) quota = between(LEAST_QUOTA, (quota * 100 + ratio_percent - 1) / ratio_percent, INT64_MAX);
  }
  kw_decide_cfs_quota_us(quota);
  kw_decide_memory_limit_bytes(unlimited[2] ? UNLIMITED : sum[2]);
  return KW_SUCCESS;
}
