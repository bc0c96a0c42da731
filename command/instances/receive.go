package instances

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/model/content"
)

const (
	// contentEnv names the model's content that the provider sends to an instance on a cluster, and contentDirEnv the
	// directory for it. --model is below that directory.
	contentEnv    = "FAAS_INFER_CONTENT"
	contentDirEnv = "FAAS_INFER_CONTENT_DIR"
	// alivePath is answered while the model is not here yet: the kubelet must not kill the instance.
	alivePath = "/_/health"
	// receivedTime is how long the last answer to the sender may take.
	receivedTime = 5 * time.Second
)

// receive waits for the model's files if the provider sends them, and makes --model name them. The instances of a
// function on a node keep them in the directory of copies, if there is one, so that they are sent to the first one
// only. The listeners stay open: who connects meanwhile is answered by the model's server.
func (f *Flags) receive(ctx context.Context, listeners []net.Listener, logger zerolog.Logger) error {
	name, own := os.Getenv(contentEnv), os.Getenv(contentDirEnv)
	if name == "" {
		return nil
	}
	began, dir := time.Now(), own
	if shared := os.Getenv(copies.Env); shared != "" {
		held, err := copies.Hold(ctx, shared)
		if err != nil {
			logger.Warn().Err(err).Msg("the node's copy of the model cannot be used; the instance gets its own")
		} else {
			defer held.Close() // Share holds it again.
			dir = shared
		}
	}
	r, err := content.NewReceiver(dir, name)
	if err != nil {
		return fmt.Errorf("$%s: %w", contentEnv, err)
	}
	whole := r.Find()
	if whole == "" {
		if whole, err = waitFor(ctx, r, f.Identity, listeners); err != nil {
			return fmt.Errorf("receive the model: %w", err)
		}
		logger.Info().Dur("took_ms", time.Since(began)).Msg("received the model")
	}
	f.Model = content.Below(whole, own, f.Model)
	return nil
}

// waitFor serves the receiver until the model is here.
func waitFor(ctx context.Context, r *content.Receiver, identity *mutual.Identity,
	listeners []net.Listener) (string, error) {
	routes := http.NewServeMux()
	routes.Handle(content.Path, r)
	routes.Handle(content.Path+"/", r)
	routes.HandleFunc(alivePath, func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: Guarded(identity, routes), ReadHeaderTimeout: receivedTime}
	if identity != nil {
		server.ConnContext = mutual.WithConn
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		var lent net.Listener = lentListener{l}
		if identity != nil && l.Addr().Network() == "tcp" {
			lent = identity.Listen(lent)
		}
		go func() { ended <- server.Serve(lent) }()
	}
	whole, err := r.Wait(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), receivedTime)
	defer cancel()
	for _, l := range listeners {
		err = errors.Join(err, lentListener{l}.setDeadline(time.Unix(1, 0)))
	}
	if server.Shutdown(last) != nil {
		_ = server.Close() // The sender asks again.
	}
	for _, l := range listeners {
		<-ended
		err = errors.Join(err, lentListener{l}.setDeadline(time.Time{}))
	}
	return whole, err
}

// lentListener is a listener that its server does not close. A deadline makes the server leave it.
type lentListener struct{ net.Listener }

// Close implements [net.Listener].
func (l lentListener) Close() error { return nil }

func (l lentListener) setDeadline(t time.Time) error {
	if d, can := l.Listener.(interface{ SetDeadline(time.Time) error }); can {
		return d.SetDeadline(t)
	}
	return errors.New("the listener has no deadlines")
}
