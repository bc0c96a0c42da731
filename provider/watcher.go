package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/history"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// restPause is how many seconds a function at rest goes without another look at its instances. A clock that is set back by
// less than maxSetBack seconds catches up with the latest sample; who asks at once may be late by less, too.
const (
	restPause  = 5
	maxSetBack = history.Step
)

// watcher samples all functions once a second, and makes the events of GET /system/stream, once for all who watch.
type watcher struct {
	server *Server
	// planning has a place for the one question to the planner that is answered at a time: a plan may take half a second.
	planning chan struct{}

	mu        sync.Mutex
	functions map[string]*watchedFunction
	// at is the second of the latest sample, by a clock that is never set back: skew is how many seconds it is ahead of
	// the machine's.
	at, skew int64
	// nodes are the machines at the second nodesAt, and machinesText what is shown of them.
	nodes        []cluster.Node
	nodesAt      int64
	machinesText []byte
	// audiences are those who watch, by what they watch; viewers is their number. renderings and frames count the
	// texts of functions and the events that were made for them.
	audiences          map[audienceKey]*audience
	viewers            int
	renderings, frames uint64
	// decided is the ID of the latest decision that viewers have got.
	decided uint64
	// askedAt is the second in which somebody last asked for statistics.
	askedAt int64
	// restored are the histories of an earlier run, of functions that are not back yet. unsaved: requests came since
	// they were last saved, with the decisions up to savedDecision.
	restored      restoredHistories
	unsaved       bool
	savedDecision uint64
}

// watchedFunction is a function as the watcher knows it.
type watchedFunction struct {
	d       *deployed
	series  *history.Series
	reading metrics.Reading
	state   Watched
	// stateAt is the second of the latest look at its instances. text is what was last shown of it, stale says that it is
	// not what would be shown now.
	stateAt int64
	text    []byte
	stale   bool
	// roomy is an objective at which the nodes have room for its load, 0 if none was found at the second roomyAt.
	roomy   time.Duration
	roomyAt int64
	model   modelTensors
	// came: some requests came in the minute before the latest sample, whose second is at.
	came bool
	at   int64
	// changedAt is the second in which its deployment was last changed, and coldAt the last one in which no instance
	// was ready; 0 for never. memory is what sentences remember.
	changedAt, coldAt int64
	memory            history.Memory
	// promise counts how well the objective is kept, from when it was stated.
	promise history.Promise
}

func newWatcher(s *Server) *watcher {
	return &watcher{server: s, planning: make(chan struct{}, 1), functions: map[string]*watchedFunction{}, audiences: map[audienceKey]*audience{}}
}

// Watch samples the functions of a server for the history of GET /system/stats, and serves GET /system/stream, until ctx
// ends.
func Watch(ctx context.Context, s *Server) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var rooms sync.WaitGroup
	defer rooms.Wait()
	looking := make(chan struct{}, 1)
	for {
		select {
		case <-tick.C:
			s.watcher.tick(s.now())
			select {
			case looking <- struct{}{}:
				rooms.Go(func() {
					s.watcher.findRoom(ctx)
					<-looking
				})
			default: // The planner still answers. Seconds do not wait for it.
			}
		case <-ctx.Done():
			return
		}
	}
}

// tick takes the sample of a second, and tells those who watch.
func (w *watcher) tick(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sampleAll(now)
	w.publish(now)
}

// sampleAll samples all functions, unless that was done in this second. The lock is held.
func (w *watcher) sampleAll(now time.Time) {
	at := max(now.Unix(), 2*60*60) + w.skew       // A machine without a clock begins in 1970; the history needs an hour before.
	if behind := w.at - at; behind > maxSetBack { // Steps of the history stay whole.
		ahead := (behind/history.Step + 1) * history.Step
		w.skew, at = w.skew+ahead, at+ahead
	}
	if at <= w.at {
		return
	}
	w.at = at
	all := everyFunction(w.server)
	for _, d := range all {
		w.sample(at, d)
	}
	if len(all) == len(w.functions) {
		return
	}
	there := map[string]bool{}
	for _, d := range all {
		there[d.Name] = true
	}
	for name := range w.functions {
		if !there[name] {
			delete(w.functions, name)
		}
	}
}

// sample adds the reading of a second to a function's history. The lock is held.
func (w *watcher) sample(at int64, d *deployed) *watchedFunction {
	f := w.functions[d.Name]
	if f == nil || f.d.metrics != d.metrics { // It was deleted, and another has its name.
		f = &watchedFunction{d: d}
		f.reading.Read(d.metrics, d.Inference.IsInference)
		none := history.Sample{Latency: make([]uint64, len(f.reading.Latency)), Batches: make([]uint64, len(f.reading.Batches))}
		if f.series = w.restored.take(at, d, none); f.series == nil {
			f.series = history.New(at-1, latencyBounds, none)
		}
		w.functions[d.Name] = f
	}
	if f.at = at; f.d.Revision != d.Revision || f.d.Inference.SLO != d.Inference.SLO || f.d.Inference.Percentile != d.Inference.Percentile {
		f.changedAt, f.memory, f.roomy, f.roomyAt = at, history.Memory{}, 0, 0
	}
	restated := f.d.Inference.SLO != d.Inference.SLO || f.d.Inference.Percentile != d.Inference.Percentile
	quiet := f.reading.Quiet(d.metrics)
	if !quiet {
		f.reading.Read(d.metrics, d.Inference.IsInference)
	}
	if f.stateAt == 0 || f.d != d || !quiet || !f.settled() || at-f.stateAt >= restPause {
		f.d = d
		w.look(at, f)
	}
	sample := f.sampleOf()
	f.series.Add(at, sample)
	if restated {
		f.promise.Restart(at, sample.Counts)
	}
	f.promise.Add(at, sample.Counts)
	f.remember()
	came := f.series.LastMinute() != history.Counts{}
	f.stale, f.came, w.unsaved = f.stale || came || f.came, came, w.unsaved || came
	return f
}

// remember notes what the sentences of the next minute need of the latest second.
func (f *watchedFunction) remember() {
	if !slices.ContainsFunc(f.state.Instances, func(x WatchedInstance) bool { return x.shown() == instanceReady }) {
		f.coldAt = f.at
	}
	second := f.series.Since(max(f.at-1, f.changedAt))
	if bad := second.Answered() - second.InTime; bad > 0 {
		f.memory.Note(f.at, bad, f.situation(f.series.Minute()))
	}
}

// settled reports whether the instances stay as they are as long as no request comes.
func (f *watchedFunction) settled() bool {
	if f.state.Waiting > 0 || f.state.Progress != "" {
		return false
	}
	for i := range f.state.Instances {
		if s := f.state.Instances[i].shown(); s != instanceReady && s != instanceParked {
			return false
		}
	}
	return true
}

// look asks the controller for a function's state. The lock is held.
func (w *watcher) look(at int64, f *watchedFunction) {
	f.stateAt, f.stale = at, true
	c, known := w.server.controller.(WatchedController)
	if known {
		f.state, known = c.Watch(f.d.Name)
	}
	if !known {
		f.state = Watched{}
		f.state.Status, _ = w.server.controller.Status(f.d.Name)
	}
	serves := f.state.Problem == "" // What is added below is no problem of instances.
	f.state.Status = w.server.fetching.shown(f.d.Name, f.d.explained(w.server.store, f.state.Status))
	f.state.Problem = shortened(f.state.Problem)
	f.state.Slight = f.state.Slight || serves
	f.state.Hopeless = f.state.Hopeless || f.d.isBroken() || closedFor(f.d) != ""
	if b, is := f.d.dispatcher.(broken); is && errors.Is(b.err, errMissing) {
		f.state.Progress, f.state.Problem, f.state.Hopeless = f.state.Problem, "", false
	}
}

// sampleOf is the latest reading with the state of the instances.
func (f *watchedFunction) sampleOf() history.Sample {
	r := &f.reading
	s := history.Sample{
		Counts:  history.Counts{Arrived: r.Started, InTime: r.InTime, Late: r.Late, Refused: r.Refused, Failed: r.Failed, Wrong: r.Wrong},
		Latency: r.Latency, Batches: r.Batches, Carries: f.state.Carries, Waiting: f.state.Waiting, Cost: f.holds().CPU,
	}
	for i := range f.state.Instances {
		if f.state.Instances[i].shown() != instanceStopping {
			s.Instances++
		}
	}
	return s
}

// render returns what is shown of a function without details. It makes that anew only if something has changed. The
// lock is held.
func (w *watcher) render(f *watchedFunction) []byte {
	if f.stale || f.text == nil {
		w.renderings++
		f.text, _ = json.Marshal(f.stats(false)) // Strings and numbers cannot fail to marshal.
		f.stale = false
	}
	return f.text
}

// renderMore is render with all details if whole is set, and with a series if one is asked for.
func (w *watcher) renderMore(f *watchedFunction, whole bool, series span) []byte {
	w.renderings++
	s := f.stats(whole)
	if series.step > 0 {
		s.Series = seriesOf(f.series, series, w.skew)
	}
	text, _ := json.Marshal(s)
	return text
}

// selected lists the functions that a key selects, sorted by name. The lock is held.
func (w *watcher) selected(k audienceKey) (out []*watchedFunction) {
	if k.function != "" && k.namespace != everyNamespace {
		if f := w.functions[FullName(k.function, k.namespace)]; f != nil {
			out = append(out, f)
		}
		return out
	}
	for _, f := range w.functions {
		if k.selects(f.d.Deployment.Namespace, f.d.Deployment.Service) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *watchedFunction) int { return strings.Compare(a.d.Name, b.d.Name) })
	return out
}

// machines lists the nodes with the instances of all functions as JSON. The lock is held.
func (w *watcher) machines(ctx context.Context) []byte {
	if w.server.nodes == nil {
		return nil
	}
	if w.nodesAt == w.at {
		return w.machinesText
	}
	if nodes, err := w.server.nodes(ctx); err == nil { // Otherwise those before are shown.
		w.nodes, w.nodesAt = nodes, w.at
	}
	out, at := make([]statsNode, 0, len(w.nodes)), map[string]int{}
	for i := range w.nodes {
		at[w.nodes[i].Name] = i
		out = append(out, nodeOf(&w.nodes[i]))
	}
	for _, f := range w.selected(audienceKey{namespace: everyNamespace}) {
		for i := range f.state.Instances {
			x := &f.state.Instances[i]
			for node, part := range cluster.Over(x.Node, x.Nodes, x.Holds) {
				n, ok := at[node]
				if !ok {
					continue
				}
				out[n].Instances = append(out[n].Instances, nodeInstance{
					Function: f.d.Deployment.Service, Namespace: f.d.Deployment.Namespace, Batch: x.Config.Batch, CPU: part.CPU, GPU: part.GPU,
					Memory: part.Memory, State: x.shown(),
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b statsNode) int { return cmp.Compare(a.Name, b.Name) })
	w.machinesText, _ = json.Marshal(out)
	return w.machinesText
}

// appendStats appends the object of GET /system/stats. nodes is left out if it is nil.
func (w *watcher) appendStats(to []byte, now time.Time, step int64, functions [][]byte, gone []statsName, nodes []byte) []byte {
	version, _ := json.Marshal(w.server.version.Release)
	to = append(to, `{"now":`...)
	to = strconv.AppendFloat(to, seconds(now), 'f', 3, 64)
	to = append(to, `,"started":`...)
	to = strconv.AppendFloat(to, w.started(), 'f', 3, 64)
	to = append(append(to, `,"version":`...), version...)
	if w.server.several {
		to = append(to, `,"several":true`...)
	}
	to = strconv.AppendInt(append(to, `,"step_s":`...), step, 10)
	to = append(append(append(to, `,"functions":[`...), bytes.Join(functions, []byte{','})...), ']')
	if len(gone) > 0 {
		names, _ := json.Marshal(gone)
		to = append(append(to, `,"gone":`...), names...)
	}
	if nodes != nil {
		to = append(append(to, `,"nodes":`...), nodes...)
	}
	return append(to, '}')
}

// started is when the provider started, by which a page sees a restart. It is 0 with several replicas: the questions of
// one page may reach different ones.
func (w *watcher) started() float64 {
	if w.server.several {
		return 0
	}
	return seconds(w.server.started)
}

// seconds is a time in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
