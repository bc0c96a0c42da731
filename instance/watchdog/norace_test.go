//go:build !race

package watchdog

// largeBody is what is to pass through in little memory.
const largeBody = 1 << 30
