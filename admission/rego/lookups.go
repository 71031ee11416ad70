package rego

import (
	"bytes"
	"encoding/binary"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Names below data of the cluster's objects: Gatekeeper fills the first, and OPA's agent for
// Kubernetes and Kubewarden the second.
const (
	inventory  = "inventory"
	kubernetes = "kubernetes"
)

// lookups returns the names below data that a module reads, out of those of the cluster's objects.
//
// The compiler makes a constant of each string of a policy. For data.inventory it emits three
// adjacent instructions: data, which is the second parameter of each rule, the address of the
// constant, and a call of opa_value_get. Compilers before ABI 1.2 create the string at run time, so
// that look-ups in it cannot be detected. For inventory, the string alone counts as a look-up,
// since hardly anything else has that name.
func lookups(module []byte) ([]string, error) {
	m, err := wasmbin.Decode(module)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range []string{inventory, kubernetes} {
		addresses, said := constants(m, name)
		reads := said && len(addresses) == 0 && name == inventory
		for _, address := range addresses {
			for i := range m.Codes {
				reads = reads || readsOfData(m.Codes[i].Body, address)
			}
		}
		if reads {
			names = append(names, name)
		}
	}
	return names, nil
}

// constants returns the addresses of the constants that are equal to text, and reports whether the
// module has the string at all.
func constants(m *wasmbin.Module, text string) (addresses []uint32, said bool) {
	for i := range m.Datas {
		d := &m.Datas[i]
		base, ok := constant(d.Offset)
		if !ok {
			continue
		}
		bounded := append([]byte(text), 0)
		for from := 0; ; {
			at := bytes.Index(d.Init[from:], bounded)
			if at < 0 {
				break
			}
			at += from
			from = at + 1
			if at > 0 && d.Init[at-1] != 0 {
				continue
			}
			said = true
			// The kind of a value, the length of its text, and the address of the text.
			value := binary.LittleEndian.AppendUint32(nil, internedString)
			value = binary.LittleEndian.AppendUint32(value, uint32(len(text)))
			value = binary.LittleEndian.AppendUint32(value, base+uint32(at))
			if at := bytes.Index(d.Init, value); at >= 0 {
				addresses = append(addresses, base+uint32(at))
			}
		}
	}
	return addresses, said
}

// internedString is the kind of a constant string.
const internedString = 8

// Instructions of a read of data.
const (
	opLocalGet = 0x20
	opI32Const = 0x41
	opCall     = 0x10
	opEnd      = 0x0b
	dataLocal  = 1
)

// constant returns the address given by a constant expression.
func constant(expr []byte) (uint32, bool) {
	if len(expr) < 3 || expr[0] != opI32Const || expr[len(expr)-1] != opEnd {
		return 0, false
	}
	value := uint32(0)
	for i, b := range expr[1 : len(expr)-1] {
		if i > 4 {
			return 0, false
		}
		value |= uint32(b&0x7f) << (7 * i)
	}
	return value, true
}

// readsOfData reports whether a body reads the member of data that is named by the constant at an
// address.
func readsOfData(body []byte, address uint32) bool {
	read := []byte{opLocalGet, dataLocal, opI32Const}
	for value := int32(address); ; value >>= 7 {
		b := byte(value & 0x7f)
		if value>>7 == 0 && b&0x40 == 0 || value>>7 == -1 && b&0x40 != 0 {
			read = append(read, b)
			break
		}
		read = append(read, b|0x80)
	}
	return bytes.Contains(body, append(read, opCall))
}
