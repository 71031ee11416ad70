package abi

import (
	"errors"
	"math"
	"strconv"
)

// This file does not import fmt: it is part of every guest, and fmt would add
// half a megabyte.

// errTooLarge is the error of more bytes than the ABI allows: a length must fit
// into a signed 32-bit number.
var errTooLarge = errors.New("more bytes than the ABI can carry")

// boundsError is the error of a guest that named bytes outside of its memory.
type boundsError struct {
	// Start and End enclose the bytes, Memory is the size of the memory.
	Start, End, Memory uint64
}

func (e *boundsError) Error() string {
	return "bytes [" + strconv.FormatUint(e.Start, 10) + ", " + strconv.FormatUint(e.End, 10) +
		") are out of bounds of the guest's memory of " + strconv.FormatUint(e.Memory, 10) + " bytes"
}

// AllFields requests a whole message from object_part. In any other mask of fields
// the bit 1<<n stands for field n.
const AllFields = 1<<64 - 1

// NoEntry is the result of object_entry, instead of a length, for a key that the map
// does not have.
const NoEntry = math.MaxUint32

func checkBounds(memory []byte, start, length uint32) error {
	end := uint64(start) + uint64(length)
	if length != 0 && end > uint64(len(memory)) {
		return &boundsError{Start: uint64(start), End: end, Memory: uint64(len(memory))}
	}
	return nil
}

// Write is the host's side of the buffer-limit rule. It copies data to
// memory[buf:] if len(data) <= limit, writes nothing otherwise, and returns
// len(data) either way.
//
// The whole buffer that the guest claims, [buf, buf+limit), must lie in memory,
// even when nothing is written; otherwise the error names both. A buffer
// of limit 0 may be anywhere. More than math.MaxInt32 bytes are an error.
func Write(memory []byte, buf, limit uint32, data []byte) (n uint32, err error) {
	if len(data) > math.MaxInt32 {
		return 0, errTooLarge
	}
	if err := checkBounds(memory, buf, limit); err != nil {
		return 0, err
	}
	if len(data) != 0 && uint64(len(data)) <= uint64(limit) {
		copy(memory[buf:], data)
	}
	return uint32(len(data)), nil
}

// Read returns the bytes [ptr, ptr+length) of memory, without a copy: they are
// valid only while the guest does not run. The error names both when
// they do not lie in memory. A length of 0 gives nil for any ptr.
func Read(memory []byte, ptr, length uint32) ([]byte, error) {
	if length == 0 {
		return nil, nil
	}
	if err := checkBounds(memory, ptr, length); err != nil {
		return nil, err
	}
	end := uint64(ptr) + uint64(length) // 2^32 is possible.
	return memory[ptr:end:end], nil
}

// Buffer is the guest's side of the buffer-limit rule: memory that is kept from
// call to call and grows to the size of the largest answer.
//
// The zero value is ready to use.
type Buffer struct {
	bytes []byte
}

// bufferStart is the size of a Buffer before its first growth.
const bufferStart = 4 << 10

// Fill calls host with the buffer and, if the answer is longer, once more with
// one that is large enough. It returns the answer, which is valid until the
// next Fill.
//
// Fill panics if the second answer is longer still: a host function must give
// the same answer within one call of the guest.
func (b *Buffer) Fill(host func(buf []byte) uint32) []byte {
	if b.bytes == nil {
		b.bytes = make([]byte, bufferStart)
	}
	n := host(b.bytes)
	if uint64(n) > uint64(len(b.bytes)) {
		// Round up, so that answers that grow slowly do not each reallocate.
		b.bytes = make([]byte, (uint64(n)+bufferStart-1)/bufferStart*bufferStart)
		if again := host(b.bytes); again != n {
			panic("kubewasm: host answered " + strconv.Itoa(int(n)) + " bytes, then " + strconv.Itoa(int(again)) + ", to the same question")
		}
	}
	return b.bytes[:n]
}
