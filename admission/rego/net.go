package rego

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
)

var errAddress = errors.New("no network")

// maxNetworks is the maximum number of networks to merge or compare.
const maxNetworks = 1 << 16

// networkWork is the cost of reading a network, or of comparing two.
const networkWork = 200

func cidrIsValid(_ *call, args []any) (any, error) {
	s, ok := args[0].(string)
	_, _, err := net.ParseCIDR(s)
	return ok && err == nil, nil
}

// cidrExpand returns the addresses of a network, as a set.
func cidrExpand(s string) (any, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return nil, err
	}
	prefix = prefix.Masked()
	if prefix.Addr().BitLen()-prefix.Bits() > 16 {
		return nil, errTooMuch
	}
	var addresses set
	for a := prefix.Addr(); a.IsValid() && prefix.Contains(a); a = a.Next() {
		addresses = append(addresses, a.Unmap().String())
	}
	return newSet(addresses), nil
}

// addressRange is a network, or several adjacent networks. Addresses have 16 bytes.
type addressRange struct {
	first, last net.IP
	// network is nil if the range has several networks.
	network *net.IPNet
}

// cidrMerge merges networks that are adjacent or contained in one another. As in OPA, an address
// without a prefix is the network of its class.
func cidrMerge(c *call, args []any) (any, error) {
	list, ok := args[0].([]any)
	if !ok {
		elements, isSet := args[0].(set)
		if list = elements; !isSet {
			return nil, errArguments
		}
	}
	if len(list) > maxNetworks {
		return nil, errTooMuch
	}
	c.work(len(list)*networkWork + sortWork(len(list)))
	ranges := make([]addressRange, len(list))
	for i, item := range list {
		s, ok := item.(string)
		if !ok {
			return nil, errArguments
		}
		network, err := networkOf(s)
		if err != nil {
			return nil, err
		}
		ranges[i] = rangeOf(network)
	}
	slices.SortStableFunc(ranges, func(a, b addressRange) int {
		if d := bytes.Compare(a.last, b.last); d != 0 {
			return d
		}
		return bytes.Compare(a.first, b.first)
	})
	var merged []addressRange // Ordered from the last range to the first.
	for _, r := range slices.Backward(ranges) {
		if n := len(merged) - 1; n >= 0 && bytes.Compare(previous(merged[n].first), r.last) <= 0 {
			if bytes.Compare(r.first, merged[n].first) < 0 {
				merged[n].first = r.first
			}
			merged[n].network = nil
			continue
		}
		merged = append(merged, r)
	}
	var networks set
	for _, r := range merged {
		if r.network != nil {
			networks = append(networks, r.network.String())
			continue
		}
		for _, network := range r.networks() {
			networks = append(networks, network.String())
		}
	}
	return newSet(networks), nil
}

func networkOf(s string) (*net.IPNet, error) {
	ip := net.ParseIP(s)
	switch {
	case ip == nil:
		_, network, err := net.ParseCIDR(s)
		return network, err
	case ip.To4() == nil:
		return nil, errAddress
	}
	return &net.IPNet{IP: ip, Mask: ip.DefaultMask()}, nil
}

func rangeOf(n *net.IPNet) addressRange {
	ip, mask := n.IP, n.Mask
	if v4 := ip.To4(); v4 != nil && len(mask) == net.IPv4len {
		ip = v4
	}
	first, last := ip.Mask(mask), slices.Clone(ip)
	for i := range last {
		last[i] |= ^mask[i]
	}
	return addressRange{first.To16(), last.To16(), n}
}

// previous returns the address before another. The first address is its own predecessor.
func previous(ip net.IP) net.IP {
	if ip.IsUnspecified() {
		return ip
	}
	ip = slices.Clone(ip)
	for i := len(ip) - 1; i >= 0; i-- {
		if ip[i]--; ip[i] != 0xff {
			break
		}
	}
	return ip
}

// networks returns the smallest list of networks that covers exactly the range.
func (r addressRange) networks() []*net.IPNet {
	bits, first, last := 128, r.first, r.last
	if v4, end := first.To4(), last.To4(); v4 != nil && end != nil {
		bits, first, last = 32, v4, end
	}
	var list []*net.IPNet
	for {
		ones := bits
		for ones > 0 {
			n := rangeOf(&net.IPNet{IP: first, Mask: net.CIDRMask(ones-1, bits)})
			if !n.first.Equal(first) || bytes.Compare(n.last, last.To16()) > 0 {
				break
			}
			ones--
		}
		n := &net.IPNet{IP: first, Mask: net.CIDRMask(ones, bits)}
		list = append(list, n)
		end := rangeOf(n).last
		if bytes.Compare(end, last.To16()) >= 0 {
			return list
		}
		next := slices.Clone(end)
		for i := len(next) - 1; i >= 0; i-- {
			if next[i]++; next[i] != 0 {
				break
			}
		}
		if first = next; bits == 32 {
			first = next.To4()
		}
	}
}

// member is an element of an operand of net.cidr_contains_matches: a network or an address, and its
// key in the result.
type member struct {
	address string
	key     any
}

func members(v any) ([]member, error) {
	var list []member
	add := func(v, key any) error {
		if l, ok := v.([]any); ok && len(l) != 0 {
			v = l[0]
		}
		s, ok := v.(string)
		if !ok {
			return errArguments
		}
		list = append(list, member{s, key})
		return nil
	}
	var errs []error
	switch v := v.(type) {
	case string:
		return []member{{v, v}}, nil
	case []any:
		for i, e := range v {
			errs = append(errs, add(e, i))
		}
	case set:
		for _, e := range v {
			errs = append(errs, add(e, e))
		}
	case object:
		for _, e := range v {
			errs = append(errs, add(e.value, e.key))
		}
	}
	return list, errors.Join(errs...)
}

// cidrContainsMatches returns the pairs of a network of the first operand and a network or an
// address of the second that it contains.
func cidrContainsMatches(c *call, args []any) (any, error) {
	outer, err := members(args[0])
	if err != nil {
		return nil, err
	}
	inner, err := members(args[1])
	if err != nil {
		return nil, err
	}
	if len(outer)*len(inner) > maxWork/networkWork {
		return nil, errTooMuch
	}
	c.work(len(outer) * len(inner) * networkWork)
	pairs := set{}
	for _, a := range outer {
		for _, b := range inner {
			contains, err := cidrContains(a.address, b.address)
			if err != nil {
				return nil, err
			}
			if contains {
				pairs = append(pairs, []any{normal(a.key), normal(b.key)})
			}
		}
	}
	c.work(sortWork(len(pairs)))
	return newSet(pairs), nil
}

func cidrContains(outer, inner string) (bool, error) {
	_, a, err := net.ParseCIDR(outer)
	if err != nil {
		return false, err
	}
	if ip := net.ParseIP(inner); ip != nil {
		return a.Contains(ip), nil
	}
	_, b, err := net.ParseCIDR(inner)
	if err != nil {
		return false, err
	}
	if len(a.Mask) != len(b.Mask) {
		// Of networks of different lengths, only an IPv4 network written as IPv6 may be in the
		// other.
		return a.Contains(b.IP) && a.Contains(rangeOf(b).last), nil
	}
	x, _ := a.Mask.Size()
	y, _ := b.Mask.Size()
	return x <= y && a.IP.Equal(b.IP.Mask(a.Mask)), nil
}
