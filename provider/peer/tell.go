package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
)

// Wake sends this replica's load to the leader and makes it look at the load now. It does not
// wait.
func (g *Group) Wake() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// wakeLoop sends this replica's load to all others after each Wake. Those that do not lead only
// store it.
func (g *Group) wakeLoop(ctx context.Context) {
	told := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.kick:
		}
		l := g.attached()
		if l == nil {
			continue
		}
		load := g.seen(l, noneExecuted, told)
		told = load.Version
		body, err := json.Marshal(load)
		if err != nil {
			g.options.Logger.Error().Err(err).Msg("could not encode the load for the other replicas")
			continue
		}
		g.each(ctx, g.others(), func(ctx context.Context, m Member) error {
			_, err := g.call(ctx, m, http.MethodPost, wakePath, bytes.NewReader(body))
			return err
		})
		if !backoff.Wait(ctx, wakePause) {
			return
		}
	}
}

// each calls f for all members in parallel, within answerTimeout. It returns how many calls failed.
func (g *Group) each(ctx context.Context, members []Member, f func(context.Context, Member) error) (failed int) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return g.eachOf(ctx, members, f)
}

func (g *Group) eachOf(ctx context.Context, members []Member, f func(context.Context, Member) error) (failed int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, m := range members {
		all.Go(func() {
			err := f(ctx, m)
			if err == nil {
				return
			}
			if ctx.Err() == nil {
				g.options.Logger.Debug().Str("replica", m.ID).Err(err).Msg("could not notify another replica")
			}
			mu.Lock()
			defer mu.Unlock()
			failed++
		})
	}
	all.Wait()
	return failed
}

// Drain makes the others send an instance nothing new. It returns when none of the reachable
// ones has a request on it, or when ctx ends.
func (g *Group) Drain(ctx context.Context, id cluster.InstanceID) {
	g.eachOf(ctx, g.reachable(), func(ctx context.Context, m Member) error {
		_, err := g.call(ctx, m, http.MethodPost, drainPath+"?instance="+url.QueryEscape(string(id)), nil)
		return err
	})
}

// reachable returns the other replicas that are not left out.
func (g *Group) reachable() (out []Member) {
	for _, m := range g.others() {
		if !g.isDown(m) {
			out = append(out, m)
		}
	}
	return out
}

// Park makes the others send an instance nothing until Serve. If one of them needs the instance
// or cannot be reached, Park returns false and the others keep using it. A leaving replica that
// cannot be reached has ended, and does not count.
func (g *Group) Park(ctx context.Context, id cluster.InstanceID) bool {
	others := g.others()
	if slices.ContainsFunc(others, func(m Member) bool { return g.isDown(m) }) {
		return false
	}
	failed := g.each(ctx, others, func(ctx context.Context, m Member) error {
		_, err := g.call(ctx, m, http.MethodPost, parkPath+"?instance="+url.QueryEscape(string(id)), nil)
		if m.leaving && g.isDown(m) {
			return nil
		}
		return err
	})
	if failed > 0 {
		g.postServed(context.WithoutCancel(ctx), served{ID: id})
		return false
	}
	return true
}

// Serve tells the others that an instance takes batches, and with which config. It does not
// wait. A replica that misses the message learns it from the backend.
func (g *Group) Serve(id cluster.InstanceID, config cluster.Config) {
	select {
	case g.serve <- served{id, config}:
	default:
	}
}

// serveLoop sends the messages of Serve to the others, in order.
func (g *Group) serveLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-g.serve:
			g.postServed(ctx, s)
		}
	}
}

func (g *Group) postServed(ctx context.Context, s served) {
	body, err := json.Marshal(s)
	if err != nil {
		g.options.Logger.Error().Err(err).Msg("could not encode an instance for the other replicas")
		return
	}
	g.each(ctx, g.others(), func(ctx context.Context, m Member) error {
		_, err := g.call(ctx, m, http.MethodPost, servePath, bytes.NewReader(body))
		return err
	})
}
