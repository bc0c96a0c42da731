package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxDecisions is the maximum number of decisions in an answer. Earlier ones are left out.
const maxDecisions = 500

// decided is what a replica answers about its own decisions. Boot identifies its process.
type decided struct {
	Boot      string               `json:"boot"`
	Decisions []decisions.Decision `json:"decisions"`
	Next      uint64               `json:"next"`
}

// answerDecisions answers a replica's own decisions since an ID.
func answerDecisions(boot string, l *decisions.Log) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64) // 0 asks for all.
		out := decided{Boot: boot}
		out.Decisions, out.Next = l.Own(since, maxDecisions)
		web.WriteJSON(w, out)
	}
}

// position is how far the decisions of another replica are known.
type position struct {
	boot string
	next uint64
}

// followDecisions adds the decisions of the other replicas to this one's log, until ctx ends: the leader decides most
// things, and whichever replica gets a deployment takes it.
func followDecisions(ctx context.Context, g *Group) {
	if g.options.Decisions == nil {
		return
	}
	var mu sync.Mutex
	known := map[string]position{}
	for backoff.Wait(ctx, idleTicks*g.options.Tick) {
		others := g.others()
		maps.DeleteFunc(known, func(id string, _ position) bool {
			return !slices.ContainsFunc(others, func(m Member) bool { return m.ID == id })
		})
		g.each(ctx, g.reachable(), func(ctx context.Context, m Member) error {
			mu.Lock()
			at := known[m.ID]
			mu.Unlock()
			text, err := g.call(ctx, m, http.MethodGet, decisionsPath+"?since="+strconv.FormatUint(at.next, 10), nil)
			if err != nil {
				return err
			}
			var found decided
			if err := json.Unmarshal(text, &found); err != nil {
				return fmt.Errorf("the decisions of replica %s: %w", m.ID, err)
			}
			if at.next > 0 && found.Boot != at.boot {
				found.Next = 0 // It has restarted; the next poll asks for everything.
			} else {
				g.options.Decisions.Merge(found.Boot, found.Decisions)
			}
			mu.Lock()
			defer mu.Unlock()
			known[m.ID] = position{found.Boot, found.Next}
			return nil
		})
	}
}
