// Package measuring is the driver of profiling: it runs operators and models in the
// real engine and measures their times, on a machine that also runs other programs. It
// does not predict; the other packages of profiler do. Package
// profiler/measuring/operators stores the rows. Begin with [Measurer.Measure] and
// [Tasks].
//
// Every operator runs alone, in a model of one node (profiler/operator), as in the
// optimised graph that instances run. Before each run the measurer puts the caches into
// the state in which the operator finds them in its model ([Caches]): a plain loop over
// one operator would find its weights in the nearest cache. The cost of a call of the
// engine is subtracted ([Calls]) and added once per model, as the pseudo-operator Run.
//
// A [Sampler] separates the times of a quiet machine from others by a yardstick: a small
// matrix product that it times before and after. On shared hosts the same code takes 1.4
// times as long for seconds on end, while a neighbour uses the other half of the core.
package measuring
