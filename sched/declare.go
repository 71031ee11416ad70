package sched

import (
	"context"
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// declaring returns a probe that declares the fields read by a version of the guest, before the
// version serves: the paths, if the plugin's configuration names any, or those declared in the
// module's metadata. After a swap it declares the fields of both versions, since calls may still
// run on the old one. The first version also decides whether the host signs Pods.
//
// It calls then, the caller's probe, unless that is nil.
func (p *Plugin) declaring(paths []string, then func(context.Context, *host.Instance) error) func(context.Context, *host.Instance) error {
	first := true
	return func(ctx context.Context, inst *host.Instance) error {
		if then != nil {
			if err := then(ctx, inst); err != nil {
				return err
			}
		}
		declared, err := declaredFields(paths, inst.Module().Custom(abi.MetadataSection))
		if err != nil {
			return err
		}
		if first {
			p.signs(inst, declared)
		} else if err := p.signedFor(inst, declared); err != nil {
			return err
		}
		if !first {
			declared = declared.Union(p.objects.Declared())
		}
		if !declared.Equal(p.objects.Declared()) {
			p.objects.Declare(declared)
		}
		first = false
		return nil
	}
}

// tellsNodesApart reports whether a version of the guest imports host functions that answer about
// the node of a ref: it knows, or can find out, the identity of the Node.
func tellsNodesApart(m *host.Module) bool {
	for _, name := range []string{
		"node_refs", "node_by_name", "node_info_version", "node_info", "node_images", "node_pods", "nominated_pods", "count_pods",
	} {
		if m.Import(abi.KindScheduler.Module(), name) != "" {
			return true
		}
	}
	return false
}

// declaredFields parses the paths of a configuration or, without any, those of a
// module's metadata.
func declaredFields(paths []string, section []byte) (*objects.FieldSet, error) {
	if len(paths) != 0 || section == nil {
		return objects.ParseFieldSet(paths)
	}
	m, err := metadata.Parse(section)
	if err != nil {
		return nil, err
	}
	declared, err := objects.ParseFieldSet(m.Reads)
	if err != nil {
		return nil, fmt.Errorf("read the module's declaration of its reads: %w", err)
	}
	return declared, nil
}
