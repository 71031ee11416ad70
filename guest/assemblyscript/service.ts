// Services of one's own: extension points that a .proto file describes. kubewasm gen --lang as
// writes a class for each; a plugin extends it and has the decorator @service.

import * as host from "./internal/host";
import * as text from "./internal/text";
import * as view from "./view";
import { Writer } from "./internal/writer";
import { leave } from "./internal/plugin";

// @ts-ignore: decorator
@external("kubewasm/service", "request")
declare function importRequest(buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("kubewasm/service", "response")
declare function importResponse(ptr: usize, len: u32): void;

// @ts-ignore: decorator
@external("kubewasm/service", "answer")
declare function importAnswer(buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("kubewasm/service", "serve")
declare function importServe(ptr: usize, len: u32): void;

/** Answer is what a host service returned. */
@final
export class Answer<T> {
  /** error is that of the host, null without one; value is an empty message then. */
  constructor(public value: T, public error: Error | null) {}
}

/** implement names the extension point that the module implements. It is for generated code. */
export function implement(name: string): void {
  host.put(name);
  host.addByte(0);
  importServe(host.address, host.length);
}

const out: Writer = new Writer();
let responds: bool = false;
const asked: Writer = new Writer();

/** request returns the message of the call that runs. It is for generated code. */
export function request(): ArrayBuffer {
  host.begin();
  let n: u32;
  do n = importRequest(host.buffer, host.limit); while (host.more(n));
  return host.taken(n);
}

/** response returns the writer of the response. It is for generated code. */
export function response(): Writer {
  responds = true;
  return out.reset();
}

/** finish ends a call. It is for generated code. */
export function finish(err: Error | null): i32 {
  let code = 0;
  if (err !== null) {
    host.reason(err.message);
    code = 1;
  } else if (responds) {
    importResponse(out.address, out.length);
  }
  responds = false;
  leave();
  return code;
}

/** question returns the writer of a request to the host. It is for generated code. */
export function question(): Writer {
  return asked.reset();
}

/** answered returns what the host answered. It is for generated code. */
export function answered<T extends view.Message>(result: u64): Answer<T> {
  host.begin();
  let n: u32;
  do n = importAnswer(host.buffer, host.limit); while (host.more(n));
  if (<u32>result != 0) return new Answer<T>(instantiate<T>(), new Error(text.decode(host.buffer, n)));
  return new Answer<T>(view.fromProto<T>(host.taken(n)), null);
}
