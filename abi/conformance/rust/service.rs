//! The service guest of the conformance suite, by the SDK.
#![allow(dead_code)]

mod quotes;

use kubewasm::api::core::ConfigMap;
use kubewasm::service::{self, Code, Error};
use quotes::{ChooseRequest, ChooseResponse, Market, PriceRequest, PriceResponse, Quotes, RateRequest, Values, ValuesValue};

kubewasm::config! {
    struct Guest;
}

fn copied(v: Values<'_>) -> ValuesValue {
    ValuesValue {
        text: v.text().into(),
        data: v.data().into(),
        flag: v.flag(),
        number: v.number(),
        zigzag: v.zigzag(),
        fixed: v.fixed(),
        real: v.real(),
        level: v.level(),
        list: v.list().iter().collect(),
        counts: v.counts().iter().map(|(key, n)| (key.into(), n)).collect(),
        inner: v.inner().map(|inner| Box::new(copied(inner))),
        maybe: v.maybe(),
    }
}

impl Quotes for Guest {
    fn echo<'a>(&self, req: Values<'a>) -> Result<ValuesValue, Error> {
        Ok(copied(req))
    }

    fn price<'a>(&self, req: PriceRequest<'a>) -> Result<PriceResponse, Error> {
        match req.currency() {
            "" => return Err("no currency".into()),
            "fail" => return Err(Error::new(Code(req.amount()), "failed")),
            "trap" => panic!("trap"),
            "found" => {
                let name = req.pod().map(|pod| pod.metadata().name()).unwrap_or_default();
                let tier = service::get(req, "v1/configmaps", "shop", name).and_then(|raw| ConfigMap::from_json(req, raw).metadata().labels().get("tier"));
                let count = |namespace, selector| service::list(req, "v1/configmaps", namespace, selector).count() as i64;
                return Ok(PriceResponse { total: 100 * count("", "") + count("shop", "tier=a"), note: tier.unwrap_or_default().into() });
            }
            "secret" => {
                service::get(req, "v1/secrets", "shop", "a");
                return Ok(PriceResponse::default());
            }
            _ => {}
        }
        let rate = Market::rate(req, &RateRequest { currency: req.currency().into() })?;
        let discount = req.pod().and_then(|pod| pod.metadata().labels().get("discount"));
        Ok(PriceResponse { total: req.amount() as i64 * rate.rate(), note: discount.unwrap_or("none").into() })
    }

    fn choose<'a>(&self, req: ChooseRequest<'a>) -> Result<ChooseResponse<'a>, Error> {
        let pod = req.pods().iter().find(|pod| pod.spec().node_name() == req.node());
        let text = match (pod, req.texts()) {
            (None, Some(texts)) => texts.data().get("none").unwrap_or_default(),
            _ => "",
        };
        Ok(ChooseResponse { pod, text: text.into() })
    }
}

kubewasm::plugin! {
    Guest: Service(quotes);
    name = "conformance-service";
}
