package json

// The index of a [Walker] has a number for arrays and objects, in the order of their beginnings:
// the offset of its first byte in the lower half, that of the byte after it in the upper half.
// Read records those of indexedLength bytes or more. An index may lack any, and have shorter ones
// that hold others.

// indexedLength is the minimum length of an array or object in the index. Shorter ones are passed
// over faster than they are looked up.
const indexedLength = 64

// indexedDepth is the number of nested arrays and objects for which an index of the usual size
// always has room.
const indexedDepth = 16

// IndexRoom returns the maximum number of entries of the index of a document of n bytes, an even
// number: an eighth of n, as an entry has eight bytes. A document that needs more, because it is
// nested deeply, has no index.
func IndexRoom(n int) int {
	if n < 2*indexedLength || uint64(n) >= 1<<32 {
		return 0
	}
	return (n/indexedLength + indexedDepth) &^ 1
}

// FirstFrom returns the number of the first entry of a value that begins at start or later.
func FirstFrom(index []uint64, start int) int {
	low, high := 0, len(index)
	for low < high {
		if mid := int(uint(low+high) / 2); int(uint32(index[mid])) < start {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// nothing is the place around the outermost array or object.
const nothing = 1<<32 - 1

// nesting records arrays and objects in an index as they are met. Open ones are at the end of the
// records, with the place of the surrounding one instead of an end.
type nesting struct {
	index []uint64 // nil as soon as there is no room: then nothing is noted.
	least int      // The length of the shortest to be recorded.
	count int
	in    uint64 // The place of the innermost open one, or nothing.
}

// begin records an array or object that begins at i.
func (n *nesting) begin(i int) {
	if n.count == len(n.index) {
		*n = nesting{in: nothing}
		return
	}
	n.index[n.count] = n.in<<32 | uint64(i)
	n.in = uint64(n.count)
	n.count++
}

// end records that the innermost one ends before i.
func (n *nesting) end(i int) {
	if n.in == nothing {
		return
	}
	start, outer := n.index[n.in]&nothing, n.index[n.in]>>32
	n.index[n.in] = uint64(i)<<32 | start
	if n.count == int(n.in)+1 && uint64(i)-start < uint64(n.least) {
		n.count-- // A short one is forgotten with all in it.
	}
	n.in = outer
}
