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
	pods   slots[struct {
		version uint32
		pod     core.Pod
	}]
	nodes slots[struct {
		version uint32
		node    core.Node
	}]
)

func cycleOf(ref uint64) CycleState {
	at := cycles.at(abi.Ref(ref))
	if *at == nil {
		*at = &cycle{}
	}
	c := *at
	if v := abi.Ref(ref).Version(); c.version != v {
		c.reset(v)
	}
	return CycleState{c}
}

func podOf(ref uint64) core.Pod {
	e := pods.at(abi.Ref(ref))
	if v := abi.Ref(ref).Version(); e.version != v {
		e.version, e.pod = v, core.PodFromRef(abi.Ref(ref))
	}
	return e.pod
}

func nodeOf(ref uint64) NodeInfo {
	e := nodes.at(abi.Ref(ref))
	if v := abi.Ref(ref).Version(); e.version != v {
		e.version, e.node = v, core.NodeFromRef(abi.Ref(ref))
	}
	return NodeInfo{e.node}
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
	state.c.reset(abi.Ref(cycle).Version())
	result, status := registered.preFilter.PreFilter(state, podOf(pod))
	if result != nil {
		names := appendNames(nil, result.NodeNames)
		hostResultNodeNames(unsafe.Pointer(unsafe.SliceData(names)), uint32(len(names)))
	}
	return int32(finish(status))
}

//go:wasmexport filter
func exportFilter(cycle, pod, node uint64) int32 {
	return int32(finish(registered.filter.Filter(cycleOf(cycle), podOf(pod), nodeOf(node))))
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
