// Package load drives functions with requests and measures how they answer.
//
// [Run] is an open loop: when each request is sent is settled from a seed
// before the first one goes out, and a slow answer delays no later request.
// Latency counts from the intended time of sending, so a server that stalls is
// charged for every request that it kept waiting, also for those that a
// closed loop would never have sent (no coordinated omission). [RunClosed]
// sends back to back instead; it measures what a request costs, not what a
// server withstands.
//
// The generator shares its machine with what it measures, so it is kept lean:
// one goroutine per request in flight, HTTP/1.1 on kept connections, no
// allocation per byte of body. Where it lags behind its own schedule, the
// result says by how much.
package load
