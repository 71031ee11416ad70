# Every builtin that the host has, on what the object brings.
package builtins

main contains sprintf("%s: %v", [name, value]) if some name, value in results

o := input.request.object

results["sprintf"] := sprintf("%v %d %s %5.2f %x %v %v %v %v %t", [o.list, o.int, o.text, o.float, o.int, {"b", "a"}, {"k": {1, 2}}, null, set(), true])

results["big"] := sprintf("%v %d", [o.big, o.big])

results["json.patch"] := json.patch(o.doc, [{"op": "add", "path": "/x", "value": [1]}, {"op": "remove", "path": "/a"}])

results["yaml"] := yaml.unmarshal(yaml.marshal(o.doc))

results["yaml.is_valid"] := [yaml.is_valid(o.text), yaml.is_valid("a: [")]

results["base64url"] := base64url.encode_no_pad(o.text)

results["hex"] := [hex.encode(o.text), hex.decode(hex.encode(o.text))]

results["urlquery"] := [urlquery.encode(o.text), urlquery.decode(urlquery.encode(o.text)), urlquery.encode_object({"a": "b c", "d": ["e", "f"]}), urlquery.decode_object("a=1&a=2&b=%20")]

results["crypto"] := [crypto.md5(o.text), crypto.sha1(o.text), crypto.sha256(o.text)]

results["glob"] := glob.quote_meta("*.example.com[a]{b}?")

results["regex"] := [regex.split(",", "a,b,,c"), regex.replace("foo-bar", "([a-z]+)-", "<$1>"), regex.find_n("[a-z]", o.text, 2)]

results["semver"] := [semver.is_valid("1.2.3-rc.1"), semver.is_valid("v1"), semver.compare("1.10.0", "1.9.0")]

results["strings"] := [strings.any_prefix_match(o.text, {"x", "te"}), strings.any_suffix_match(["a", "b"], "c"), strings.count("cheese", "e"), indexof_n("cheese", "e")]

results["subset"] := [object.subset({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}), object.subset({1, 2}, {3}), object.subset([1, 2, 3], [2, 3])]

results["units"] := [units.parse("100m"), units.parse("2Ki"), units.parse("1.5G"), units.parse_bytes("1.5GiB"), units.parse_bytes("3KB")]

results["time"] := [time.parse_rfc3339_ns("2026-11-21T03:04:05.000000006Z"), time.date(o.ns), time.clock([o.ns, "UTC"]), time.weekday(o.ns), time.add_date(o.ns, 1, -2, 3), time.parse_duration_ns("1h2m"), time.parse_ns("2006-01-02", "2026-11-21")]

results["time.format"] := [time.format(o.ns), time.format([o.ns, "UTC", "RFC1123"]), time.format([o.ns, "", "2006/01/02"]), time.parse_ns("RFC3339", "2026-11-21T03:04:05Z")]

results["hmac"] := [crypto.hmac.md5(o.text, "k"), crypto.hmac.sha1(o.text, "k"), crypto.hmac.sha256(o.text, ""), crypto.hmac.sha512("", o.text), crypto.hmac.equal(o.text, "text")]

results["split_n"] := [strings.split_n("a,b,c", ",", n) | some n in [-9, -2, 0, 2, 9]]

results["range_step"] := [numbers.range_step(o.int, o.int + 10, 3), numbers.range_step(5, -5, 4), numbers.range_step(1, 1, 7)]

results["cidr"] := [net.cidr_is_valid("10.0.0.0/8"), net.cidr_is_valid(o.text), net.cidr_is_valid("10.0.0.1"), net.cidr_expand("10.1.2.7/30"), net.cidr_expand("2001:db8::/126")]

results["undefined"] := units.parse(o.doc)
