package kube138

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/minors"
)

// minor is the minor of Kubernetes.
const minor = "1.38"

// lacks are the functions of guests that its scheduler does not call.
var lacks = (^abi.Mask(0)).Of(abi.KindScheduler) &^ minors.Of(minor).Functions

// Everything that plugins may implement: the interfaces of base, and those of the types that
// make composed, which are each beside a base.
var (
	_ interface {
		Plugin
		fwk.PreEnqueuePlugin
		fwk.PreFilterPlugin
		fwk.PreScorePlugin
		fwk.ReservePlugin
		fwk.PermitPlugin
		fwk.PreBindPlugin
		fwk.BindPlugin
		fwk.PostBindPlugin
		fwk.SignPlugin
		fwk.PodGroupPostFilterPlugin
		fwk.PlacementScorePlugin
	} = base{}
	_ interface {
		fwk.QueueSortPlugin
		fwk.PlacementGeneratePlugin
		fwk.EnqueueExtensions
		fwk.FilterPlugin
		fwk.PostFilterPlugin
		fwk.ScorePlugin
	} = struct {
		base
		queueSort
		placementGenerate
		enqueue
		filter
		postFilter
		score
	}{}
)
