package forward

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// execGrace is by how much later than exec_timeout the forwarder ends a request by itself:
// the instance's watchdog comes first, and knows what the program said.
const execGrace = 100 * time.Millisecond

const (
	// maxHeldTime is the time for a request that no client waits for, and its answer, if the
	// function has no exec_timeout.
	maxHeldTime = time.Hour
	// answerGrace is the time beyond exec_timeout in which the watchdog may end such an answer.
	answerGrace = 10 * time.Second
)

// heldTime is the time for a request that no client waits for, from when it has an instance to the end of its answer.
func (f *Forwarder) heldTime() time.Duration {
	if limit := time.Duration(f.execTimeout.Load()); limit > 0 {
		return limit + answerGrace
	}
	return maxHeldTime
}

// ExecTimeout reads the exec_timeout of a function's environment, which bounds a request in
// OpenFaaS' watchdogs. It is 0 if there is none.
func ExecTimeout(env map[string]string) time.Duration { return Timeout(env, "exec_timeout") }

// Timeout reads a variable of OpenFaaS' watchdogs: a duration such as 1m30s, or a number of
// seconds. It is 0 if there is none, or none that the watchdog understands.
func Timeout(env map[string]string, name string) time.Duration {
	if seconds, err := strconv.ParseUint(env[name], 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	d, err := time.ParseDuration(env[name])
	if err != nil {
		return 0
	}
	return max(0, d)
}

// SetExecTimeout bounds how long an instance may take until it begins to answer; 0 is no
// bound. A watchdog keeps to it by itself, unless it is stopped, or its machine has no memory
// or CPU time for it.
func (f *Forwarder) SetExecTimeout(limit time.Duration) { f.execTimeout.Store(int64(limit)) }

// limited is the bound of one exchange. The zero value has none.
type limited struct {
	timer  *time.Timer
	cancel context.CancelFunc
}

// limit returns a copy of a request that is bounded.
func (f *Forwarder) limit(out *http.Request) (*http.Request, limited) {
	limit := time.Duration(f.execTimeout.Load())
	if limit == 0 {
		return out.WithContext(out.Context()), limited{}
	}
	ctx, cancel := context.WithCancel(out.Context())
	return out.WithContext(ctx), limited{time.AfterFunc(limit+execGrace, cancel), cancel}
}

// over reports whether the exchange has taken too long. Afterwards it may take any time.
func (l limited) over() bool { return l.timer != nil && !l.timer.Stop() }

// end releases the exchange, with its answer.
func (l limited) end() {
	if l.cancel != nil {
		l.timer.Stop()
		l.cancel()
	}
}
