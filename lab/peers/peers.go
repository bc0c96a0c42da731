// Package peers compares the provider with other model servers: with the same ONNX files,
// objectives, payloads and core. Each peer is set up as its documents describe and tuned
// over a small grid. One search finds the highest rate within the objective for all. Begin
// with Run; grid.go has the settings of each peer.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Bench are the options of the bench.
type Bench struct {
	// Models, Peers and Payloads select what to measure, all if empty.
	Models, Peers, Payloads []string
	// Trial is the minimum time for which one rate is offered, if that is enough for
	// minRequests. Budget is the time after which a search with some trials ends.
	Trial, Budget time.Duration
	// Core is the CPU core of the servers. This process has another (see
	// [rig.PinCores]).
	Core int
	// Progress is called with the number of finished searches.
	Progress func(done, total int)
}

// samples is the number of different requests that are sent in turn.
const samples = 8

// subjects are the models with their objectives.
var subjects = []struct {
	model string
	slo   time.Duration
}{
	{"mnist", 50 * time.Millisecond}, {"dssm", 50 * time.Millisecond}, {"lstm-2365", 50 * time.Millisecond},
	{"resnet-50", 400 * time.Millisecond}, {"bert", time.Second}, {"minilm", 200 * time.Millisecond},
}

// Models returns the names of the models.
func Models() (names []string) {
	for _, s := range subjects {
		names = append(names, s.model)
	}
	return names
}

// run is the state of Run.
type run struct {
	Bench
	o        rig.Options
	r        *report.Report
	dir      string
	peers    []Peer
	python   map[string]environment.Environment
	missing  map[string]error
	payloads []Payload
	done     int
	total    int
	ratios   []float64
	// gpu is that of [OnGPU], arguments are those of the provider.
	gpu       string
	arguments []string
}

// Run measures the provider and the peers, model by model, and adds the worst and the
// median ratio.
func Run(ctx context.Context, o rig.Options, b Bench) (*report.Report, error) {
	if b.Trial <= 0 || b.Budget <= 0 {
		return nil, errors.New("--trial and --budget must be positive")
	}
	u := &run{Bench: b, o: o, r: report.New("bench peers", time.Now()), python: map[string]environment.Environment{}, missing: map[string]error{}}
	var err error
	if u.peers, err = choose(b.Peers); err != nil {
		return nil, err
	}
	for _, name := range b.Models {
		if !slices.Contains(Models(), name) {
			return nil, fmt.Errorf("--models: there is no model %q; the models are %s", name, strings.Join(Models(), ", "))
		}
	}
	for _, p := range Payloads() {
		if len(b.Payloads) == 0 || slices.Contains(b.Payloads, string(p)) {
			u.payloads = append(u.payloads, p)
		}
	}
	if len(u.payloads) == 0 || len(u.payloads) < len(b.Payloads) {
		return nil, fmt.Errorf("--only %s: unknown payload; the payloads are %s, %s, %s", strings.Join(b.Payloads, ","), Binary, JSON, GRPC)
	}
	// The directory's name must be short: Ray has Unix sockets in it.
	if u.dir, err = os.MkdirTemp("", "fip-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(u.dir)
	if err := u.environments(ctx); err != nil {
		return nil, err
	}
	chosen := 0
	for _, s := range subjects {
		if len(b.Models) == 0 || slices.Contains(b.Models, s.model) {
			chosen++
		}
	}
	u.total = chosen * len(u.payloads) * (1 + len(u.peers))
	for _, s := range subjects {
		if len(b.Models) > 0 && !slices.Contains(b.Models, s.model) {
			continue
		}
		if err := u.model(ctx, s.model, s.slo); err != nil {
			return nil, fmt.Errorf("%s: %w", s.model, err)
		}
	}
	if len(u.ratios) > 0 {
		u.r.Add("ratio.worst", slices.Min(u.ratios), "ratio", "aim >= 1")
		u.r.Add("ratio.median", rig.Median(u.ratios), "ratio", "aim >= 2")
	}
	return u.r, nil
}

// environments makes missing Python environments. A peer that cannot be installed is left
// out, and the report says so.
func (u *run) environments(ctx context.Context) error {
	for _, p := range u.peers {
		u.r.Add("grid."+p.Name, float64(len(p.grid(subjects[0].slo))), "settings", p.describeGrid(subjects[0].slo))
		u.r.Add("knobs."+p.Name, float64(p.knobs(subjects[0].slo)), "settings", "to find for an objective; faas-infer has none beside it")
		u.r.Add("limits."+p.Name, 1, "", p.without)
		u.missing[p.Name] = u.environment(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// step reports that a search is done.
func (u *run) step() {
	u.done++
	if u.Progress != nil {
		u.Progress(u.done, u.total)
	}
}

// model measures one model with the provider and all peers.
func (u *run) model(ctx context.Context, name string, slo time.Duration) error {
	m, err := rig.NewSubject(name)
	if err != nil {
		return err
	}
	defer m.Close()
	s := &subject{Trials: Trials{SLO: slo, Trial: u.Trial, Budget: u.Budget, Warm: warm, Log: u.o.Log}}
	if err := s.sample(m); err != nil {
		return err
	}
	engine, err := u.timeEngine(ctx, m.File, slo)
	if err != nil {
		return err
	}
	limit, err := engine.limit(s)
	if err != nil {
		return err
	}
	loop := engine.loop(slo)
	u.r.Add("engine."+m.Name, loop, "requests/s", "the engine alone, one batch after the other")
	u.r.Add("limit."+m.Name, limit, "requests/s", "the engine without a server, with the arrivals of the trials, 99 % within the SLO")
	rates, err := u.ours(ctx, m, s)
	if err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	for _, payload := range u.payloads {
		name := fmt.Sprintf("%s.%s", m.Name, payload)
		u.r.Add("engine_share."+name, rates[payload]/loop, "ratio", "")
		u.r.Add("limit_share."+name, rates[payload]/limit, "ratio", "")
	}
	for _, p := range u.peers {
		if err := u.peer(ctx, m, s, p, rates); err != nil {
			return err
		}
	}
	return nil
}

// deploy starts the provider with a function as users deploy it.
func (u *run) deploy(ctx context.Context, m *rig.Subject, s *subject) (*rig.Deployed, error) {
	dir, err := os.MkdirTemp(u.dir, "ours-")
	if err != nil {
		return nil, err
	}
	var d *rig.Deployed
	if err := onCore(u.Core, func() (err error) {
		d, err = u.o.Provider(ctx, dir, u.arguments...)
		return err
	}); err != nil {
		return nil, err
	}
	image := m.Name + ":bench"
	if err := errors.Join(d.Bundle(m, image), d.DeployFunction(ctx, rig.Function(rig.FunctionName, image, u.annotations(s.SLO)))); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

// toOurs returns the provider's function as a target, after it has answered all samples and is idle.
func (u *run) toOurs(ctx context.Context, s *subject, d *rig.Deployed, payload Payload) (t load.Target, release func(), err error) {
	way := ours[payload]
	to := address{way: way, url: d.URL + "/function/" + rig.FunctionName}
	if way.GRPC {
		to = address{way: way, url: d.URL + way.Path, setting: rig.FunctionName}
	}
	if t, release, err = s.target(to); err != nil {
		return t, nil, err
	}
	if s.due, err = s.answers(ctx, way, t, starting); err == nil && u.gpu == "" { // Peers are idle when their load begins, too.
		err = d.AwaitProfile(ctx, u.o.Log, starting)
	}
	if err != nil {
		release()
	}
	return t, release, err
}

// ours measures the provider.
func (u *run) ours(ctx context.Context, m *rig.Subject, s *subject) (map[Payload]float64, error) {
	d, err := u.deploy(ctx, m, s)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	rates := map[Payload]float64{}
	for _, payload := range u.payloads {
		fmt.Fprintf(u.o.Log, "%s, %s: ours\n", m.Name, payload)
		t, release, err := u.toOurs(ctx, s, d, payload)
		if err != nil {
			return nil, err
		}
		defer release()
		s.offered, s.refusedEarly = 0, 0
		rate, err := s.Rate(ctx, t, 0)
		if err != nil {
			return nil, err
		}
		rates[payload] = rate
		early := 100 * float64(s.refusedEarly) / float64(max(1, s.offered))
		u.r.Add(fmt.Sprintf("refused_early_pct.%s.%s", m.Name, payload), early, "%",
			fmt.Sprintf("of %d requests at all rates, aim <= 0.1", s.offered))
		u.r.Add(fmt.Sprintf("rps.%s.%s.ours", m.Name, payload), rate, "requests/s", fmt.Sprintf("SLO %v, %s", s.SLO, ours[payload].Name))
		u.step()
	}
	return rates, nil
}

// peer measures a peer with all payloads. Its failures go into the report.
func (u *run) peer(ctx context.Context, m *rig.Subject, s *subject, p Peer, ours map[Payload]float64) error {
	best := map[Payload]found{}
	failed := u.missing[p.Name]
	for _, group := range p.groups(s.SLO) {
		if u.missing[p.Name] == nil {
			failed = errors.Join(failed, u.group(ctx, m, s, p, group, best))
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed != nil {
		fmt.Fprintf(u.o.Log, "%s: %s: %v\n", m.Name, p.Name, failed)
	}
	for _, payload := range u.payloads {
		u.step()
		if len(p.ways[payload]) == 0 {
			continue
		}
		b, pair, err := best[payload], [2]float64{}, error(nil)
		if b.rate > 0 && ours[payload] > 0 {
			if pair, err = u.inTurn(ctx, m, s, p, payload, b, ours[payload]); ctx.Err() != nil {
				return ctx.Err()
			}
		}
		u.add(fmt.Sprintf("%s.%s.", m.Name, payload), p, b, pair, errors.Join(failed, err))
	}
	return nil
}

// add reports a peer's best point, or why there is none, and the pair of rates in turn, ours first.
func (u *run) add(name string, p Peer, b found, pair [2]float64, failed error) {
	why := "no rate is answered within the objective, so there is no ratio"
	if failed != nil {
		why = failed.Error()
	}
	if b.rate == 0 {
		u.r.Add("missing."+name+p.Name, 1, "", why)
		return
	}
	note := p.describe(b.point)
	if failed != nil {
		note += "; it failed: " + why
	}
	u.r.Add("rps."+name+p.Name, b.rate, "requests/s", note)
	if pair[0] == 0 || pair[1] == 0 {
		return
	}
	ratio := pair[0] / pair[1]
	u.ratios = append(u.ratios, ratio)
	u.r.Add("ratio."+name+p.Name, ratio, "ratio", fmt.Sprintf("in turn: ours %.4g, %s %.4g requests/s", pair[0], p.Name, pair[1]))
}

// found is the best point of a grid so far, and its rate in requests/s.
type found struct {
	point
	rate float64
}

// group measures the settings that one server has. If the server fails with a setting, a
// new one is started for the next setting. The failures are the returned error.
func (u *run) group(ctx context.Context, m *rig.Subject, s *subject, p Peer, settings []Setting, best map[Payload]found) (failed error) {
	var server *running
	stop := func() {
		if server != nil {
			server.Stop()
		}
		server = nil
	}
	defer stop()
	for _, payload := range u.payloads {
		ways := p.ways[payload]
		for _, x := range settings {
			if b := best[payload]; b.rate > 0 {
				ways = []Way{b.way}
			}
			for _, way := range ways {
				if server == nil {
					var err error
					if server, err = u.start(ctx, m, s, p, settings); err != nil {
						return errors.Join(failed, err)
					}
				}
				point := point{x, way}
				fmt.Fprintf(u.o.Log, "%s, %s: %s: %s\n", m.Name, payload, p.Name, p.describe(point))
				b := best[payload]
				rate, err := u.point(ctx, s, server, point, b.rate)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					err = fmt.Errorf("%s: %w: %s", p.describe(point), err, server.Said())
					fmt.Fprintln(u.o.Log, err)
					failed = errors.Join(failed, err)
					stop()
				}
				if rate > b.rate || b.way.Name == "" {
					best[payload] = found{point, rate}
				}
			}
		}
	}
	return failed
}

// start starts a server with settings and waits until it is idle.
func (u *run) start(ctx context.Context, m *rig.Subject, s *subject, p Peer, settings []Setting) (*running, error) {
	dir, err := os.MkdirTemp(u.dir, "")
	if err != nil {
		return nil, err
	}
	site := &site{dir: dir, model: m.File, output: m.Model.Outputs()[0].Name, python: u.python[p.Name], inputs: s.inputs[0], settings: settings, gpu: u.gpu}
	for _, port := range []*int{&site.http, &site.grpc} {
		if *port, err = engine.FreePort(); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(u.o.Log, "%s: starting %s\n", m.Name, p.Name)
	server, err := site.launch(ctx, p, u.Core)
	if err != nil {
		return nil, err
	}
	server.AwaitIdle(ctx)
	return server, nil
}

// point measures one setting by one way.
func (u *run) point(ctx context.Context, s *subject, server *running, x point, beat float64) (float64, error) {
	t, release, err := s.toPeer(ctx, server, x)
	if err != nil {
		return 0, err
	}
	defer release()
	return s.Rate(ctx, t, beat)
}

// toPeer returns one setting by one way as a target, after its answers have been compared with the provider's.
func (s *subject) toPeer(ctx context.Context, server *running, x point) (t load.Target, release func(), err error) {
	base := server.URL
	if x.way.GRPC {
		base = server.grpc
	}
	path := x.way.Path
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, x.Name)
	}
	if t, release, err = s.target(address{way: x.way, url: base + path, setting: x.Name}); err != nil {
		return t, nil, err
	}
	if _, err = s.answers(ctx, x.way, t, starting/6); err != nil {
		release()
	}
	return t, release, err
}
