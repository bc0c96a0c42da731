package watchdog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/mutual"
)

const (
	// defaultDrain is how long Serve waits for requests in flight if neither exec_timeout
	// nor write_timeout is set.
	defaultDrain = time.Minute
	// stopTime is how long the program of mode HTTP may take to exit.
	stopTime = 5 * time.Second
	// headerTime is the maximum time for a client to send a request's header.
	headerTime = 10 * time.Second
	// idleTime is how long an idle connection is kept. The provider closes idle
	// connections much sooner. If the watchdog closed one first, a request might be on its
	// way over it.
	idleTime = 5 * time.Minute
)

// Serve answers requests at the listeners until ctx ends. Then it takes no new requests,
// finishes those in flight, stops the program and returns nil. It returns an [ExitError]
// if the program of mode HTTP exits by itself, or no longer listens at its port. It closes the listeners. It calls ready as
// soon as it answers requests.
func (s *Server) Serve(ctx context.Context, listeners []net.Listener, ready func() error) error {
	fresh := &fresh{conns: map[net.Conn]bool{}}
	server := &http.Server{
		Handler: mutual.Guard(s, s.rules), ConnContext: mutual.WithConn, ReadHeaderTimeout: headerTime,
		ReadTimeout: s.config.ReadTimeout, WriteTimeout: s.config.WriteTimeout, IdleTimeout: idleTime,
		ErrorLog: s.log.Logger(), ConnState: fresh.note,
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		if s.identity != nil && l.Addr().Network() == "tcp" {
			l = s.identity.Listen(l)
		}
		go func() { failed <- server.Serve(l) }()
	}
	running := len(listeners)
	err := ready()
	if err == nil {
		select {
		case <-ctx.Done():
		case <-s.exited():
			err = s.upstream.Exit()
		case <-s.deaf():
			err = s.upstream.deafness()
		case err = <-failed:
			running--
		}
	}
	s.stopping.Store(true)
	closing := time.AfterFunc(freshTime, fresh.close)
	defer closing.Stop()
	err = errors.Join(err, s.drain(server, err == nil))
	for range running {
		<-failed
	}
	return err
}

// drain shuts the server down and stops the program. With inOrder it waits for the requests
// in flight, otherwise for at most 1 s.
func (s *Server) drain(server *http.Server, inOrder bool) error {
	patience := max(s.config.ExecTimeout, s.config.WriteTimeout)
	switch {
	case !inOrder:
		patience = time.Second
	case patience == 0:
		patience = defaultDrain
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if server.Shutdown(ctx) != nil {
		err = server.Close()
		if inOrder {
			err = errors.Join(fmt.Errorf("requests were still in flight after %v", patience), err)
		}
	}
	if s.upstream != nil {
		s.upstream.Stop(stopTime)
	}
	return err
}
