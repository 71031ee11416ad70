// Services of one's own: extension points that a .proto file describes. kubewasm gen --lang as
// writes a class for each; a plugin extends it and has the decorator @service.

import * as host from "./internal/host";
import * as text from "./internal/text";
import * as view from "./view";
import { Writer } from "./internal/writer";
import { leave } from "./internal/plugin";

export { get, getJSON, list } from "./internal/lookup";

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

/** Code has the codes of errors, as in gRPC: those of google.rpc.Code. A host may return any other
 * number, too. The code 1 of gRPC, CANCELLED, is not among them: it is the number of an error
 * without a code. */
export namespace Code {
  export const UNKNOWN: i32 = 2;
  export const INVALID_ARGUMENT: i32 = 3;
  export const DEADLINE_EXCEEDED: i32 = 4;
  export const NOT_FOUND: i32 = 5;
  export const ALREADY_EXISTS: i32 = 6;
  export const PERMISSION_DENIED: i32 = 7;
  export const RESOURCE_EXHAUSTED: i32 = 8;
  export const FAILED_PRECONDITION: i32 = 9;
  export const ABORTED: i32 = 10;
  export const OUT_OF_RANGE: i32 = 11;
  export const UNIMPLEMENTED: i32 = 12;
  export const INTERNAL: i32 = 13;
  export const UNAVAILABLE: i32 = 14;
  export const DATA_LOSS: i32 = 15;
  export const UNAUTHENTICATED: i32 = 16;
}

/** uncoded is the number of an error without a code. */
const uncoded: i32 = 1;

/** ServiceError is an error with a code, such as Code.NOT_FOUND, for a method to return. */
@final
export class ServiceError extends Error {
  constructor(public code: i32, message: string) {
    super(message);
  }
}

/** codeOf returns the code of an error of a host service: Code.UNKNOWN without one. */
export function codeOf(err: Error): i32 {
  const code = numberOf(err);
  return code == uncoded ? Code.UNKNOWN : code;
}

/** numberOf returns the number of an error for the host. One with the code 0 is an error all the
 * same. */
function numberOf(err: Error): i32 {
  if (!(err instanceof ServiceError)) return uncoded;
  const code = (<ServiceError>err).code;
  return code == 0 ? uncoded : code;
}

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
    code = numberOf(err);
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
  const code = <i32>result;
  if (code != 0) {
    const message = text.decode(host.buffer, n);
    return new Answer<T>(instantiate<T>(), code == uncoded ? new Error(message) : new ServiceError(code, message));
  }
  return new Answer<T>(view.fromProto<T>(host.taken(n)), null);
}
