package infaas

import "slices"

// Greedy is the heuristic of §4.2.2, with which INFaaS replaces the program, for one
// application. It compares a few actions by Cost(δ) and returns the counts after the
// cheapest:
//
//   - nothing runs that serves the application: instances of any one variant,
//   - the capacity is too small: more instances of a running variant, or an upgrade, all
//     load to a variant of a running one's model that has a higher rate,
//   - otherwise: what runs, without the instances of one variant that the load does not need,
//     or a downgrade, all load to a variant of the same model with cheaper instances.
//
// Running instances that fail the application's objective are stopped, and all without load. A load that changes is
// followed action by action; [Autoscaler] stops one instance at a time, and waits as many polls
// as loading takes. It returns nil if no variant serves the application, or none has room.
func Greedy(app *Application, lambda float64) []int {
	if app.Load <= 0 {
		return make([]int, len(app.Options))
	}
	var capacity float64
	running := make([]int, len(app.Options))
	for i := range app.Options {
		if o := &app.Options[i]; o.serves(app.Load) {
			running[i] = o.Running
			capacity += o.Rate * float64(o.Running)
		}
	}
	var best []int
	least := 0.0
	offer := func(counts []int) {
		if app.full(counts) {
			return
		}
		cost := 0.0
		for i, n := range counts {
			cost += app.Options[i].Price(n, lambda)
		}
		if best == nil || cost < least {
			best, least = counts, cost
		}
	}
	missing := app.Load - capacity
	if capacity > 0 && missing <= tolerance*app.Load {
		offer(running)
	}
	for i := range app.Options {
		o := &app.Options[i]
		if !o.serves(app.Load) {
			continue
		}
		if running[i] > 0 {
			counts := slices.Clone(running)
			counts[i] = 0
			if rest := app.Load - (capacity - o.Rate*float64(running[i])); rest > tolerance*app.Load {
				counts[i] = instances(rest, o.Rate)
			}
			offer(counts)
		}
		if app.switches(i, missing > 0) {
			counts := make([]int, len(app.Options))
			counts[i] = instances(app.Load, o.Rate)
			offer(counts)
		}
	}
	return best
}

// full reports whether there is no room for so many instances.
func (app *Application) full(counts []int) bool {
	for i, n := range counts {
		if o := &app.Options[i]; o.Most > 0 && n > max(o.Most, o.Running) {
			return true
		}
	}
	return false
}

// switches reports whether all load may go to the i-th option: it is an upgrade or a downgrade
// of an option that runs, or nothing runs.
func (app *Application) switches(i int, up bool) bool {
	to, runs := &app.Options[i], false
	for k := range app.Options {
		from := &app.Options[k]
		if !from.serves(app.Load) || from.Running == 0 {
			continue
		}
		runs = true
		if k != i && from.Model == to.Model && (up && to.Rate > from.Rate || !up && to.Cost < from.Cost) {
			return true
		}
	}
	return !runs
}
