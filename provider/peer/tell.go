package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Wake has the leader look at the load now, with this replica's as it is. It does not
// wait.
func (g *Group) Wake() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// waking tells the others of this replica's load when it is asked to. Who does not
// lead takes note only.
func (g *Group) waking(ctx context.Context) {
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
		load := g.seen(l, noneExecuted)
		body, err := json.Marshal(load)
		if err != nil {
			g.options.Logger.Error().Err(err).Msg("the load cannot be told")
			continue
		}
		g.each(ctx, func(ctx context.Context, m Member) error {
			_, err := g.call(ctx, m, http.MethodPost, wakePath, bytes.NewReader(body))
			return err
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(wakePause):
		}
	}
}

// each does something with all others at the same time, for as long as an answer may
// take, and returns how many of them failed.
func (g *Group) each(ctx context.Context, f func(context.Context, Member) error) (failed int) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return g.eachOf(ctx, g.others(), f)
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
				g.options.Logger.Debug().Str("replica", m.ID).Err(err).Msg("another replica was not told")
			}
			mu.Lock()
			defer mu.Unlock()
			failed++
		})
	}
	all.Wait()
	return failed
}

// Drain has the others give an instance nothing new, and returns when none of those
// that can be reached has anything on it, or with ctx.
func (g *Group) Drain(ctx context.Context, id cluster.InstanceID) {
	g.eachOf(ctx, g.reachable(), func(ctx context.Context, m Member) error {
		_, err := g.call(ctx, m, http.MethodPost, drainPath+"?instance="+url.QueryEscape(string(id)), nil)
		return err
	})
}

// reachable are the others that are not left out.
func (g *Group) reachable() (out []Member) {
	for _, m := range g.others() {
		if !g.isDown(m.ID) {
			out = append(out, m)
		}
	}
	return out
}

// Park has the others give an instance nothing until Serve; false, and they use it
// on, if one of them needs it or cannot be asked.
func (g *Group) Park(ctx context.Context, id cluster.InstanceID) bool {
	others := g.others()
	if len(g.reachable()) < len(others) {
		return false
	}
	failed := g.each(ctx, func(ctx context.Context, m Member) error {
		_, err := g.call(ctx, m, http.MethodPost, parkPath+"?instance="+url.QueryEscape(string(id)), nil)
		return err
	})
	if failed > 0 {
		g.tellServed(context.WithoutCancel(ctx), served{ID: id})
		return false
	}
	return true
}

// Serve tells the others that an instance takes batches, and with which config. It
// does not wait; who is not told learns it from the backend.
func (g *Group) Serve(id cluster.InstanceID, config cluster.Config) {
	select {
	case g.serve <- served{id, config}:
	default:
	}
}

// serving tells, in order, which instances serve.
func (g *Group) serving(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-g.serve:
			g.tellServed(ctx, s)
		}
	}
}

func (g *Group) tellServed(ctx context.Context, s served) {
	body, err := json.Marshal(s)
	if err != nil {
		g.options.Logger.Error().Err(err).Msg("an instance cannot be told of")
		return
	}
	g.each(ctx, func(ctx context.Context, m Member) error {
		_, err := g.call(ctx, m, http.MethodPost, servePath, bytes.NewReader(body))
		return err
	})
}
