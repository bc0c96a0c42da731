package baselines

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
	"github.com/faas-infer/faas-infer/scaling/systems"
	"github.com/faas-infer/faas-infer/variant"
)

// INFaaS are the parameters of INFaaS' systems.
type INFaaS struct {
	// Slack is the capacity over the load, 1.05 in INFaaS' §5. Lambda is λ, the weight of
	// loading in 1/s, which it does not publish.
	Slack, Lambda float64
}

// The polls of INFaaS' §5: of the Model-Autoscaler, and of the monitor, which also measures the
// load.
const (
	modelPoll   = time.Second
	monitorPoll = 2 * time.Second
)

// planner returns the counts by option that each application should come to.
type planner func(x *infaasScaler, apps []*application) [][]int

// infaasRow is one of INFaaS' systems.
type infaasRow struct {
	name, says string
	plan       planner
	// pinned: the developer chooses the variant. spread: instances go to the emptiest node, not to the
	// fullest that has room, as Clipper+ has a model on each GPU (§6.3).
	pinned, spread bool
}

// infaasRows are INFaaS and the baselines that its authors configured with it.
var infaasRows = []infaasRow{
	{INFaaSName, "INFaaS as published: its greedy heuristic chooses among variants (§4.2.2)", greedy, false, false},
	{INFaaSILP, "INFaaS with the integer program of its §4.2.1 instead", program, false, false},
	{Clipper, "Clipper+ of INFaaS §6: a number of instances of one variant, which the developer chooses", preloaded, true, true},
	{ClipperCPU, "Clipper+ with another choice, in INFaaS' Fig. 6 a variant on CPUs", preloaded, true, true},
	{SageMaker, "SM+ of INFaaS §6: one variant, which the developer chooses, scaled with the load", greedy, true, false},
	{SMCPU, "SM+ with another choice, in INFaaS' Fig. 6 a variant on CPUs", greedy, true, false},
}

// infaasSystems returns the systems of infaasRows.
func infaasSystems() (found []systems.System) {
	for _, row := range infaasRows {
		s := core(Batch).Change(row.name, row.says, func(r *systems.Rules) {
			r.Batching, r.Margin, r.Meter, r.Tuner = "", 1, monitorPoll, nil
			r.Policy = func() batching.Policy { return NewLeastLoaded() }
			r.Choose = every
			if row.pinned {
				r.Choose = pinned
			}
			r.Instances = func(f systems.Function) int { return pin(row.name, f).Instances }
		})
		found = append(found, WithINFaaS(s, INFaaS{Slack: 1.05}))
	}
	return found
}

// choosesVariants reports whether a system is one of INFaaS' systems.
func choosesVariants(s systems.System) bool {
	return slices.ContainsFunc(infaasRows, func(row infaasRow) bool { return row.name == s.Name })
}

// Colocates reports whether the system's instances share a device without shares of their own.
func Colocates(s systems.System) bool { return choosesVariants(s) }

// WithINFaaS returns the system with other parameters, if it is one of INFaaS'.
func WithINFaaS(s systems.System, p INFaaS) systems.System {
	for _, row := range infaasRows {
		if row.name == s.Name {
			s = s.Change(s.Name, s.Says, func(r *systems.Rules) {
				r.Scaler = func(scaling.Settings) systems.Scaler { return newINFaaS(p, row.plan, row.spread) }
			})
		}
	}
	return s
}

// pin is the developer's choice for a system, zero if there is none.
func pin(system string, f systems.Function) systems.Pin {
	if f.Variants == nil {
		return systems.Pin{}
	}
	return f.Variants.Pinned[system]
}

// every considers all variants.
func every(s systems.System, f systems.Function, _ float64, t systems.Times) []capacity.Candidate {
	return s.Predicted(f, t)
}

// pinned considers only the developer's choice, or the candidate that costs least per request.
func pinned(s systems.System, f systems.Function, _ float64, t systems.Times) []capacity.Candidate {
	all := s.Predicted(f, t)
	if pin := pin(s.Name, f); pin.Variant != "" {
		return slices.DeleteFunc(all, func(c capacity.Candidate) bool { return c.Artefact != pin.Variant })
	}
	all = slices.DeleteFunc(all, func(c capacity.Candidate) bool { return f.SLO > 0 && c.Exec > f.SLO })
	if len(all) == 0 {
		return s.Predicted(f, t)
	}
	per := func(c capacity.Candidate) float64 {
		return own.Price(c.Config.Resources).PerSecond * c.Exec.Seconds() / float64(c.Config.Batch*c.Config.Streams())
	}
	return []capacity.Candidate{slices.MinFunc(all, func(a, b capacity.Candidate) int { return cmp.Compare(per(a), per(b)) })}
}

// infaasScaler is INFaaS' controller and its workers' autoscalers. It plans once in a poll. In
// between it only starts a variant for a request that finds none (Algorithm 1).
type infaasScaler struct {
	INFaaS
	plan           planner
	spread         bool
	next, observed time.Time
	autoscalers    map[string]*infaas.Autoscaler
	watched        map[cluster.InstanceID]watched
	nodes          []cluster.Node
}

// watched is an instance with its state (Fig. 4), and its executions at the last observation.
type watched struct {
	variant.Watch
	busy, profiled time.Duration
}

func newINFaaS(p INFaaS, plan planner, spread bool) systems.Scaler {
	return &infaasScaler{INFaaS: p, plan: plan, spread: spread, autoscalers: map[string]*infaas.Autoscaler{}, watched: map[cluster.InstanceID]watched{}}
}

// application is a function as the planners see it.
type application struct {
	infaas.Application
	function *scaling.Function
	// instances are the live ones, by option; ready is the number of those that have loaded
	// and are not Interfered.
	instances [][]*scaling.Running
	ready     []int
}

// Scale implements [systems.Scaler].
func (x *infaasScaler) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	x.nodes = slices.Clone(nodes)
	due := !now.Before(x.next)
	if due {
		x.next = now.Add(modelPoll)
	}
	if due && !now.Before(x.observed) {
		x.observed = now.Add(monitorPoll)
		x.observe(functions)
	}
	var plan scaling.Plan
	var apps []*application
	for i := range functions {
		f := &functions[i]
		if app := x.application(f); !systems.WaitsForFirst(*f) {
			apps = append(apps, app)
		} else if at := x.inactive(app); at >= 0 {
			x.start(&plan, app, at, 1)
		}
	}
	if !due {
		return plan
	}
	for i, counts := range x.plan(x, apps) {
		x.follow(&plan, apps[i], counts)
	}
	return plan
}

// application sorts a function's instances by candidate. Interfered ones are no capacity: queries
// go elsewhere.
func (x *infaasScaler) application(f *scaling.Function) *application {
	app := &application{function: f, instances: make([][]*scaling.Running, len(f.Configs)), ready: make([]int, len(f.Configs))}
	app.Load = x.Slack * f.Rate
	for i, c := range f.Configs {
		o := infaas.Option{Latency: c.Exec, Cost: price(c.Config.Resources), Loading: c.Loading.Seconds(), Model: f.Name}
		if f.SLO <= 0 || c.Exec <= f.SLO {
			o.Rate = float64(c.Config.Batch*c.Config.Streams()) / c.Exec.Seconds()
		}
		for k := range f.Instances {
			in := &f.Instances[k]
			if in.Artefact != c.Artefact || in.Config != c.Config.Keeping(in.Config) || in.State != cluster.Starting && in.State != cluster.Ready {
				continue
			}
			app.instances[i] = append(app.instances[i], in)
			if x.watched[in.ID].State() != variant.Interfered {
				if o.Running++; in.State == cluster.Ready {
					app.ready[i]++
				}
			}
		}
		app.Options = append(app.Options, o)
	}
	return app
}

// price is what an instance costs: βc + g with the weight that functions of variants have.
func price(r cluster.Resources) float64 { return float64(r.CPU)/1000 + float64(r.GPU) }

// observe updates the states of all instances.
func (x *infaasScaler) observe(functions []scaling.Function) {
	seen := map[cluster.InstanceID]watched{}
	for i := range functions {
		f := &functions[i]
		up := 0.0
		for k := range f.Instances {
			up += peak(&f.Instances[k])
		}
		for k := range f.Instances {
			in := &f.Instances[k]
			w := x.watched[in.ID]
			load := 0.0
			if up > 0 {
				load = f.Rate * peak(in) / up
			}
			s := variant.Seen{Loaded: in.State == cluster.Ready, Load: load, Peak: peak(in), Exec: in.Busy - w.busy, Profile: in.Profiled - w.profiled}
			seen[in.ID] = watched{w.After(s), in.Busy, in.Profiled}
		}
	}
	x.watched = seen
}

// inactive is the option that Algorithm 1 loads where none is active: the least loading and
// inference. It is -1 if there is none with room.
func (x *infaasScaler) inactive(app *application) int {
	var rows []registration.Placed
	var of []int
	for i, c := range app.function.Configs {
		if o := &app.Options[i]; o.Rate > 0 && x.node(c.Config.Resources, nil) >= 0 {
			rows = append(rows, registration.Placed{Variant: variant.Variant{
				Model: app.function.Name, Name: c.Artefact, Latency: c.Exec, Load: c.Loading, RPS: o.Rate, Cost: o.Cost,
			}})
			of = append(of, i)
		}
	}
	row, ok := infaas.NewTable(rows).Get(variant.Query{})
	if !ok {
		return -1
	}
	return of[row]
}

// greedy plans each application alone.
func greedy(x *infaasScaler, apps []*application) [][]int {
	all := make([][]int, len(apps))
	for a, app := range apps {
		for i, c := range app.function.Configs {
			o := &app.Options[i]
			if o.Most = o.Running + x.room(c.Config.Resources); o.Most == 0 {
				o.Rate = 0
			}
		}
		if all[a] = infaas.Greedy(&app.Application, x.Lambda); all[a] == nil {
			all[a] = app.fill()
		}
	}
	return all
}

// fill returns the counts where no one variant has room for the load: as many as there is room
// for of the running variant, or of that with the highest rate.
func (app *application) fill() []int {
	counts, best := make([]int, len(app.Options)), -1
	for i := range app.Options {
		o := &app.Options[i]
		counts[i] = o.Running
		if o.Rate > 0 && (best < 0 || o.Rate*float64(o.Most) > app.Options[best].Rate*float64(app.Options[best].Most)) {
			best = i
		}
	}
	if best >= 0 {
		counts[best] = app.Options[best].Most
	}
	return counts
}

// program plans all applications by the integer program, within what nodes of each kind have
// together. Without a plan it is greedy.
func program(x *infaasScaler, apps []*application) [][]int {
	p := infaas.Program{Lambda: x.Lambda}
	var kinds []cluster.Resources
	for _, n := range x.nodes {
		at := slices.Index(kinds, n.Total)
		if at < 0 {
			at, kinds, p.Limits = len(kinds), append(kinds, n.Total), append(p.Limits, 0)
		}
		p.Limits[at] += price(n.Total)
	}
	for _, app := range apps {
		for i, c := range app.function.Configs {
			o := &app.Options[i]
			o.Needs = make([]float64, len(kinds))
			if at := slices.IndexFunc(kinds, c.Config.Resources.Fits); at >= 0 {
				o.Needs[at] = o.Cost
			} else {
				o.Rate = 0
			}
		}
		p.Applications = append(p.Applications, app.Application)
	}
	plan, err := p.Solve()
	if err != nil {
		return greedy(x, apps)
	}
	return plan.Counts
}

// preloaded plans the number of instances that the developer wants, or as many as the load needs,
// and never fewer.
func preloaded(_ *infaasScaler, apps []*application) [][]int {
	all := make([][]int, len(apps))
	for a, app := range apps {
		all[a] = make([]int, len(app.Options))
		for i := range app.Options {
			o := &app.Options[i]
			wanted := app.function.Min
			if wanted == 0 && i == 0 && o.Rate > 0 {
				wanted = int(app.Load/o.Rate) + 1
			}
			all[a][i] = o.Running + max(0, wanted-len(app.instances[i]))
		}
	}
	return all
}

// follow carries out what the application's autoscaler makes of a plan.
func (x *infaasScaler) follow(plan *scaling.Plan, app *application, want []int) {
	scaler := x.autoscalers[app.function.Name]
	if scaler == nil {
		scaler = &infaas.Autoscaler{}
		x.autoscalers[app.function.Name] = scaler
	}
	for i, n := range scaler.Poll(&app.Application, want, app.ready, modelPoll) {
		switch running := app.Options[i].Running; {
		case n > running:
			x.start(plan, app, i, n-running)
		case n < running:
			in := x.emptiest(app.instances[i])
			plan.Stop = append(plan.Stop, scaling.Stop{Function: app.function.Name, ID: in.ID, Reason: scaling.Reason{Why: scaling.Surplus}})
		}
	}
}

// start places instances of an option, as far as there is room.
func (x *infaasScaler) start(plan *scaling.Plan, app *application, option, n int) {
	c := app.function.Configs[option]
	calm := map[string]bool{}
	for _, in := range slices.Concat(app.instances...) {
		calm[in.Node] = calm[in.Node] || x.watched[in.ID].State() == variant.Interfered
	}
	for range n {
		at := x.node(c.Config.Resources, calm)
		if at < 0 {
			plan.Unplaced = append(plan.Unplaced, scaling.Unplaced{Function: app.function.Name, RPS: app.Load, Reason: placing.NoRoom})
			return
		}
		device := x.nodes[at].Start(c.Config.Resources, cluster.Tenant{})
		plan.Start = append(plan.Start, scaling.Start{
			Function: app.function.Name, Revision: app.function.Revision, Artefact: c.Artefact, Config: c.Config, Exec: c.Exec, Mean: c.Mean, Node: x.nodes[at].Name, Device: device,
		})
	}
}

// node returns the fullest node that has room and that is not avoided, or the emptiest; -1 if there
// is none.
func (x *infaasScaler) node(need cluster.Resources, avoid map[string]bool) int {
	best := -1
	for i, n := range x.nodes {
		if n.Fits(need, cluster.Tenant{}) && !avoid[n.Name] && (best < 0 || x.spread == (price(n.Free) > price(x.nodes[best].Free)) && price(n.Free) != price(x.nodes[best].Free)) {
			best = i
		}
	}
	return best
}

// room is the number of instances for which there is room.
func (x *infaasScaler) room(need cluster.Resources) int {
	return systems.RoomOn(x.nodes, cluster.Tenant{}, func() map[string][]systems.Held { return nil })(need)
}

// emptiest returns the instance to stop: an Interfered one, or that on the node with the most free
// room.
func (x *infaasScaler) emptiest(all []*scaling.Running) *scaling.Running {
	free := map[string]float64{}
	for _, n := range x.nodes {
		free[n.Name] = price(n.Free)
	}
	return slices.MinFunc(all, func(a, b *scaling.Running) int {
		calm := func(in *scaling.Running) int {
			if x.watched[in.ID].State() == variant.Interfered {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(calm(a), calm(b)), cmp.Compare(free[b.Node], free[a.Node]), cmp.Compare(a.ID, b.ID))
	})
}

// peak is the rate at which an instance is saturated.
func peak(in *scaling.Running) float64 {
	return float64(in.Config.Batch*in.Config.Streams()) / in.Exec.Seconds()
}
