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

// awaitReady reads the ready pipe until the process reports that it serves, fails to
// do so, or exits.
func (e *entry) awaitReady(pipe *os.File) {
	defer pipe.Close()
	stop := context.AfterFunc(e.ctx, func() { _ = pipe.Close() })
	defer stop()
	_ = pipe.SetReadDeadline(time.Now().Add(e.backend.options.StartTimeout))
	said, err := readLine(pipe)
	if e.ctx.Err() != nil {
		return
	}
	switch {
	case said == "ready\n":
		e.becomeReady()
	case said != "":
		e.abandon(fmt.Sprintf("wrote %q to its ready pipe instead of \"ready\"", said))
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.abandon(fmt.Sprintf("not ready within %v", e.backend.options.StartTimeout))
	default:
		// It is exiting, or has closed the pipe and runs on for nothing. If it
		// exits, its exit status says more.
		select {
		case <-e.ctx.Done():
		case <-time.After(closedPipeTimeout):
			e.abandon("closed its ready pipe without becoming ready")
		}
	}
}

// readLine reads up to the end of a line, at most 64 bytes.
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

// closedPipeTimeout is how long a process may take to exit after it has closed its
// ready pipe.
const closedPipeTimeout = time.Second

// pollReady polls an instance until it answers that it is ready. It is for an instance
// that was taken over while it started, so its pipe is lost.
func (e *entry) pollReady() {
	b := e.backend
	const interval = 20 * time.Millisecond
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.record.Socket)
		},
	}}
	ticker := time.Tick(interval)
	for !answers(e.ctx, client) {
		if b.options.Now().Sub(e.record.StartedAt) >= b.options.StartTimeout {
			e.abandon(fmt.Sprintf("not ready within %v", b.options.StartTimeout))
			return
		}
		select {
		case <-e.ctx.Done():
			return
		case <-ticker:
		}
	}
	e.becomeReady()
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

func (e *entry) becomeReady() {
	b := e.backend
	b.pinning.Lock()
	defer b.pinning.Unlock()
	if err := e.restrict(); err != nil {
		b.log.Error().Err(err).Msg("cannot reduce an instance to its CPU share; it keeps the larger one that it started with")
	}
	now := b.options.Now()
	became := e.emit(func(i *cluster.Instance) bool {
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
	e.save()
}

// abandon kills an instance that failed. follow then handles its exit as any other.
func (e *entry) abandon(why string) {
	e.backend.mu.Lock()
	e.failure = why
	e.backend.mu.Unlock()
	e.kill()
}
