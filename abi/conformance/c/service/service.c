// The service guest, which doc.go two directories above describes.
#include "quotes.h"

QUOTES_QUOTES_PLUGIN

// listed counts ConfigMaps, page by page.
static uint32_t listed(const char *namespace, const char *selector) {
  uint32_t n = 0;
  kw_str after = KW("");
  do {
    kw_Objects page = kw_list_page("v1/configmaps", namespace, selector, after);
    n += kw_count(kw_Objects_objects(page));
    after = kw_Objects_next(page);
  } while (after.n);
  return n;
}

QUOTES_QUOTES_ECHO(request, response) {
  kw_put(response, request.v.bytes);
  return KW_SUCCESS;
}

QUOTES_QUOTES_PRICE(request, response) {
  kw_str currency = quotes_PriceRequest_currency(request), note;
  if (!currency.n) return kw_error("no currency");
  if (kw_equal(currency, "fail")) return kw_error_as(quotes_PriceRequest_amount(request), "failed");
  if (kw_equal(currency, "trap")) kw_panic("the currency is a trap");
  if (kw_equal(currency, "found")) {
    kw_str found = kw_get_object("v1/configmaps", "shop", meta_ObjectMeta_name(core_Pod_metadata(quotes_PriceRequest_pod(request))));
    quotes_PriceResponse_put_note(response, kw_value(meta_ObjectMeta_labels(core_ConfigMap_metadata(core_ConfigMap_of_json(found))), "tier"));
    quotes_PriceResponse_put_total(response, 100 * listed("", "") + listed("shop", "tier=a"));
    return KW_SUCCESS;
  }
  if (kw_equal(currency, "secret")) {
    kw_get_object("v1/secrets", "shop", "a");
    return KW_SUCCESS;
  }
  kw_buf question = {0};
  quotes_RateRequest_put_currency(&question, currency);
  kw_answer answer = quotes_Market_Rate(&question);
  if (answer.failed) return kw_error_as(answer.code, answer.bytes);
  int64_t rate = quotes_RateResponse_rate(quotes_RateResponse_of_proto(answer.bytes));
  if (!kw_lookup(meta_ObjectMeta_labels(core_Pod_metadata(quotes_PriceRequest_pod(request))), "discount", &note)) note = KW("none");
  quotes_PriceResponse_put_total(response, quotes_PriceRequest_amount(request) * rate);
  quotes_PriceResponse_put_note(response, note);
  return KW_SUCCESS;
}

QUOTES_QUOTES_CHOOSE(request, response) {
  kw_str node = quotes_ChooseRequest_node(request), text;
  KW_EACH_REF(ref, quotes_ChooseRequest_pods(request)) {
    if (!kw_equal(core_PodSpec_nodeName(core_Pod_spec(kw_pod(ref))), node)) continue;
    quotes_ChooseResponse_put_pod(response, ref);
    return KW_SUCCESS;
  }
  if (kw_lookup(core_ConfigMap_data(quotes_ChooseRequest_texts(request)), "none", &text)) quotes_ChooseResponse_put_text(response, text);
  return KW_SUCCESS;
}
