package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox/spawn"
)

// Available returns nil if this process may give its children sandboxes, or
// otherwise the reason. To find out, it makes one for a thread and destroys the
// thread. Only the directory [SecretsDir] remains.
func Available() error {
	return try(unix.CLONE_NEWNS, func() error { return mountAll(nil) })
}

// FunctionAvailable does the same for the private file systems of ordinary functions.
func FunctionAvailable() error {
	if info, err := os.Stat("/home"); err != nil || !info.IsDir() {
		return errors.New("the machine has no /home to mount bundles at")
	}
	return try(unix.CLONE_NEWNS|unix.CLONE_NEWIPC, func() error {
		_, err := functionPlan{Isolated: true, Bundle: "/home"}.mountAll()
		return err
	})
}

// FilterAvailable returns nil if functions' processes get a filter on their system calls, or
// otherwise the reason.
func FilterAvailable() error {
	_, err := spawn.Filter()
	return err
}

func try(namespaces int, f func() error) (failed error) {
	process.Apart(func() (clean bool) {
		if failed = unix.Unshare(namespaces); failed != nil {
			failed = fmt.Errorf("make a mount namespace: %w", failed)
		} else {
			failed = f()
		}
		return false
	})
	return failed
}

// FirstUser and UserCount define the range of user IDs for functions' processes. They
// are so large that no account and no usual range for containers includes them.
const (
	FirstUser = 1_900_000_000
	UserCount = 100_000_000
)

// FunctionUser reports whether a user ID is of that range.
func FunctionUser(user int) bool { return user >= FirstUser && user < FirstUser+UserCount }

// UsersAvailable returns nil if this process may start others as any user of that
// range, or otherwise the reason.
func UsersAvailable() error {
	if os.Geteuid() != 0 {
		return errors.New("only root may start processes as other users")
	}
	raw, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return fmt.Errorf("users of this namespace: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			first, _ := strconv.ParseInt(fields[0], 10, 64)
			count, _ := strconv.ParseInt(fields[2], 10, 64)
			if first <= FirstUser && FirstUser+UserCount <= first+count {
				return nil
			}
		}
	}
	return fmt.Errorf("this user namespace lacks the users %d to %d", FirstUser, FirstUser+UserCount-1)
}
