package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// awaitReady reads the ready pipe until the process says that it serves, gives
// up or exits.
func (b *Backend) awaitReady(e *entry, pipe *os.File) {
	defer pipe.Close()
	stop := context.AfterFunc(e.ctx, func() { _ = pipe.Close() })
	defer stop()
	_ = pipe.SetReadDeadline(time.Now().Add(b.options.StartTimeout))
	said, err := readLine(pipe)
	if e.ctx.Err() != nil {
		return
	}
	switch {
	case said == "ready\n":
		b.becomeReady(e)
	case said != "":
		b.abandon(e, fmt.Sprintf("said %q instead of ready", said))
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.abandon(e, fmt.Sprintf("not ready within %v", b.options.StartTimeout))
	default:
		// It exits now, or closed the pipe and goes on for nothing. In the
		// first case its exit status tells more.
		select {
		case <-e.ctx.Done():
		case <-time.After(closedPipePatience):
			b.abandon(e, "closed its ready pipe without becoming ready")
		}
	}
}

// readLine reads until the end of a line, or what fits into a short one.
func readLine(pipe *os.File) (string, error) {
	line := make([]byte, 0, 64)
	for len(line) < cap(line) && !bytes.HasSuffix(line, []byte("\n")) {
		read, err := pipe.Read(line[len(line):cap(line)])
		line = line[:len(line)+read]
		if err != nil {
			return string(line), err
		}
	}
	return string(line), nil
}

// closedPipePatience is how long a process may take to exit after its
// descriptors were closed.
const closedPipePatience = time.Second

// pollReady asks an instance that was taken over while it started, and whose
// pipe is lost, until it answers that it is ready.
func (b *Backend) pollReady(e *entry) {
	const interval = 20 * time.Millisecond
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.record.Socket)
		},
	}}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !answers(e.ctx, client) {
		if b.options.Now().Sub(e.record.StartedAt) >= b.options.StartTimeout {
			b.abandon(e, fmt.Sprintf("not ready within %v", b.options.StartTimeout))
			return
		}
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C:
		}
	}
	b.becomeReady(e)
}

func answers(ctx context.Context, client *http.Client) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://instance/_/ready", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (b *Backend) becomeReady(e *entry) {
	b.pinning.Lock()
	defer b.pinning.Unlock()
	if err := b.restrict(e); err != nil {
		b.log.Error().Err(err).Msg("an instance keeps the larger CPU share that it started with")
	}
	now := b.options.Now()
	became := b.emit(e, func(i *cluster.Instance) bool {
		if i.State != cluster.Starting {
			return false
		}
		i.State, i.ReadyAt = cluster.Ready, now
		return true
	})
	if !became {
		return
	}
	e.record.ReadyAt = now
	if err := b.layout.replace(e.record); err != nil {
		b.log.Error().Err(err).Msg("a next provider will take the instance for one that is still starting")
	}
}

// abandon kills an instance that failed; its exit is then seen as any other.
func (b *Backend) abandon(e *entry, why string) {
	b.mu.Lock()
	e.failure = why
	b.mu.Unlock()
	b.kill(e)
}
