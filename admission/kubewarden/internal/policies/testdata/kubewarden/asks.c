// A policy for Kubewarden that asks its host whatever the object says, "ask": "NAMESPACE
// OPERATION PAYLOAD-IN-HEX", and denies with the answer. "lie": "N" asks with pointers and
// lengths that are wrong, and "loop": "NAMESPACE OPERATION PAYLOAD" asks without end, each time
// for another name: the first two characters of the payload count up.
#define IMPORT(n) __attribute__((import_module("wapc"), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n)))

IMPORT("__guest_request") void guest_request(char *op, char *payload);
IMPORT("__guest_response") void guest_response(const char *ptr, int len);
IMPORT("__host_call")
int host_call(const char *bd, unsigned bd_len, const char *ns, unsigned ns_len, const char *op, unsigned op_len, const char *ptr, unsigned len);
IMPORT("__host_response_len") int host_response_len(void);
IMPORT("__host_response") void host_response(char *ptr);
IMPORT("__host_error_len") int host_error_len(void);
IMPORT("__host_error") void host_error(char *ptr);

static char op[64], in[3 << 20], out[8 << 20], answer[4 << 20], payload[2 << 20];
static int in_len, out_len;

static void say(const char *s) {
  while (*s) out[out_len++] = *s++;
}

// find returns where word ends in the request, 0 if it is not there.
static char *find(const char *word) {
  for (int i = 0; i < in_len; i++) {
    int j = 0;
    while (word[j] && i + j < in_len && in[i + j] == word[j]) j++;
    if (!word[j]) return in + i + j;
  }
  return 0;
}

// word returns how long the text is up to a space or a quote.
static int word(const char *s) {
  int n = 0;
  while (s[n] != ' ' && s[n] != '"') n++;
  return n;
}

static int hex(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

static void deny(int ok) {
  int n = ok ? host_response_len() : host_error_len();
  if (n > (int)sizeof answer) __builtin_trap();
  ok ? host_response(answer) : host_error(answer);
  say("{\"accepted\":false,\"message\":\"");
  for (int i = 0; i < n; i++) {
    if (answer[i] == '"' || answer[i] == '\\') out[out_len++] = '\\';
    out[out_len++] = answer[i] == '\n' ? ' ' : answer[i];
  }
  say("\"}");
}

static void lie(char which) {
  const char *end = (const char *)(__builtin_wasm_memory_size(0) * 65536);
  int ok = 0;
  switch (which) {
  case '0': ok = host_call("kubewarden", 10, "oci", 3, "v2/verify", 9, payload, 0xffffffff); break;
  case '1': ok = host_call("kubewarden", 10, "oci", 3, "v2/verify", 9, end - 1, 2); break;
  case '2': ok = host_call("kubewarden", 10, "oci", 3, (const char *)0xfffffff0, 64, payload, 1); break;
  case '3': ok = host_call("kubewarden", 10, payload, 1 << 20, "v2/verify", 9, payload, 1); break;
  case '4': ok = host_call(payload, 0x80000000, "oci", 3, "v2/verify", 9, payload, 1); break;
  case '5': // The answer is written where there is no memory.
    ok = host_call("kubewarden", 10, "net", 3, "v1/dns_lookup_host", 18, "\"a.example.com\"", 15);
    host_response((char *)end - 2);
    break;
  case '6': // An error, too.
    host_call("kubewarden", 10, "net", 3, "v2", 2, "", 0);
    host_error((char *)end - 2);
    break;
  case '7': // An answer that was not asked for has no bytes.
    host_response(answer);
    ok = 1;
    break;
  }
  deny(ok);
}

static void ask(char *s, int loop) {
  char *ns = s, *operation, *data;
  int ns_len = word(ns), op_len;
  operation = ns + ns_len + 1;
  op_len = word(operation);
  data = operation + op_len + 1;
  unsigned n = 0;
  if (loop) {
    for (; data[n] != '"'; n++) payload[n] = data[n] == '\'' ? '"' : data[n];
    for (unsigned i = 0;; i++) {
      payload[1] = 'a' + i % 26;
      payload[2] = 'a' + i / 26 % 26;
      host_call("kubewarden", 10, ns, ns_len, operation, op_len, payload, n);
    }
  }
  for (; data[0] != '"'; data += 2) payload[n++] = hex(data[0]) << 4 | hex(data[1]);
  deny(host_call("kubewarden", 10, ns, ns_len, operation, op_len, payload, n));
}

EXPORT("__guest_call") int guest_call(int op_len, int payload_len) {
  if (op_len > (int)sizeof op || payload_len > (int)sizeof in) __builtin_trap();
  guest_request(op, in);
  in_len = payload_len;
  out_len = 0;
  if (op[0] == 'p')
    say("\"v1\"");
  else if (op[8] == '_')
    say("{\"valid\":true}");
  else if (find("\"lie\":\""))
    lie(*find("\"lie\":\""));
  else if (find("\"loop\":\""))
    ask(find("\"loop\":\""), 1);
  else
    ask(find("\"ask\":\""), 0);
  guest_response(out, out_len);
  return 1;
}
