// Writer writes messages in protobuf.

import * as text from "./text";

@final
export class Writer {
  private at: usize = 0;
  private room: u32 = 0;
  length: u32 = 0;

  /** The address of what was written. */
  get address(): usize {
    return this.at;
  }

  /** reset makes the message empty and keeps the memory. */
  reset(): Writer {
    this.length = 0;
    return this;
  }

  private reserve(n: u32): usize {
    if (this.length + n > this.room) {
      this.room = (this.length + n) * 2 + 64;
      const larger = heap.alloc(this.room);
      memory.copy(larger, this.at, this.length);
      if (this.at) heap.free(this.at);
      this.at = larger;
    }
    return this.at + this.length;
  }

  /** free gives the memory back. */
  free(): void {
    if (this.at) heap.free(this.at);
    this.at = 0;
    this.room = 0;
    this.length = 0;
  }

  byte(b: u8): void {
    store<u8>(this.reserve(1), b);
    this.length++;
  }

  raw(n: u64): void {
    let to = this.reserve(10);
    const start = to;
    for (; n > 127; n >>= 7) store<u8>(to++, <u8>n | 0x80);
    store<u8>(to++, <u8>n);
    this.length += <u32>(to - start);
  }

  /** fixed64 writes a number without a key. */
  raw64(n: u64): void {
    store<u64>(this.reserve(8), n);
    this.length += 8;
  }

  raw32(n: u32): void {
    store<u32>(this.reserve(4), n);
    this.length += 4;
  }

  key(field: u32, type: u32): void {
    this.raw(<u64>field << 3 | type);
  }

  varint(field: u32, n: u64): void {
    this.key(field, 0);
    this.raw(n);
  }

  zigzag(field: u32, n: i64): void {
    this.varint(field, <u64>(n << 1 ^ n >> 63));
  }

  fixed64(field: u32, n: u64): void {
    this.key(field, 1);
    this.raw64(n);
  }

  fixed32(field: u32, n: u32): void {
    this.key(field, 5);
    this.raw32(n);
  }

  string(field: u32, s: string): void {
    this.key(field, 2);
    const n = <u32>text.size(s);
    this.raw(n);
    text.encode(s, this.reserve(n));
    this.length += n;
  }

  bytes(field: u32, b: Uint8Array): void {
    this.key(field, 2);
    this.raw(b.length);
    memory.copy(this.reserve(b.length), b.dataStart, b.length);
    this.length += b.length;
  }

  /** text writes a string without a key, and a NUL after it. */
  text(s: string): void {
    const n = <u32>text.size(s);
    text.encode(s, this.reserve(n));
    this.length += n;
    this.byte(0);
  }

  /** message writes a message that was written before, append its fields. */
  message(field: u32, m: Writer): void {
    this.key(field, 2);
    this.raw(m.length);
    this.append(m);
  }

  append(m: Writer): void {
    memory.copy(this.reserve(m.length), m.at, m.length);
    this.length += m.length;
  }

  /** begin begins a message, which end ends. */
  begin(field: u32): u32 {
    this.key(field, 2);
    return this.length;
  }

  end(start: u32): void {
    const n = this.length - start;
    let size: u32 = 1;
    for (let m = n; m > 127; m >>= 7) size++;
    const at = this.reserve(size) - n;
    memory.copy(at + size, at, n);
    this.length = start;
    this.raw(n);
    this.length += n;
  }
}
