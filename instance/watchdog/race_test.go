//go:build race

package watchdog

// largeBody is what is to pass through in little memory. The race detector makes
// it a tenth as fast.
const largeBody = 128 << 20
