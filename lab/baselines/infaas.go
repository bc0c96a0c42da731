package systems

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/infaas"
	"github.com/faas-infer/faas-infer/scaling/placing"
	"github.com/faas-infer/faas-infer/variant"
)

// INFaaS are the parameters of INFaaS' systems.
type INFaaS struct {
	// spread: instances go to the emptiest node, not to the fullest that has room.
	spread bool
	// Slack is the capacity over the load, 1.05 in INFaaS' §5. Lambda is λ, the weight of
	// loading in 1/s, which it does not publish.
	Slack, Lambda float64
	plan          planner
}

// The polls of INFaaS' §5: of the Model-Autoscaler, and of the monitor, which also measures the
// load.
const (
	modelPoll   = time.Second
	monitorPoll = 2 * time.Second
)

// planner returns the counts by option that each application should come to.
type planner func(x *infaasScaler, apps []*application) [][]int

// infaasRow returns INFaaS or one of the baselines that its authors configured with it.
func infaasRow(name, says string, plan planner, choose chooser) System {
	return System{
		Name: name, Says: says, settings: baseline(), cold: "fixed", queue: capacity.LateBound,
		margin: times(1), choose: choose, colocates: true, infaas: INFaaS{Slack: 1.05, plan: plan},
	}
}

// spreading returns the system with instances on the emptiest nodes: Clipper+ has a model on each
// GPU (§6.3).
func (s System) spreading() System {
	s.infaas.spread = true
	return s
}

// Colocates reports whether the system's instances share a device without shares of their own.
func (s System) Colocates() bool { return s.colocates }

// WithINFaaS returns the system with other parameters, if it is one of INFaaS'.
func (s System) WithINFaaS(p INFaaS) System {
	s.infaas.Slack, s.infaas.Lambda = p.Slack, p.Lambda
	return s
}

// pin is the developer's choice for the system, zero if there is none.
func (s System) pin(f Function) Pin {
	if f.Variants == nil {
		return Pin{}
	}
	return f.Variants.Pinned[s.Name]
}

// pinned considers only the developer's choice, or the candidate that costs least per request.
func pinned(s System, f Function, _ float64, t Times) []capacity.Candidate {
	all := s.predicted(f, t)
	if pin := s.pin(f); pin.Variant != "" {
		return slices.DeleteFunc(all, func(c capacity.Candidate) bool { return c.Artefact != pin.Variant })
	}
	all = slices.DeleteFunc(all, func(c capacity.Candidate) bool { return f.SLO > 0 && c.Exec > f.SLO })
	if len(all) == 0 {
		return s.predicted(f, t)
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

func newINFaaS(p INFaaS) Scaler {
	return &infaasScaler{INFaaS: p, autoscalers: map[string]*infaas.Autoscaler{}, watched: map[cluster.InstanceID]watched{}}
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

// Scale implements [Scaler].
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
		if app := x.application(f); !waitsForFirst(*f) {
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
	var rows []variant.Placed
	var of []int
	for i, c := range app.function.Configs {
		if o := &app.Options[i]; o.Rate > 0 && x.node(c.Config.Resources, nil) >= 0 {
			rows = append(rows, variant.Placed{Variant: variant.Variant{
				Model: app.function.Name, Name: c.Artefact, Latency: c.Exec, Load: c.Loading, RPS: o.Rate, Cost: o.Cost,
			}})
			of = append(of, i)
		}
	}
	row, ok := variant.NewTable(rows).Get(variant.Query{})
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
			plan.Stop = append(plan.Stop, scaling.Stop{Function: app.function.Name, ID: in.ID, Why: scaling.Surplus})
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
	sum := 0
	for _, n := range x.nodes {
		sum += fits(&n, need, cluster.Tenant{})
	}
	return sum
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
