package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/thread"
)

// Available returns nil if this process may give its children sandboxes, or
// the reason why not. It finds out by making one for a thread that is then
// thrown away, and leaves nothing but the directory [SecretsDir].
func Available() error {
	var failed error
	thread.Apart(func() (clean bool) {
		if failed = unix.Unshare(unix.CLONE_NEWNS); failed != nil {
			failed = fmt.Errorf("make a mount namespace: %w", failed)
		} else {
			failed = furnish(nil)
		}
		return false
	})
	return failed
}
