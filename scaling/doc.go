// Package scaling decides how many instances a function has, with which configs and on
// which nodes (INFless §3.2 and §3.4). [Engine] takes load and instances and returns a
// [Plan]; it starts and stops nothing. The packages below calculate the rate of an
// instance (Eq. 1), its place (Algorithm 1) and the plan for all functions together.
//
// All of them are pure: they have no clock, goroutine or socket. The provider and the
// simulator drive the same code. Begin with [Engine.Scale].
package scaling
