// Log writes lines to the host's log.
//
//     log.info("configured", "label", this.label, "replicas", this.replicas.toString());

import * as host from "./internal/host";

function text(s: string): void {
  host.add(s.includes("\0") ? s.replaceAll("\0", "\ufffd") : s);
}

/** Line is a line of the log that is being written: its attributes follow. */
@final
class Line {
  /** with adds an attribute to the line. */
  with(key: string, value: string): Line {
    host.addByte(0);
    text(key);
    host.addByte(0);
    text(value);
    return this;
  }
}

function write(at: i32, message: string, key0: string, value0: string, key1: string, value1: string, key2: string, value2: string): void {
  host.put("");
  text(message);
  const line = changetype<Line>(0);
  if (key0.length) line.with(key0, value0);
  if (key1.length) line.with(key1, value1);
  if (key2.length) line.with(key2, value2);
  host.log(at);
}

/** debug writes a line at the level debug, with up to three attributes: a key and a value each. */
export function debug(message: string, key0: string = "", value0: string = "", key1: string = "", value1: string = "", key2: string = "", value2: string = ""): void {
  write(-4, message, key0, value0, key1, value1, key2, value2);
}

/** info writes a line at the level info, as debug does at its own. */
export function info(message: string, key0: string = "", value0: string = "", key1: string = "", value1: string = "", key2: string = "", value2: string = ""): void {
  write(0, message, key0, value0, key1, value1, key2, value2);
}

/** warn writes a line at the level warning, as debug does at its own. */
export function warn(message: string, key0: string = "", value0: string = "", key1: string = "", value1: string = "", key2: string = "", value2: string = ""): void {
  write(4, message, key0, value0, key1, value1, key2, value2);
}

/** error writes a line at the level error, as debug does at its own. */
export function error(message: string, key0: string = "", value0: string = "", key1: string = "", value1: string = "", key2: string = "", value2: string = ""): void {
  write(8, message, key0, value0, key1, value1, key2, value2);
}
