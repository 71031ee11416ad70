package sched

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// projecting returns a probe that makes the plugin's table encode what a version
// of the guest reads, before the version serves: the paths, if the plugin's
// configuration names any, or what the module declares in its metadata. After a
// swap it is what either version reads, since calls may still run on the old one.
//
// It calls then, the caller's own probe, unless that is nil.
func (p *plugin) projecting(paths []string, then func(context.Context, *host.Instance) error) func(context.Context, *host.Instance) error {
	first, byParts := true, false
	return func(ctx context.Context, inst *host.Instance) error {
		if then != nil {
			if err := then(ctx, inst); err != nil {
				return err
			}
		}
		declared, err := projection(paths, inst.Module().Custom(abi.MetadataSection))
		if err != nil {
			return err
		}
		if declared.Nameless() {
			if err := withoutNames(inst); err != nil {
				return err
			}
		}
		if p.sign {
			if err := signable(inst, declared); err != nil {
				return err
			}
		}
		if p.remembers {
			if err := ofProjection(inst, declared, errRemembered); err != nil {
				return err
			}
		}
		parts := inst.Module().Import(abi.ModuleObjects, abi.ImportObjectPart) != ""
		switch {
		case first:
			p.objects.Project(declared, parts)
		case !declared.Equal(p.objects.Projection()) || parts != byParts:
			p.objects.Project(declared.Union(p.objects.Projection()), parts)
		}
		if !parts || len(byNode(inst)) != 0 {
			p.reads.everything()
		}
		first, byParts = false, parts
		return nil
	}
}

// byNode returns those host functions that a version of the guest imports and that answer
// about the node of a ref: it must know, or finds out, which Node it is that it sees.
func byNode(inst *host.Instance) (names []string) {
	for _, name := range []string{
		abi.ImportNodeRefs, abi.ImportNodeByName, abi.ImportNodeInfoVersion, abi.ImportNodeInfo, abi.ImportNodeImages, abi.ImportNodePods,
	} {
		if inst.Module().Import(abi.ModuleScheduler, name) != "" {
			names = append(names, name)
		}
	}
	return names
}

// withoutNames reports every reason why a version of the guest cannot do without
// knowing which Node it is that it sees.
func withoutNames(inst *host.Instance) error {
	var errs []error
	for _, name := range byNode(inst) {
		errs = append(errs, fmt.Errorf("the projection has %s, and the guest imports %s, which must know which Node it is", objects.NamelessNodes, name))
	}
	return errors.Join(errs...)
}

// projection parses the paths of a configuration or, without any, those of a
// module's metadata.
func projection(paths []string, section []byte) (*objects.Projection, error) {
	if len(paths) != 0 || section == nil {
		return objects.ParseProjection(paths)
	}
	m, err := metadata.Parse(section)
	if err != nil {
		return nil, err
	}
	declared, err := objects.ParseProjection(m.Projection)
	if err != nil {
		return nil, fmt.Errorf("the module declares what it reads: %w", err)
	}
	return declared, nil
}
