package codec

import (
	"hash/maphash"
	"sync/atomic"
)

// pointers finds Objects by the pointers of what they are of. Reading takes no
// lock, and touches one cache line beside those of the Objects; in a sync.Map it
// would be four more. Writers exclude one another.
//
// It is a table of buckets, each a list. A reader that meets a writer may miss an
// Object, and never finds one of another pointer.
type pointers struct {
	buckets atomic.Pointer[[]atomic.Pointer[Object]]
	count   int
}

// leastBuckets is how many buckets there are at least, a power of two. There are
// twice as many as Objects.
const leastBuckets = 64

var seed = maphash.MakeSeed()

// hash returns the hash of the pointer of o.
func (o *Object) hash() uint64 {
	if o.node != nil {
		return maphash.Comparable(seed, o.node)
	}
	return maphash.Comparable(seed, o.pod)
}

// bucket returns the first Object of a bucket, nil if there is none.
func (p *pointers) bucket(hash uint64) *Object {
	buckets := p.buckets.Load()
	if buckets == nil {
		return nil
	}
	return (*buckets)[hash&uint64(len(*buckets)-1)].Load()
}

// add adds an Object, whose pointer is not there.
func (p *pointers) add(o *Object) {
	buckets := p.buckets.Load()
	if buckets == nil || 2*p.count >= len(*buckets) {
		buckets = p.grow(buckets)
	}
	p.count++
	push(*buckets, o)
}

// push puts an Object before the others of its bucket.
func push(buckets []atomic.Pointer[Object], o *Object) {
	bucket := &buckets[o.hash()&uint64(len(buckets)-1)]
	o.next.Store(bucket.Load())
	bucket.Store(o)
}

// grow moves the Objects into more buckets. Those who read meanwhile may go from
// one list to another, and come to its end.
func (p *pointers) grow(old *[]atomic.Pointer[Object]) *[]atomic.Pointer[Object] {
	if old == nil {
		old = new([]atomic.Pointer[Object])
	}
	fresh := make([]atomic.Pointer[Object], max(leastBuckets, 2*len(*old)))
	for i := range *old {
		for o := (*old)[i].Load(); o != nil; {
			next := o.next.Load()
			push(fresh, o)
			o = next
		}
	}
	p.buckets.Store(&fresh)
	return &fresh
}

// remove removes an Object, if it is there. Its own next stays, for those who
// read it.
func (p *pointers) remove(o *Object) {
	buckets := p.buckets.Load()
	if buckets == nil {
		return
	}
	link := &(*buckets)[o.hash()&uint64(len(*buckets)-1)]
	for at := link.Load(); at != nil; at = link.Load() {
		if at == o {
			link.Store(o.next.Load())
			p.count--
			return
		}
		link = &at.next
	}
}

// clear removes all Objects.
func (p *pointers) clear() {
	p.buckets.Store(nil)
	p.count = 0
}
