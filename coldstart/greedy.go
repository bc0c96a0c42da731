package coldstart

// GreedyDual says which idle function should give way when memory is short: the
// one with the least worth. It is the greedy-dual order of caches (GDSF) as Fuerst
// and Sharma take it over for functions (FaasCache, ASPLOS 2021, §4):
//
//	worth = clock + frequency · cost / size
//
// where the clock is the worth of the last function that gave way. So what is
// called often, starts slowly or is small stays, and what was not called for
// long goes in the end, however much it was worth once.
type GreedyDual struct {
	clock     float64
	functions map[string]loadedFunction
}

type loadedFunction struct {
	requests, worth float64
}

// NewGreedyDual knows no function yet.
func NewGreedyDual() *GreedyDual { return &GreedyDual{functions: map[string]loadedFunction{}} }

// Used tells of requests to a function that is loaded: how many, what a cold start
// of it costs, in seconds, and what it holds, in bytes; these are positive.
func (g *GreedyDual) Used(function string, requests, cost, size float64) {
	f := g.functions[function]
	f.requests += requests
	f.worth = g.clock + f.requests*cost/size
	g.functions[function] = f
}

// Worth compares functions; one that is not loaded is worth 0.
func (g *GreedyDual) Worth(function string) float64 { return g.functions[function].worth }

// Evicted tells that a function was unloaded to make room: the others are
// worth less from now on, compared with those that are used.
func (g *GreedyDual) Evicted(function string) {
	g.clock = max(g.clock, g.functions[function].worth)
	g.Forget(function)
}

// Forget drops a function that was unloaded for another reason.
func (g *GreedyDual) Forget(function string) { delete(g.functions, function) }
