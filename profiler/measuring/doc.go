// Package measuring is the driver of profiling: it runs operators and models in
// the real engine and takes their times, on a machine that also does other
// things. What is measured is decided in profiler/…; what was measured is kept by
// profiler/measuring/operators.
//
// Every operator is run alone, in a model of one node (profiler/operator), as it
// stands in the optimised graph that instances run. Before each run the caches
// are put into the state in which the operator would find them in its model
// ([Caches]), since a loop over one operator would find its weights in the
// nearest one. What a call of the engine costs around the operator is taken off
// ([Calls]), and comes back once per model as the pseudo-operator Run.
//
// A [Sampler] tells times of a quiet machine from others by a yardstick: a small
// matrix product that is timed before and after. On shared hosts the very same
// code takes 1.4 times as long for seconds on end, while a neighbour uses the
// other half of the core.
package measuring
