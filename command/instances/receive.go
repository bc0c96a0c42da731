package instances

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
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
	// nodeLook is the time between two looks whether the node's agent has the model.
	nodeLook = 20 * time.Millisecond
)

// receive waits for the model's files if the provider sends them, and makes --model name them. It takes them from the
// node's agent, if that has them: all functions of the namespace share them. Otherwise the instances of a function on a
// node keep them in the directory of copies, if there is one, so that they are sent to the first one only. The
// listeners stay open: who connects meanwhile is answered by the model's server.
func (f *Flags) receive(ctx context.Context, listeners []net.Listener, logger zerolog.Logger) error {
	name, own := os.Getenv(contentEnv), os.Getenv(contentDirEnv)
	if name == "" {
		return nil
	}
	began, dir := time.Now(), own
	var whole string
	if whole, f.node = onNode(ctx, name); f.node != nil {
		logger.Info().Msg("the model is on the node")
		f.Model = content.Below(whole, own, f.Model)
		return nil
	}
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
	if whole = r.Find(); whole == "" {
		if whole, f.node, err = waitFor(ctx, r, f.Identity, name, listeners); err != nil {
			return fmt.Errorf("receive the model: %w", err)
		}
		how := "received the model"
		if f.node != nil {
			how = "the model has come to the node"
		}
		logger.Info().Dur("took_ms", time.Since(began)).Msg(how)
	}
	f.Model = content.Below(whole, own, f.Model)
	return nil
}

// onNode returns the directory of a content that the node's agent has, nil if it has none. The instance holds it until
// its end.
func onNode(ctx context.Context, name string) (whole string, held *os.File) {
	dir := os.Getenv(copies.ModelEnv)
	if dir == "" {
		return "", nil
	}
	return copies.FindModel(ctx, dir, name)
}

// waitFor serves the receiver until the model is here, or on the node, where it is held.
func waitFor(
	ctx context.Context, r *content.Receiver, identity *mutual.Identity, name string, listeners []net.Listener,
) (whole string, held *os.File, err error) {
	waiting, end := context.WithCancel(ctx)
	defer end()
	var there string
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.Tick(nodeLook)
		for held == nil {
			select {
			case <-waiting.Done():
				return
			case <-tick:
				there, held = onNode(waiting, name)
			}
		}
		end()
	})
	whole, err = serve(waiting, r, identity, listeners)
	end()
	looking.Wait()
	if held != nil {
		return there, held, nil
	}
	return whole, nil, err
}

// serve serves the receiver until the model is here.
func serve(ctx context.Context, r *content.Receiver, identity *mutual.Identity,
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
