// A policy for Kubewarden by waPC alone: it does what the settings and the object
// ask for.
#define IMPORT(n) __attribute__((import_module("wapc"), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n)))

IMPORT("__guest_request") void guest_request(char *op, char *payload);
IMPORT("__guest_response") void guest_response(const char *ptr, int len);
IMPORT("__guest_error") void guest_error(const char *ptr, int len);
IMPORT("__host_call")
int host_call(const char *bd, int bd_len, const char *ns, int ns_len, const char *op, int op_len, const char *ptr, int len);
IMPORT("__host_response_len") int host_response_len(void);
IMPORT("__host_response") void host_response(char *ptr);
IMPORT("__host_error_len") int host_error_len(void);
IMPORT("__host_error") void host_error(char *ptr);
IMPORT("__console_log") void console_log(const char *ptr, int len);

static char op[64], in[1 << 20], out[2 << 20], answer[1 << 20];
static int in_len, out_len, started;

static int length(const char *s) {
  int n = 0;
  while (s[n]) n++;
  return n;
}

// find returns where word ends in the payload, -1 if it is not there.
static int find(const char *word) {
  int n = length(word);
  for (int i = 0; i + n <= in_len; i++) {
    int j = 0;
    while (j < n && in[i + j] == word[j]) j++;
    if (j == n) return i + n;
  }
  return -1;
}

static int has(const char *word) { return find(word) >= 0; }

static int is(const char *name, int len) {
  int n = length(name);
  if (n != len) return 0;
  for (int i = 0; i < n; i++)
    if (op[i] != name[i]) return 0;
  return 1;
}

static void say(const char *s) {
  while (*s) out[out_len++] = *s++;
}

static void quote(const char *s, int n) {
  out[out_len++] = '"';
  for (int i = 0; i < n; i++) {
    if (s[i] == '"' || s[i] == '\\') out[out_len++] = '\\';
    out[out_len++] = s[i];
  }
  out[out_len++] = '"';
}

// ask calls the host and denies with what it says.
static void ask(const char *ns, const char *operation, const char *payload) {
  int ok = host_call("kubewarden", 10, ns, length(ns), operation, length(operation), payload, length(payload));
  int n = ok ? host_response_len() : host_error_len();
  if (n > (int)sizeof answer) __builtin_trap();
  ok ? host_response(answer) : host_error(answer);
  say("{\"accepted\":false,\"message\":");
  quote(answer, n);
  say("}");
}

EXPORT("_start") void start(void) { started = 1; }
EXPORT("wapc_init") void init(void) { started *= 2; }

EXPORT("__guest_call") int guest_call(int op_len, int payload_len) {
  if (op_len > (int)sizeof op || payload_len > (int)sizeof in || started != 2) __builtin_trap();
  guest_request(op, in);
  in_len = payload_len;
  out_len = 0;
  if (is("protocol_version", op_len)) {
    say("\"v1\"");
  } else if (is("validate_settings", op_len)) {
    if (has("\"labels\":[]"))
      say("{\"valid\":false,\"message\":\"labels is empty\"}");
    else
      say("{\"valid\":true}");
  } else if (!is("validate", op_len)) {
    guest_error("what?", 5);
    return 0;
  } else if (has("mode-fail")) {
    guest_error("cannot say", 10);
    return 0;
  } else if (has("mode-trap")) {
    __builtin_trap();
  } else if (has("mode-loop")) {
    for (volatile int forever = 1; forever;) {
    }
  } else if (has("mode-deny")) {
    say("{\"accepted\":false,\"message\":\"not here\",\"warnings\":[\"look out\"],\"audit_annotations\":{\"rule\":\"7\"}}");
  } else if (has("mode-log")) {
    console_log("to the console", 14);
    host_call("kubewarden", 10, "tracing", 7, "log", 3, "{\"level\":\"warning\",\"message\":\"look\",\"extra\":5}", 46);
    say("{\"accepted\":true}");
  } else if (has("mode-get")) {
    ask("kubernetes", "get_resource", "{\"api_version\":\"v1\",\"kind\":\"Namespace\",\"name\":\"shop\",\"disable_cache\":false}");
  } else if (has("mode-absent")) {
    ask("kubernetes", "get_resource", "{\"api_version\":\"v1\",\"kind\":\"Namespace\",\"name\":\"none\",\"disable_cache\":false}");
  } else if (has("mode-secret")) {
    ask("kubernetes", "get_resource", "{\"api_version\":\"v1\",\"kind\":\"Secret\",\"name\":\"shop\",\"namespace\":\"shop\",\"disable_cache\":false}");
  } else if (has("mode-list")) {
    ask("kubernetes", "list_resources_by_namespace", "{\"api_version\":\"apps/v1\",\"kind\":\"Deployment\",\"namespace\":\"shop\",\"label_selector\":\"app=web\",\"field_selector\":null}");
  } else if (has("mode-elsewhere")) {
    ask("kubernetes", "list_resources_by_namespace", "{\"api_version\":\"apps/v1\",\"kind\":\"Deployment\",\"namespace\":\"bank\"}");
  } else if (has("mode-everywhere")) {
    ask("kubernetes", "list_resources_all", "{\"api_version\":\"apps/v1\",\"kind\":\"Deployment\"}");
  } else if (has("mode-all")) {
    ask("kubernetes", "list_resources_all", "{\"api_version\":\"v1\",\"kind\":\"Namespace\"}");
  } else if (has("mode-can-i")) {
    ask("kubernetes", "can_i", "{\"subject_access_review\":{\"groups\":null,\"resource_attributes\":{\"group\":null,\"namespace\":\"shop\",\"resource\":\"pods\",\"verb\":\"create\"},\"user\":\"alice\"},\"disable_cache\":false}");
  } else if (has("mode-may-i")) {
    ask("kubernetes", "can_i", "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\",\"spec\":{\"user\":\"alice\",\"groups\":[],\"resourceAttributes\":{\"verb\":\"create\",\"resource\":\"pods\",\"namespace\":\"shop\"}},\"disable_cache\":false}");
  } else if (has("mode-may-what")) {
    ask("kubernetes", "can_i", "{\"subject_access_review\":{\"user\":\"alice\"}}");
  } else if (has("mode-part")) {
    ask("kubernetes", "get_resource", "{\"api_version\":\"apps/v1\",\"kind\":\"Deployment\",\"name\":\"db\",\"namespace\":\"shop\",\"disable_cache\":true,\"field_masks\":[\"spec.containers.image\"]}");
  } else if (has("mode-cert")) {
    ask("crypto", "v1/is_certificate_trusted", "{\"cert\":{\"encoding\":\"Pem\",\"data\":[110,111]},\"cert_chain\":null,\"not_after\":null}");
  } else if (has("mode-oci")) {
    ask("oci", "v2/verify", "{}");
  } else if (has("mode-net")) {
    ask("net", "v1/dns_lookup_host", "\"example.com\"");
  } else if (has("mode-echo")) {
    say("{\"accepted\":false,\"code\":418,\"message\":");
    quote(in, in_len);
    say("}");
  } else if (has("mode-mutate")) {
    say("{\"accepted\":true,\"mutated_object\":{\"metadata\":{\"name\":\"web\",\"labels\":{\"team\":\"shop\"}}},\"warnings\":[\"changed\"],\"audit_annotations\":{\"changed\":\"labels\"}}");
  } else if (has("mode-same")) {
    say("{\"accepted\":true,\"mutated_object\":");
    int from = find("\"object\":"), depth = 0;
    for (int i = from; i < in_len; i++) {
      out[out_len++] = in[i];
      depth += in[i] == '{' ? 1 : in[i] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    say("}");
  } else {
    say("{\"accepted\":true}");
  }
  guest_response(out, out_len);
  return 1;
}
