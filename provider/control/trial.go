package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// This file measures models with a whole GPU in instances of their own function, where the provider's
// machine has no such GPU. A trial holds its GPU like any instance, gets no requests and ends when the
// times are known.

// Trials make instances measure their models.
type Trials interface {
	// Takes reports whether the times of the model in a file on GPUs are found by trials.
	Takes(file string) bool
	// Measure makes a ready instance measure its model with batches of up to maxBatch, without those that
	// are larger than one that takes longer than until. The profile has no names of model, engine and GPU.
	Measure(ctx context.Context, in cluster.Instance, maxBatch int, until time.Duration) (*profiler.Profile, error)
}

const (
	// trialMemory is a trial's memory in bytes and trialCPU its CPU in millicores, unless the deployment
	// bounds them: nobody knows yet what the model needs. One thread feeds a GPU.
	trialMemory = 8 << 30
	trialCPU    = 1000
	// trialTime bounds a trial, with the pull of its image. After so long those are repeated that failed on one
	// of several kinds of GPUs.
	trialTime = 20 * time.Minute
)

// trials measure models of all functions.
type trials struct {
	mu     *sync.Mutex
	keeper *keeper.Keeper[*instance]
	finder *latency.Finder
	wake   func()
	// by measures models, nil if nobody does. eligible is that of [Options].
	by       Trials
	eligible func(f *provider.Function) (nodes []string, why string)
	// waiting have no place yet.
	waiting []*trial
}

// trial waits for a look of the controller, which gives it a place.
type trial struct {
	fn    *function
	spec  cluster.InstanceSpec
	kind  string
	nodes []string // Those on which it may start, nil for all.
	// placed gets the instance, or why it has no place.
	placed chan placed
}

type placed struct {
	in     *instance
	memory int64
	err    error
}

// finderOf returns the finder of the times of a revision's model.
func (ts *trials) finderOf(fn *function, r revision, m Model) *latency.Finder {
	if ts.by == nil || !ts.by.Takes(m.File) {
		return ts.finder
	}
	return ts.finder.By(func(ctx context.Context, device string) (*profiler.Profile, error) {
		ctx, cancel := context.WithTimeout(ctx, trialTime)
		defer cancel()
		return ts.try(ctx, fn, r, m, device)
	})
}

// try measures a revision's model on a GPU of a kind.
func (ts *trials) try(ctx context.Context, fn *function, r revision, m Model, kind string) (*profiler.Profile, error) {
	prepared, err := ts.finder.Ready(ctx, r.Function, m.File)
	if err != nil {
		return nil, err
	}
	x := &trial{fn: fn, kind: kind, placed: make(chan placed, 1), spec: trialSpec(r, m, prepared)}
	if ts.eligible != nil {
		var why string
		if x.nodes, why = ts.eligible(r.Function); x.nodes != nil && len(x.nodes) == 0 {
			return nil, errors.New(why)
		}
	}
	at, err := ts.await(ctx, x)
	if err != nil {
		return nil, err
	}
	defer func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		ts.keeper.Retire(at.in, "its trial is over")
	}()
	if !at.in.AwaitReady(ctx) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return nil, fmt.Errorf("the trial on node %s was not ready: %s", at.in.Node, cmp.Or(at.in.Why(), fmt.Sprint(ctx.Err())))
	}
	ts.mu.Lock()
	in := at.in.Instance
	ts.mu.Unlock()
	p, err := ts.by.Measure(ctx, in, r.Inference.MaxBatch, r.Inference.SLO/2)
	if err != nil {
		return nil, fmt.Errorf("the trial on node %s: %w", in.Node, err)
	}
	for k := range p.Measurements {
		p.Measurements[k].GPU = cluster.WholeDevice
	}
	p.HoldDevice(at.memory)
	return p, nil
}

// trialSpec is the instance of a trial without a place.
func trialSpec(r revision, m Model, prepared string) cluster.InstanceSpec {
	limits := r.Inference.Limits
	config := cluster.Config{Batch: r.Inference.MaxBatch, Resources: cluster.Resources{
		CPU: max(trialCPU, r.Inference.Requests.CPU), GPU: cluster.WholeDevice, Memory: cmp.Or(limits.Memory, trialMemory),
	}}
	if limits.CPU > 0 {
		config.CPU = min(config.CPU, limits.CPU)
	}
	sizes := latency.SizesOf(r.Function)
	return cluster.InstanceSpec{
		ID: keeper.NewID(r.Name), Function: r.Name, Revision: r.Revision, Config: config, Role: cluster.Trial,
		Artefact: cluster.Artefact{
			Name: m.Name, Bundle: r.bundle, Model: prepared, Original: m.File, Images: m.Images,
			Shapes: sizes.Shapes, MaxShapes: r.Inference.MaxShapes,
		},
		Env: r.Deployment.EnvVars, Secrets: r.secrets,
	}
}

// take reports whether trials find the times of one of the function's models.
func (ts *trials) take(fn *function) bool {
	return ts.by != nil && slices.ContainsFunc(fn.artefacts, func(a *artefact) bool { return ts.by.Takes(a.file) })
}

// untried reports whether a trial of one of the function's models was not possible on some kind of GPU.
func (ts *trials) untried(fn *function) bool {
	return ts.by != nil && slices.ContainsFunc(fn.artefacts, func(a *artefact) bool { return a.profile.LeftOut != "" && ts.by.Takes(a.file) })
}

// await waits until a trial has a place.
func (ts *trials) await(ctx context.Context, x *trial) (placed, error) {
	ts.mu.Lock()
	// A provider that ended or a replica that led may have left one, which holds its GPU.
	ts.keeper.Claim(x.fn.Name, func(known cluster.Instance) (*instance, string) {
		if known.Role == cluster.Trial {
			return nil, leftTrial
		}
		return nil, keeper.Later
	})
	ts.waiting = append(ts.waiting, x)
	ts.mu.Unlock()
	ts.wake()
	select {
	case p := <-x.placed:
		return p, p.err
	case <-ctx.Done():
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.waiting = slices.DeleteFunc(ts.waiting, func(w *trial) bool { return w == x })
	select {
	case p := <-x.placed: // It was placed just before.
		if p.in != nil {
			ts.keeper.Retire(p.in, "its trial is not wanted any more")
		}
	default:
	}
	return placed{}, ctx.Err()
}

// leftTrial is why a trial that nobody here has begun is stopped.
const leftTrial = "nobody waits for its trial any more"

// place gives the trials that wait a place, or says why there is none. nodes are those of the look, of
// which a plan may have used more since. The lock is held.
func (ts *trials) place(leading bool, nodes []cluster.Node) {
	for _, x := range ts.waiting {
		if !leading {
			x.placed <- placed{err: latency.ErrFollowing}
			continue
		}
		ts.keeper.Free(nodes)
		i, d, why := x.choose(nodes)
		if d == nil {
			x.placed <- placed{err: errors.New(why)}
			continue
		}
		spec := x.spec
		spec.Node, spec.Devices = nodes[i].Name, []string{d.UUID}
		spec.Config.GPUMemory = wholeMemory(d)
		in := &instance{function: x.fn, config: spec.Config.String(), origin: spec.Revision}
		ts.keeper.Add(in, &x.fn.trials, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
		ts.keeper.Start(in, nil)
		x.placed <- placed{in: in, memory: spec.Config.GPUMemory}
	}
	ts.waiting = nil
}

// wholeMemory is a device's memory in whole MiB, as configs have it.
func wholeMemory(d *cluster.DeviceRoom) int64 { return d.Total.GPUMemory >> 20 << 20 }

// choose returns the node and the GPU for a trial: of those on which nothing is the one with the most memory,
// then the first. Without one, why says what is missing.
func (x *trial) choose(nodes []cluster.Node) (node int, best *cluster.DeviceRoom, why string) {
	ours := map[[2]string]bool{}
	for _, in := range x.fn.Instances {
		ours[[2]string{in.Node, in.Device()}] = true
	}
	mine := false
	tenant, all, busy := cluster.Tenant{Namespace: x.fn.Deployment.Namespace, Kinds: x.kind}, 0, 0
	for i := range nodes {
		n := &nodes[i]
		if x.nodes != nil && !slices.Contains(x.nodes, n.Name) {
			continue
		}
		own, free := n.Beside(x.spec.Config.Resources)
		for k := range n.Devices {
			d := &n.Devices[k]
			if d.Kind != x.kind || d.Total.GPU != cluster.WholeDevice {
				continue
			}
			all++
			mine = mine || ours[[2]string{n.Name, d.UUID}]
			switch {
			case d.Lost != "": // Mostly because somebody else has it.
				busy++
			case d.Instances > 0 || d.Free != d.Total || !d.Serves(tenant):
				busy++
			case own.CPU <= free.CPU && own.Memory <= free.Memory && (best == nil || wholeMemory(d) > wholeMemory(best)):
				node, best = i, d
			}
		}
	}
	switch config := x.spec.Config; {
	case best != nil:
	case all == 0:
		why = "no node on which the function may run has a whole GPU of this kind"
	case busy == all:
		why = fmt.Sprintf("all %d GPUs of this kind are in use or lost, and the model is measured with a whole one: it is tried again", all)
		if mine {
			why += ". The function's own instances have some of them; scale the function to 0 until it is measured"
		}
	default:
		why = fmt.Sprintf("no node with a free GPU of this kind has %dm of CPU and %d MiB of memory free to measure the model: set limits.cpu and limits.memory", config.CPU, config.Memory>>20)
	}
	return node, best, why
}
