//go:build !race

package watchdog

// largeBody is the size in bytes of a body that must pass through in little memory.
const largeBody = 1 << 30
