package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embedded is a NATS server in this process. Only this process can connect to it. restart
// replaces it by another one in the same directory.
type embedded struct {
	running atomic.Pointer[server.Server]
	options BrokerOptions
	log     *serverLog
	// checked is the time of the last check of the disk, nil before the first. full is its
	// result.
	checked atomic.Pointer[time.Time]
	full    atomic.Pointer[error]
}

// startEmbedded starts a server and returns when its streams are open. The server calls
// troubled when it logs an error.
func startEmbedded(ctx context.Context, o BrokerOptions, troubled func()) (*embedded, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the queue: %w", err)
	}
	e := &embedded{options: o, log: newServerLog(o.Logger, troubled)}
	if err := e.run(ctx); err != nil {
		e.close()
		return nil, err
	}
	if err := e.sound(); err != nil {
		e.close()
		return nil, fmt.Errorf("the queue in %s cannot be opened: %w; move that directory away (its requests are lost to this provider) or restore it, and start again", o.Dir, err)
	}
	return e, nil
}

// run starts a server and returns when it is ready. Opening a long queue takes a while.
func (e *embedded) run(ctx context.Context) error {
	e.log.first.Store(nil)
	s, err := server.NewServer(e.settings())
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	e.running.Store(s)
	s.SetLoggerV2(e.log, false, false, false)
	go s.Start()
	for !s.ReadyForConnections(50*time.Millisecond) && e.log.fatal() == nil && ctx.Err() == nil {
	}
	if err := errors.Join(e.log.fatal(), ctx.Err()); err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	return nil
}

// restart replaces the server by another one. That one opens the streams again, which
// clears a write error. The connections to it come back by themselves.
func (e *embedded) restart(ctx context.Context) error {
	e.close()
	return e.run(ctx)
}

// InProcessConn is the method of nats.InProcessConnProvider. It connects to the server
// that runs now.
func (e *embedded) InProcessConn() (net.Conn, error) { return e.running.Load().InProcessConn() }

func (e *embedded) settings() *server.Options {
	every := e.options.Sync
	if every == 0 {
		every = DefaultSync
	}
	return &server.Options{
		ServerName: "faas-infer", NoSigs: true, NoSystemAccount: true,
		JetStream: true, StoreDir: e.options.Dir, JetStreamMaxMemory: 1 << 20,
		// The streams have their own limits, and room checks the disk.
		JetStreamMaxStore: 1 << 60,
		SyncInterval:      every, SyncAlways: e.options.SyncAlways, DisableJetStreamBanner: true,
		// The queue holds all requests with their headers: no other process may connect.
		DontListen: true,
		MaxPayload: MaxPayload, MaxPending: 8 * MaxPayload,
		// Many requests at once must not fill the memory.
		StreamMaxBufferedSize: 4 * MaxPayload, StreamMaxBufferedMsgs: 1 << 17,
	}
}

// sound returns an error if a stream could not be opened or written. A busy server is
// sound.
func (e *embedded) sound() error {
	if !e.running.Load().JetStreamEnabled() {
		return errors.New("JetStream is off")
	}
	for _, wrong := range e.running.Load().Healthz(&server.HealthzOptions{Details: true}).Errors {
		switch wrong.Type {
		case server.HealthzErrorStream, server.HealthzErrorJetStream, server.HealthzErrorAccount:
			return errors.New(wrong.Error)
		default:
		}
	}
	return nil
}

func (e *embedded) close() {
	if s := e.running.Load(); s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}
