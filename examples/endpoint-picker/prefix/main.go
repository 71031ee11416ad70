// The plugin prefix picks the model server that has most of a prompt in its cache, among those
// that are not busy.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/pickerguest"
)

// prefix is the plugin. Its fields are its configuration.
type prefix struct {
	// DrainLabel is a label of Pods that get no new requests.
	DrainLabel string `json:"drainLabel"`
	// MaxQueue is how many requests may wait at a server that gets another.
	MaxQueue int32 `json:"maxQueue"`
	// CacheWeight is how much the cache counts beside the queue, from 0 to 1.
	CacheWeight float64 `json:"cacheWeight"`

	// scores is the memory of the responses.
	scores []float64
}

// Configure checks the configuration.
func (p *prefix) Configure() error {
	if p.CacheWeight < 0 || p.CacheWeight > 1 {
		return errors.New("cacheWeight is not from 0 to 1")
	}
	if p.MaxQueue <= 0 {
		p.MaxQueue = 128
	}
	return nil
}

// Pick scores by the cached part of the prompt and by the free part of the queue.
func (p *prefix) Pick(req pickerguest.PickRequest, resp *pickerguest.PickResponse) error {
	endpoints := req.Endpoints()
	hashes := req.PrefixHashes()
	var cached pickerguest.MatchResponse
	if len(hashes) > 0 && p.CacheWeight > 0 {
		var err error
		if cached, err = (pickerguest.Cache{}).Match(&pickerguest.MatchRequest{PrefixHashes: hashes}); err != nil {
			return err
		}
	}
	blocks, critical := cached.Blocks(), req.Criticality() == pickerguest.CriticalityCritical
	queueWeight, room := 1-p.CacheWeight, float64(p.MaxQueue+1)
	left, scores := 0, p.scores[:0]
	for _, e := range endpoints {
		score, queue := -1.0, e.WaitingQueueSize()
		if (queue <= p.MaxQueue || critical) && (p.DrainLabel == "" || !p.drains(e)) {
			left++
			score = queueWeight * (1 - float64(queue)/room)
			if blocks.Len() > 0 {
				score += p.CacheWeight * float64(blocks.Get(e.Name())) / float64(len(hashes))
			}
		}
		scores = append(scores, score)
	}
	p.scores, resp.Scores = scores, scores
	if left == 0 {
		resp.Reason = "every server is busy or draining"
	}
	return nil
}

// drains reports whether an endpoint's Pod has the label of those that get no new requests.
func (p *prefix) drains(e pickerguest.Endpoint) bool {
	return e.Pod().Metadata().Labels().Has(p.DrainLabel)
}

// Served has nothing to remember: the router knows the caches.
func (p *prefix) Served(pickerguest.ServedRequest, *pickerguest.ServedResponse) error { return nil }

func init() { pickerguest.RegisterPicker(&prefix{}) }

func main() {}
