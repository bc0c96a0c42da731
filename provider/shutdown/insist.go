package shutdown

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Insistence returns a context that ends with the second SIGINT or SIGTERM from now on.
// The first one ends the command's context. The third one kills the process, as does any
// after release. A SIGHUP counts as a first one only: a terminal that closes may send two. Until release, SIGPIPE does not
// kill the process: a provider whose standard output is closed serves on, without its log.
func Insistence() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, broken := make(chan os.Signal, 2), make(chan os.Signal, 1)
	caught := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		caught = append(caught, syscall.SIGHUP)
	}
	signal.Notify(signals, caught...)
	signal.Notify(broken, syscall.SIGPIPE) // Children get the default back, as they would not with signal.Ignore.
	go func() {
		defer signal.Stop(signals)
		for stops := false; ; {
			select {
			case s := <-signals:
				if stops && s != syscall.SIGHUP {
					cancel()
					return
				}
				stops = true
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(broken)
		cancel()
	}
}
