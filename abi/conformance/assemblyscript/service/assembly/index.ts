// The service guest of the conformance suite, by the SDK.

import {
  ChooseRequest, ChooseResponse, Market, PriceRequest, PriceResponse, Quotes, RateRequest, Values, ValuesValue,
} from "./quotes";
import { ConfigMap, Secret } from "kubewasm/api/core";
import { get, list, ServiceError } from "kubewasm/service";

//kubewasm:name conformance-service

function copy(v: Values, c: ValuesValue): ValuesValue {
  c.text = v.text;
  c.data = v.data;
  c.flag = v.flag;
  c.number = v.number;
  c.zigzag = v.zigzag;
  c.fixed = v.fixed;
  c.real = v.real;
  c.level = v.level;
  c.list = v.list;
  const keys = v.counts.keys();
  for (let i = 0; i < keys.length; i++) c.counts.set(keys[i], v.counts.get(keys[i]));
  if (v.hasInner) c.inner = copy(v.inner, new ValuesValue());
  c.hasMaybe = v.hasMaybe;
  c.maybe = v.maybe;
  return c;
}

@service
class Service extends Quotes {
  echo(req: Values, resp: ValuesValue): Error | null {
    copy(req, resp);
    return null;
  }

  price(req: PriceRequest, resp: PriceResponse): Error | null {
    if (req.currency.length == 0) return new Error("no currency");
    if (req.currency == "fail") return new ServiceError(req.amount, "failed");
    if (req.currency == "trap") throw new Error("trap");
    if (req.currency == "found") {
      const found = get<ConfigMap>("v1/configmaps", "shop", req.pod.metadata.name);
      if (found !== null) resp.note = found.metadata.labels.get("tier");
      resp.total = 100 * list<ConfigMap>("v1/configmaps").length + list<ConfigMap>("v1/configmaps", "shop", "tier=a").length;
      return null;
    }
    if (req.currency == "secret") {
      get<Secret>("v1/secrets", "shop", "a");
      return null;
    }
    const ask = new RateRequest();
    ask.currency = req.currency;
    const rate = Market.rate(ask);
    if (rate.error !== null) return rate.error;
    resp.total = <i64>req.amount * rate.value.rate;
    resp.note = req.pod.metadata.labels.get("discount", "none");
    return null;
  }

  choose(req: ChooseRequest, resp: ChooseResponse): Error | null {
    const pods = req.pods;
    for (let i = 0; i < pods.length; i++) {
      if (pods[i].spec.nodeName == req.node) {
        resp.pod = pods[i];
        return null;
      }
    }
    resp.text = req.texts.data.get("none");
    return null;
  }
}
