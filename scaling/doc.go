// Package scaling decides how many instances a function has, with which
// configs and on which nodes (INFless §3.2 and §3.4). [Engine] is the auto-scaling
// engine: load and instances in, a [Plan] out. What an instance serves (Eq. 1), where
// it goes (Algorithm 1) and what is planned for all functions together is computed in
// the packages below this one.
//
// All of them are pure: they hold no clock, no goroutine and no socket. The
// provider and the simulator drive the same code.
package scaling
