package sched

import (
	"encoding/binary"
	"math"
	"strconv"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

//go:wasmimport k8s.io/scheduler node_scores
func hostNodeScores(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler node_names
func hostNodeNames(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler result_node_names
func hostResultNodeNames(ptr unsafe.Pointer, n uint32)

//go:wasmimport k8s.io/scheduler result_scores
func hostResultScores(ptr unsafe.Pointer, n uint32)

// Views by the slots of their refs: an object crosses the boundary once for
// each of its versions.
var (
	cycles slots[*cycle]
	pods   slots[core.Pod]
	nodes  slots[core.Node]
)

// The calls of a cycle come one after the other, so its state and its Pod are
// those of the call before, for the most part.
var last struct {
	cycleRef, podRef uint64
	cycle            CycleState
	pod              core.Pod
}

func cycleOf(ref uint64) CycleState {
	if ref != last.cycleRef {
		nextCycle(ref)
	}
	return last.cycle
}

func nextCycle(ref uint64) {
	e, renewed := cycles.at(abi.Ref(ref))
	if e.view == nil {
		e.view = &cycle{}
	}
	if renewed {
		e.view.reset()
	}
	last.cycleRef, last.cycle = ref, CycleState{e.view}
}

func podOf(ref uint64) core.Pod {
	if ref != last.podRef {
		nextPod(ref)
	}
	return last.pod
}

func nextPod(ref uint64) {
	e, renewed := pods.at(abi.Ref(ref))
	if renewed {
		e.view = core.PodFromRef(e.view, abi.Ref(ref))
	}
	last.podRef, last.pod = ref, e.view
}

func nodeOf(ref uint64) NodeInfo {
	e, renewed := nodes.at(abi.Ref(ref))
	if renewed {
		e.view = core.NodeFromRef(e.view, abi.Ref(ref))
	}
	return NodeInfo{e.view}
}

// finish tells the host the reason of a status that is not a success, and ends
// the call.
func finish(s *Status) abi.Code {
	code := s.Code()
	if code != abi.Success && s.reason != "" {
		hostcall.StatusReason(s.reason)
	}
	plugin.Yield()
	return code
}

//go:wasmexport prefilter
func exportPreFilter(cycle, pod uint64) int32 {
	state := cycleOf(cycle)
	state.c.reset()
	result, status := registered.preFilter.PreFilter(state, podOf(pod))
	if result != nil {
		names := appendNames(nil, result.NodeNames)
		hostResultNodeNames(unsafe.Pointer(unsafe.SliceData(names)), uint32(len(names)))
	}
	return int32(finish(status))
}

//go:wasmexport filter
func exportFilter(cycle, pod, node uint64) int32 {
	status := registered.filter.Filter(cycleOf(cycle), podOf(pod), nodeOf(node))
	if status == nil {
		plugin.Yield()
		return int32(abi.Success)
	}
	return int32(finish(status))
}

//go:wasmexport score
func exportScore(cycle, pod, node uint64) uint64 {
	score, status := registered.score.Score(cycleOf(cycle), podOf(pod), nodeOf(node))
	if score < math.MinInt32 || score > math.MaxInt32 {
		status = NewStatus(CodeError, "score ", strconv.FormatInt(score, 10), " does not fit into 32 bits")
	}
	return abi.PackScore(int32(score), finish(status))
}

var (
	scoresBuffer, namesBuffer abi.Buffer
	scoreList                 NodeScoreList
)

//go:wasmexport normalizescore
func exportNormalizeScore(cycle, pod uint64) int32 {
	numbers := scoresBuffer.Fill(func(buf []byte) uint32 {
		return hostNodeScores(unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
	})
	names := namesBuffer.Fill(func(buf []byte) uint32 {
		return hostNodeNames(unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
	})
	// One string for all names: a plugin may keep a name.
	text := string(names)
	scoreList = scoreList[:0]
	for i := 0; i+8 <= len(numbers); i += 8 {
		end := 0
		for end < len(text) && text[end] != 0 {
			end++
		}
		scoreList = append(scoreList, NodeScore{
			Name:  text[:end],
			Score: int64(binary.LittleEndian.Uint64(numbers[i:])),
		})
		text = text[min(end+1, len(text)):]
	}
	status := registered.normalize.NormalizeScore(cycleOf(cycle), podOf(pod), scoreList)
	if status.IsSuccess() {
		// The buffer has the right length already.
		for i, s := range scoreList {
			binary.LittleEndian.PutUint64(numbers[8*i:], uint64(s.Score))
		}
		hostResultScores(unsafe.Pointer(unsafe.SliceData(numbers)), uint32(len(numbers)))
	}
	return int32(finish(status))
}

// appendNames appends each name with a NUL after it.
func appendNames(b []byte, names []string) []byte {
	for _, name := range names {
		b = append(append(b, name...), 0)
	}
	return b
}
