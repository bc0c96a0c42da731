package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/provider"
)

const (
	// prefetchLook is the time between two looks for nodes that lack models.
	prefetchLook = 2 * time.Second
	// prefetchNodes bounds the nodes that get a model ahead.
	prefetchNodes = 4
	// prefetchAtOnce bounds the models that are sent ahead at a time. Those of starting instances do not count.
	prefetchAtOnce = 2
	// confirmAfter is the time after which a node is asked again whether it has a model. The agent then counts the
	// model as used, and keeps it. It must be less than the agent's --unused.
	confirmAfter = copies.ConfirmAfter
	// minPrefetchPause and maxPrefetchPause bound the time after which a sending ahead that failed is tried again.
	minPrefetchPause, maxPrefetchPause = 30 * time.Second, 10 * time.Minute
	// supersededFor is how long a content that its function does not have any more is remembered: the function may
	// go back to it, and instances of the revision before may start.
	supersededFor = 10 * time.Minute
	// prefetchRoom is the CPU in millicores that a node must have free to count as one that may get an instance soon.
	prefetchRoom = 500
)

// wantedModel is a content that a function has, and the nodes on which its instances may start, nil for all.
type wantedModel struct {
	content, function, namespace string
	nodes                        []string
}

// spotsOf decides which nodes should have which contents before an instance starts there. Among the eligible nodes it
// takes those that the scheduler takes first, which have the least room that suffices. Nodes that have a content already
// come before others, so that the choice stays when the nodes' load changes. rank is 0 for them, and larger for others.
func spotsOf(wanted []wantedModel, all []cluster.Node, rank func(spot) int) (spots []spot, functions map[spot]string) {
	functions = map[spot]string{}
	for _, w := range wanted {
		at := func(n cluster.Node) spot { return spot{n.Name, w.namespace, w.content} }
		nodes := slices.DeleteFunc(slices.Clone(all), func(n cluster.Node) bool {
			return w.nodes != nil && !slices.Contains(w.nodes, n.Name)
		})
		slices.SortFunc(nodes, func(a, b cluster.Node) int {
			return cmp.Or(cmp.Compare(lacksRoom(a), lacksRoom(b)), cmp.Compare(rank(at(a)), rank(at(b))),
				cmp.Compare(a.Free.CPU, b.Free.CPU), cmp.Compare(a.Name, b.Name))
		})
		for _, n := range nodes[:min(len(nodes), prefetchNodes)] {
			if _, twice := functions[at(n)]; !twice {
				functions[at(n)] = w.function
				spots = append(spots, at(n))
			}
		}
	}
	return spots, functions
}

// lacksRoom is 1 for a node that gets no instance soon, and 0 for others.
func lacksRoom(n cluster.Node) int {
	if n.Free.CPU < prefetchRoom {
		return 1
	}
	return 0
}

// ahead is what is known of contents on nodes.
type ahead struct {
	// confirmed is when a node's agent said last that it has a content.
	confirmed map[spot]time.Time
	// failures are how often in a row a sending has failed, and until when it is not tried again.
	failures map[spot]failure
	flying   map[spot]bool
}

type failure struct {
	count int
	until time.Time
	why   error
}

// rank says how well a content is kept at a spot: 0 if it is there or on its way, 1 if nothing is known, and 2 if the
// node did not take it.
func (a *ahead) rank(at spot, now time.Time) int {
	confirmed, is := a.confirmed[at]
	switch {
	case a.flying[at], is && now.Sub(confirmed) < 2*confirmAfter:
		return 0
	case a.failures[at].count == 0:
		return 1
	}
	return 2
}

// next returns the spots to which contents are sent now. It forgets what was not wanted lately: a spot may be wanted again
// soon.
func (a *ahead) next(wanted []spot, now time.Time) (out []spot) {
	if a.confirmed == nil {
		a.confirmed, a.failures, a.flying = map[spot]time.Time{}, map[spot]failure{}, map[spot]bool{}
	}
	in := map[spot]bool{}
	for _, at := range wanted {
		in[at] = true
		confirmed, is := a.confirmed[at]
		switch {
		case a.flying[at], is && now.Sub(confirmed) < confirmAfter, now.Before(a.failures[at].until):
		case len(a.flying) < prefetchAtOnce:
			a.flying[at] = true
			out = append(out, at)
		}
	}
	maps.DeleteFunc(a.confirmed, func(at spot, when time.Time) bool { return !in[at] && now.Sub(when) >= 2*confirmAfter })
	maps.DeleteFunc(a.failures, func(at spot, f failure) bool { return !in[at] && now.Sub(f.until) >= confirmAfter })
	return out
}

// waits says for each function which of the chosen nodes do not take its model ahead of instances, and why.
func (a *ahead) waits(wanted []wantedModel, spots []spot) map[string]string {
	said := map[string][]string{}
	for _, at := range spots {
		f := a.failures[at]
		if f.why == nil || errors.Is(f.why, errNotHere) {
			continue // It is there, or sent once an instance needs it.
		}
		for _, w := range wanted {
			if w.namespace == at.namespace && w.content == at.content && (w.nodes == nil || slices.Contains(w.nodes, at.node)) {
				said[w.function] = append(said[w.function], fmt.Sprintf("node %s until %s: %v", at.node, f.until.UTC().Format(time.TimeOnly), f.why))
			}
		}
	}
	all := map[string]string{}
	for function, nodes := range said {
		slices.Sort(nodes)
		all[function] = "the model is sent to instances only, not ahead of them, on " + strings.Join(nodes, "; on ")
	}
	return all
}

// ended takes in how a sending has ended. It reports whether that is worth a word: the first failure in a row is.
func (a *ahead) ended(at spot, err error, now time.Time) (first bool) {
	delete(a.flying, at)
	if err == nil {
		a.confirmed[at] = now
		delete(a.failures, at)
		return true
	}
	f := a.failures[at]
	pause := min(maxPrefetchPause, minPrefetchPause<<min(f.count, 10))
	a.failures[at] = failure{f.count + 1, now.Add(pause), err}
	return f.count == 0
}

// prefetch brings the models of functions to the nodes that may get an instance next, while this replica leads,
// until ctx ends. It also forgets contents that no function has any more.
func (u *uris) prefetch(ctx context.Context) {
	type result struct {
		at  spot
		err error
	}
	var known ahead
	results := make(chan result)
	tick := time.Tick(prefetchLook)
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-results:
			if known.ended(r.at, r.err, time.Now()) && !errors.Is(r.err, errNotHere) {
				u.note(r.at, r.err)
			}
		case <-tick:
		}
		instances, err := u.platform.backend.Instances(ctx)
		if err != nil {
			continue
		}
		u.forget(instances, time.Now())
		if u.agents == nil || !u.platform.election.Leading() {
			u.agents.setWaits(nil)
			continue
		}
		nodes, err := u.platform.backend.Nodes(ctx)
		if err != nil {
			continue
		}
		nodes = slices.DeleteFunc(nodes, func(n cluster.Node) bool { return u.agents.at(n.Name) == "" })
		now := time.Now()
		wanted := u.wanted(now)
		spots, functions := spotsOf(wanted, nodes, func(at spot) int { return known.rank(at, now) })
		u.agents.setWaits(known.waits(wanted, spots))
		for _, at := range known.next(spots, now) {
			u.platform.watching.Go(func() {
				s, err := u.agents.send(at, functions[at], true)
				if err == nil {
					<-s.done // Its life is the provider's.
					err = s.err
				}
				select {
				case results <- result{at, err}:
				case <-ctx.Done():
				}
			})
		}
	}
}

// note logs what became of a sending ahead. A failure keeps nothing from running.
func (u *uris) note(at spot, err error) {
	log := u.platform.base.Log
	if err != nil {
		log.Warn().Err(err).Str("node", at.node).Str("model", at.content).Msg("the model is not sent to the node ahead")
		return
	}
	log.Debug().Str("node", at.node).Str("model", at.content).Msg("the node has the model")
}

// wanted lists the contents that functions have now, in namespaces whose pods share copies.
func (u *uris) wanted(now time.Time) (all []wantedModel) {
	type of struct {
		content string
		revision
	}
	var found []of
	u.mu.Lock()
	for content, p := range u.contents {
		for name, r := range p.of {
			fresh := !strings.HasSuffix(r.Deployment.Service, provider.CandidateSuffix) || now.Sub(r.at) < supersededFor
			if u.latest[name] == content && fresh {
				found = append(found, of{content, r})
			}
		}
	}
	u.mu.Unlock()
	for _, f := range found {
		namespace := f.Deployment.Namespace
		if !u.platform.flags.copied(namespace) || f.Inference.Partition != "" {
			continue
		}
		nodes, _ := u.platform.eligible(f.Function)
		all = append(all, wantedModel{f.content, f.Name, namespace, nodes})
	}
	slices.SortFunc(all, func(a, b wantedModel) int {
		return cmp.Or(cmp.Compare(a.function, b.function), cmp.Compare(a.content, b.content))
	})
	return all
}

// forget forgets the contents that no function has: those of functions that are gone, and those that their function has
// had before, if no instance has them.
func (u *uris) forget(instances []cluster.Instance, now time.Time) {
	used := map[string]bool{}
	for _, in := range instances {
		used[contentOf(in.InstanceSpec)] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for content, p := range u.contents {
		for name, r := range p.of {
			late := now.Sub(r.at) >= supersededFor
			if late && !used[content] && (u.latest[name] != content || !u.there(r)) {
				delete(p.of, name)
				if u.latest[name] == content {
					delete(u.latest, name)
				}
			}
		}
		if len(p.of) == 0 {
			delete(u.contents, content)
		}
	}
}

// there reports whether the function of a revision, or of a candidate, still exists.
func (u *uris) there(r revision) bool {
	service := strings.TrimSuffix(r.Deployment.Service, provider.CandidateSuffix)
	return u.known(provider.FullName(service, r.Deployment.Namespace))
}

// spotOf returns where the content of an instance lies on its node, and false if the instance does not look there.
func (u *uris) spotOf(spec cluster.InstanceSpec) (at spot, shares bool) {
	_, namespace, err := podspec.SplitName(spec.Function)
	if err != nil || u.agents == nil || contentOf(spec) == "" || u.platform.flags.copiesClaim(spec) == "" {
		return at, false
	}
	return spot{spec.Node, namespace, contentOf(spec)}, true
}

// foresee sends the content of an instance to its node while its pod is being made.
func (u *uris) foresee(spec cluster.InstanceSpec) {
	if at, shares := u.spotOf(spec); shares {
		_, err := u.agents.send(at, spec.Function, false)
		if err != nil && !errors.Is(err, errNoAgent) {
			u.platform.base.Log.Debug().Err(err).Str("node", at.node).Msg("the model is not sent to the node")
		}
	}
}
