// Package scaling decides how many instances a function has, with which
// configs and on which nodes (INFless §3.2 and §3.4). [Bounds] is Eq. 1,
// [Schedule] is Algorithm 1 with Eq. 10, and [Engine] is the auto-scaling
// engine that calls it: load and instances in, a [Plan] out.
//
// The package is pure: it holds no clock, no goroutine and no socket. The
// provider and the simulator drive the same code.
package scaling
