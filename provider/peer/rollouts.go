package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxStands is the size in bytes of the longest list of rollouts that a replica reads.
const maxStands = 16 << 20

// RolloutFollower splits requests as the leader says, and returns this replica's counts.
type RolloutFollower func(all []provider.RolloutStand) []provider.RolloutCounts

// Rollouts exchanges the counts of gradual rollouts between replicas. Create it with [NewRollouts].
type Rollouts struct {
	group *Group
	leads func() bool
}

var _ provider.RolloutPeers = Rollouts{}

// NewRollouts returns the rollouts of a group, nil for one without others. leads reports whether this replica leads.
func NewRollouts(g *Group, leads func() bool) Rollouts { return Rollouts{g, leads} }

// Attach sets how this replica follows a leader.
func (r Rollouts) Attach(f RolloutFollower) { r.group.follower.Store(&f) }

// Leads implements [provider.RolloutPeers].
func (r Rollouts) Leads() bool { return r.leads() }

// Exchange implements [provider.RolloutPeers].
func (r Rollouts) Exchange(ctx context.Context, all []provider.RolloutStand) (counts []provider.RolloutCounts) {
	if r.group == nil {
		return nil
	}
	body, err := json.Marshal(all)
	if err != nil {
		r.group.options.Logger.Error().Err(err).Msg("could not encode the rollouts for the other replicas")
		return nil
	}
	var mu sync.Mutex
	r.group.each(ctx, r.group.reachable(), func(ctx context.Context, m Member) error {
		text, err := r.group.call(ctx, m, http.MethodPost, rolloutsPath, bytes.NewReader(body))
		if err != nil {
			return err
		}
		var found []provider.RolloutCounts
		if err := json.Unmarshal(text, &found); err != nil {
			return fmt.Errorf("the counts of replica %s: %w", m.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		counts = append(counts, found...)
		return nil
	})
	return counts
}

// serve answers the leader.
func (r Rollouts) serve(w http.ResponseWriter, q *http.Request) {
	follow := r.group.follower.Load()
	if follow == nil {
		http.Error(w, "the provider is starting", http.StatusServiceUnavailable)
		return
	}
	var all []provider.RolloutStand
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxStands)).Decode(&all); err != nil {
		http.Error(w, "the body must be a list of rollouts", http.StatusBadRequest)
		return
	}
	counts := (*follow)(all)
	for i := range counts {
		counts[i].Replica = r.group.boot
	}
	web.WriteJSON(w, counts)
}
