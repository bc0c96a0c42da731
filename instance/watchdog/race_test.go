//go:build race

package watchdog

// largeBody is the size in bytes of a body that must pass through in little memory. It is
// smaller because the race detector makes the test ten times slower.
const largeBody = 128 << 20
