package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/model/content"
)

const (
	// nodePatience is how long an instance may take to find the model that its node has.
	nodePatience = 5 * time.Second
	// findPause is the time between two questions whether it has.
	findPause = 50 * time.Millisecond
	// nodeStall is how long a node may get no byte until the instance is sent its model itself.
	nodeStall = 15 * time.Second
)

// send sends an instance its content: to its node, where all instances find it, or else to the instance.
func (u *uris) send(ctx context.Context, client *http.Client, spec cluster.InstanceSpec, address string,
	sent func(int64)) error {
	if u.toNode(ctx, client, spec, address, sent) {
		return nil
	}
	ready := make(chan struct{})
	go func() { // A download may take longer than an instance may be silent, and has a limit of its own.
		tick := time.Tick(feedLook)
		for {
			select {
			case <-tick:
				sent(0)
			case <-ready:
				return
			}
		}
	}()
	from, err := u.source(ctx, contentOf(spec), spec.Function)
	close(ready)
	if err == nil {
		err = u.toInstance(ctx, client, spec, address, from, sent)
		if !errors.Is(err, content.ErrRefused) {
			return err
		}
	}
	if errors.Is(err, errUnknown) || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", kubernetes.ErrNoContent, err)
}

// toInstance sends a content to the instance itself.
func (u *uris) toInstance(ctx context.Context, client *http.Client, spec cluster.InstanceSpec, address string,
	from content.Source, sent func(int64)) error {
	s := &sending{}
	s.of.Store(from.Index.Bytes())
	if state, err := content.Ask(ctx, client, address); err == nil {
		s.sent.Store(state.From)
	}
	u.show(spec, "", s)
	began := time.Now()
	err := content.Send(ctx, client, address, from, func(n int64) {
		s.sent.Add(n)
		sent(n)
	})
	if err == nil {
		u.platform.base.Log.Info().Str("instance", string(spec.ID)).Int64("bytes", from.Index.Bytes()).
			Dur("took_ms", time.Since(began)).Msg("sent the model to the instance")
	}
	return err
}

// toNode brings the content to the instance's node, and waits until the instance has found it there. It reports false if
// the instance must be sent the content itself.
func (u *uris) toNode(ctx context.Context, client *http.Client, spec cluster.InstanceSpec, address string,
	sent func(int64)) bool {
	at, shares := u.spotOf(spec)
	if !shares {
		return false
	}
	s, err := u.agents.send(at, spec.Function, false)
	if err != nil {
		return false
	}
	u.show(spec, at.node, s)
	there := follow(ctx, s, sent)
	if failed := s.failed(); s.ahead && (errors.Is(failed, errNotHere) || errors.Is(failed, content.ErrRefused)) {
		// It had begun ahead of this instance, for which the node downloads and evicts more.
		return u.toNode(ctx, client, spec, address, sent)
	}
	if !there {
		if ctx.Err() == nil {
			u.platform.base.Log.Warn().AnErr("error", s.failed()).Str("node", at.node).Str("instance", string(spec.ID)).
				Msg("the node does not take the model; the instance is sent it")
		}
		return false
	}
	late := time.After(nodePatience)
	for {
		state, err := content.Ask(ctx, client, address)
		if errors.Is(err, content.ErrNoReceiver) || err == nil && state.Needs == content.NeedsNothing {
			return true
		}
		select {
		case <-time.After(findPause):
		case <-late:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// follow waits for a sending to a node, and reports whether the content is there. It leaves one that does not go on.
func follow(ctx context.Context, s *sending, sent func(int64)) bool {
	tick := time.Tick(feedLook)
	moved, before := time.Now(), int64(-1)
	for {
		select {
		case <-s.done:
			return s.err == nil
		case <-ctx.Done():
			return false
		case now := <-tick:
			// A download before it has a limit of its own.
			if got := s.sent.Load(); got != before || s.of.Load() == 0 {
				moved, before = now, got
			}
			if now.Sub(moved) >= nodeStall {
				return false
			}
			sent(0)
		}
	}
}

// failed is why a sending has ended, nil while it goes on.
func (s *sending) failed() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// show shows a sending to an instance, or to its node.
func (u *uris) show(spec cluster.InstanceSpec, node string, s *sending) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sendings == nil {
		u.sendings = map[cluster.InstanceID]toInstance{}
	}
	u.sendings[spec.ID] = toInstance{function: spec.Function, to: node, sending: s}
}

func (u *uris) hide(id cluster.InstanceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sendings, id)
}

// watch shows how much of its model an instance or its node has that another replica sends.
func (u *uris) watch(ctx context.Context, spec cluster.InstanceSpec, state content.State) {
	to := ""
	if at, shares := u.spotOf(spec); shares && state.Of == 0 {
		if address := u.agents.at(at.node); address != "" {
			to = at.node
			state, _ = content.Ask(ctx, u.agents.client, address+copies.ModelPath(at.namespace, at.content))
		}
	}
	s := &sending{}
	s.sent.Store(state.From)
	s.of.Store(state.Of)
	u.show(spec, to, s)
}

// progress says how much of its model each starting instance of a function has, "" if none is sent one.
func (u *uris) progress(function string) string {
	const mega = 1e6
	var all []string
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, s := range u.sendings {
		of := s.of.Load()
		if s.function != function || of == 0 {
			continue
		}
		who := "pod " + string(id)
		if s.to != "" {
			who = fmt.Sprintf("node %s, for pod %s,", s.to, id)
		}
		all = append(all, fmt.Sprintf("%s has %.0f of %.0f MB", who, float64(min(s.sent.Load(), of))/mega, float64(of)/mega))
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "the model is being sent: " + strings.Join(all, "; ")
}
