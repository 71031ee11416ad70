// A module whose reader of JSON gets any bytes: see ../../json_test.go.
#include <kubewasm.h>

KW_HOOK(request) { return (void)request, KW_SUCCESS; }

// kw_scan returns the length of the first element of an array, 0 if there is none.
KW_EXPORT("scan") uint32_t kw_scan(const char *p, uint32_t n) {
  kw_members elements = kw_json_members((kw_str){p, n});
  kw_str key, element;
  return kw_json_next(&elements, &key, &element) ? element.n : 0;
}

// kw_room returns room for a document.
KW_EXPORT("room") void *kw_room(uint32_t n) { return kw_take(n); }

static kw_buf out;

static void hex(kw_str text, uint32_t digits) {
  for (uint32_t i = 0; i < digits; i++) kw_put_byte(&out, (uint8_t)"0123456789abcdef"[(uint8_t)text.p[i / 2] >> (i % 2 ? 0 : 4) & 15]);
}

static void number(kw_str v) {
  kw_put(&out, kw_text((long long)(int64_t)kw_json_integer(v), " "));
  double f = kw_json_real(v);
  if (f != f) {
    kw_put(&out, KW("nan"));
    return;
  }
  uint64_t bits = kw_double_bits(f);
  char b[8];
  for (int i = 0; i < 8; i++) b[i] = (char)(bits >> (56 - 8 * i));
  hex((kw_str){b, 8}, 16);
}

static void describe(kw_str v, uint32_t depth) {
  kw_str kind = kw_json_kind(v), key, value;
  if (depth == 20) {
    kw_put_byte(&out, '.');
  } else if (kw_equal(kind, "number")) {
    number(v);
  } else if (kw_equal(kind, "string")) {
    kw_str text = kw_json_text(v);
    kw_put_byte(&out, '"');
    hex(text, 2 * text.n);
    kw_put_byte(&out, '"');
    number(v);
  } else if (kw_equal(kind, "array") || kw_equal(kind, "object")) {
    bool object = kw_equal(kind, "object");
    kw_put_byte(&out, (uint8_t)*v.p);
    for (kw_members m = kw_json_members(v); kw_json_next(&m, &key, &value);) {
      if (object) {
        key = kw_json_unescape(key);
        hex(key, 2 * key.n);
        kw_put_byte(&out, ':');
        value = kw_json_member(v, key);
      }
      if (value.n) describe(value, depth + 1);
      kw_put_byte(&out, ',');
    }
    kw_put_byte(&out, object ? '}' : ']');
  } else {
    kw_put(&out, kw_equal(kind, "bool") ? kw_json_is(v, 't') ? KW("true") : KW("false") : kind);
  }
}

// kw_document describes a document: an address, and a length in the lower half.
KW_EXPORT("read") uint64_t kw_document(const char *p, uint32_t n) {
  kw_str text = {p, n};
  out = (kw_buf){0};
  if (kw_json_valid(text)) {
    text.p = kw_json_space(p, p + n);
    text.n -= (uint32_t)(text.p - p);
    describe((kw_str){text.p, (uint32_t)(kw_json_skip(text.p, p + n) - text.p)}, 0);
  } else {
    kw_put(&out, KW("invalid"));
  }
  return (uint64_t)(uintptr_t)out.p << 32 | out.n;
}
