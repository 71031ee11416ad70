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
	blocks := cached.Blocks()
	left := 0
	for _, e := range endpoints {
		score := -1.0
		if p.takes(req, e) {
			left++
			score = (1 - p.CacheWeight) * (1 - float64(e.WaitingQueueSize())/float64(p.MaxQueue+1))
			if n := blocks.Get(e.Name()); n > 0 {
				score += p.CacheWeight * float64(n) / float64(len(hashes))
			}
		}
		resp.Scores = append(resp.Scores, score)
	}
	if left == 0 {
		resp.Reason = "every server is busy or draining"
	}
	return nil
}

// takes reports whether an endpoint may get the request.
func (p *prefix) takes(req pickerguest.PickRequest, e pickerguest.Endpoint) bool {
	if e.WaitingQueueSize() > p.MaxQueue && req.Criticality() != pickerguest.CriticalityCritical {
		return false
	}
	return p.DrainLabel == "" || !e.Pod().Metadata().Labels().Has(p.DrainLabel)
}

// Served has nothing to remember: the router knows the caches.
func (p *prefix) Served(pickerguest.ServedRequest, *pickerguest.ServedResponse) error { return nil }

func init() { pickerguest.RegisterPicker(&prefix{}) }

func main() {}
