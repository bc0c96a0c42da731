// Package scaling decides how many instances a function has, with which
// configs and on which nodes (INFless §3.2 and §3.4). [Engine] is the auto-scaling
// engine: load and instances in, a [Plan] out. The packages below this one compute the
// rate of an instance (Eq. 1), its place (Algorithm 1) and the plan for all functions together.
//
// All of them are pure: they hold no clock, no goroutine and no socket. The
// provider and the simulator drive the same code.
package scaling
