// Reading by the word: a compiler of WebAssembly checks the bounds of each access
// and the host counts instructions, so eight bytes at once cost what one does. And
// reading in order: the fields of a message come in the order of their numbers, an
// entry of a map has its key before its value.
//
// All of this may look at BEHIND bytes behind what it reads, and ignores what it
// finds there: so much memory must follow the bytes of each object.
enum { BEHIND = 8 };

static inline u32 load32(const u8 *p) {
  u32 word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

static inline u64 load64(const u8 *p) {
  u64 word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

// alike reports whether two spans have the same bytes.
static inline u32 alike(span a, span b) {
  u32 n = len(b);
  if (len(a) != n) return 0;
  if (n == 0) return 1;
  if (n < 8) return (load64(a.p) ^ load64(b.p)) << (64 - 8 * n) == 0;
  for (u32 i = 0; i < n - 8; i += 8)
    if (load64(a.p + i) != load64(b.p + i)) return 0;
  return load64(a.p + n - 8) == load64(b.p + n - 8); // Some of them twice.
}

static inline u64 pack(span s) { return (u64)(u32)s.end << 32 | (u32)s.p; }
static inline span unpack(u64 n) { return (span){(const u8 *)(u32)n, (const u8 *)(u32)(n >> 32)}; }

// scan is search by next, for the fields that search does not read itself.
static __attribute__((noinline)) u64 scan(span m, u32 number) {
  span bytes;
  for (u32 n; (n = next(&m, &bytes)) && n <= number;)
    if (n == number) return pack(bytes);
  return 0;
}

// search is pull for a field that has others in front of it or is a long one.
static __attribute__((noinline)) u64 search(span m, u32 number) {
  for (;;) {
    u32 word = load32(m.p);
    const u8 *start = m.p + 2, *end = start; // A number of one byte.
    if ((word & 0x8087) == 2) end += m.p[1]; // Bytes.
    else if ((word & 0x808087) == 0x8002) start++, end = start + ((word >> 8 & 127) | (word >> 9 & 127 << 7));
    else if (word & 0x8087) return scan(m, number);
    if (end > m.end) return scan(m, number);
    if ((word >> 3 & 15) >= number) return (word >> 3 & 15) == number ? pack((span){start, end}) : 0;
    m.p = end;
  }
}

// pull returns the bytes of the next field of that number and goes on behind it;
// no bytes if there is none. So fields are pulled in their order.
static inline span pull(span *m, u32 number) {
  u32 word = load32(m->p);
  const u8 *start = m->p + 2, *end = start + m->p[1];
  if (number > 15 || ((word & 0x80ff) ^ (2 | number << 3)) | (end > m->end)) {
    span found = unpack(search(*m, number));
    if (found.p) m->p = found.end;
    return found;
  }
  m->p = end;
  return (span){start, end};
}

// pass passes over entries of the map with that number, below 16, whose keys have
// another length or other first bytes.
static inline void pass(span *m, u32 number, span key) {
  u32 n = len(key);
  u64 wanted = (u64)load32(key.p) << 8 | n, mask = n < 4 ? (1ull << (8 + 8 * n)) - 1 : (1ull << 40) - 1;
  for (;;) {
    // The entry, its length, its key, the length of that, and the first bytes.
    u64 head = load64(m->p);
    const u8 *end = m->p + 2 + m->p[1];
    if (((head & 0x80ff80ff) ^ (0x0a0002 | number << 3)) | (end > m->end) | (((head >> 24 ^ wanted) & mask) == 0)) return;
    m->p = end;
  }
}
