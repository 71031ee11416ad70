// A plugin for the webhook of the Stellar operator, by its ABI alone: it does what
// the object asks for.
#define IMPORT(n) __attribute__((import_module("env"), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n)))

IMPORT("get_input_len") int get_input_len(void);
IMPORT("read_input") int read_input(char *ptr, int len);
IMPORT("write_output") int write_output(const char *ptr, int len);
IMPORT("log_message") void log_message(const char *ptr, int len);

static char in[1 << 20], out[2 << 20];
static int in_len, out_len;

static int length(const char *s) {
  int n = 0;
  while (s[n]) n++;
  return n;
}

static int has(const char *word) {
  int n = length(word);
  for (int i = 0; i + n <= in_len; i++) {
    int j = 0;
    while (j < n && in[i + j] == word[j]) j++;
    if (j == n) return 1;
  }
  return 0;
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

EXPORT("validate") int validate(void) {
  in_len = get_input_len();
  if (in_len > (int)sizeof in || read_input(in, in_len) != in_len) return 100;
  out_len = 0;
  log_message("asked", 5);
  if (has("mode-silent")) return 0;
  if (has("mode-code")) return -7;
  if (has("mode-trap")) __builtin_trap();
  if (has("mode-loop")) for (;;) __asm__ volatile("");
  if (has("mode-bounds")) {
    int n = read_input((char *)0x7fffffff, 16), m = write_output((char *)0x7fffffff, 16);
    return n == -1 && m == -1 ? 0 : 1;
  }
  if (has("mode-grow")) return __builtin_wasm_memory_grow(0, 300) == -1 ? 0 : 1;
  if (has("mode-bad")) {
    say("{\"message\":\"no verdict\"}");
  } else if (has("mode-echo")) {
    say("{\"allowed\":false,\"message\":");
    quote(in, in_len);
    say("}");
  } else if (has("mode-errors")) {
    say("{\"allowed\":false,\"message\":\"two mistakes\",\"reason\":\"Conflict\",\"errors\":["
        "{\"field\":\"spec.replicas\",\"message\":\"must be at most 5\",\"errorType\":\"TooLarge\",\"invalidValue\":7},"
        "{\"field\":\"spec.name\",\"message\":\"odd\",\"errorType\":\"Peculiar\"}],"
        "\"warnings\":[\"careful\"],\"auditAnnotations\":{\"checked\":\"yes\"}}");
  } else if (has("mode-same")) {
    say("{\"allowed\":false,\"message\":\"must be odd\",\"errors\":["
        "{\"field\":\"spec.replicas\",\"message\":\"must be odd\",\"errorType\":\"Invalid\"}]}");
  } else if (has("mode-repeat")) {
    say("{\"allowed\":false,\"message\":\"1 error: spec.replicas: must be odd\",\"errors\":["
        "{\"field\":\"spec.replicas\",\"message\":\"must be odd\",\"errorType\":\"Invalid\"}]}");
  } else {
    write_output("{\"allowed\":false}", 17); // The last write counts.
    say("{\"allowed\":true,\"message\":\"Validation complete\",\"errors\":[],\"warnings\":[\"fine\"]}");
  }
  write_output(out, out_len);
  return 1; // Nobody looks at it when there is an output.
}
