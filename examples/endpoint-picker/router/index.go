package main

import (
	"context"
	"sync"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
)

// Index is what the router knows of the prefix caches of model servers: the blocks of the
// prompts that they have served. It implements picker.Cache.
type Index struct {
	mu sync.RWMutex
	// servers are those that have a block, by the block's hash.
	servers map[uint64]map[string]bool
}

// NewIndex returns an empty Index.
func NewIndex() *Index { return &Index{servers: map[uint64]map[string]bool{}} }

// Add records that a server has blocks.
func (x *Index) Add(server string, hashes ...uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range hashes {
		if x.servers[h] == nil {
			x.servers[h] = map[string]bool{}
		}
		x.servers[h][server] = true
	}
}

// Match returns how many blocks, from the first on without a gap, each server has.
func (x *Index) Match(_ context.Context, req *picker.MatchRequest) (*picker.MatchResponse, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	resp := &picker.MatchResponse{Blocks: map[string]int32{}}
	for i, h := range req.PrefixHashes {
		found := false
		for server := range x.servers[h] {
			if resp.Blocks[server] == int32(i) {
				resp.Blocks[server]++
				found = true
			}
		}
		if !found {
			break
		}
	}
	return resp, nil
}
