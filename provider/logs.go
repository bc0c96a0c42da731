package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/logs"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// LogSource reads the output of a function's instances. It has the method of
// faas-provider's logs.Requester.
type LogSource interface {
	// Query returns messages from the oldest to the newest: only the last Tail if
	// that is above 0. With Follow, it adds new messages until ctx ends. It closes the
	// channel after the last message. A function without logs has no messages.
	Query(ctx context.Context, q logs.Request) (<-chan logs.Message, error)
}

// logRoutes serves /system/logs.
type logRoutes struct {
	logs LogSource
	// absent returns nil if there is a function, or may be one after a restart.
	absent   func(a address) error
	inFlight *web.Gate
	now      func() time.Time
}

// show is GET /system/logs: one message a line, as JSON, sent as soon as it is there. It
// shows the logs of a deleted function, too, for as long as they are kept.
func (s logRoutes) show(w http.ResponseWriter, r *http.Request) error {
	if s.logs == nil {
		return web.Refuse(http.StatusNotImplemented, "this provider keeps no logs")
	}
	q, err := s.query(r.URL.Query())
	if err != nil {
		return err
	}
	a := address{name: q.Name, namespace: q.Namespace}
	gone := s.absent(a)
	if gone != nil {
		q.Follow = false
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	messages, err := s.logs.Query(ctx, q)
	if err != nil {
		return err
	}
	var first *logs.Message
	if gone != nil {
		m, ok := <-messages
		if !ok {
			return gone
		}
		first = &m
	}
	s.stream(w, first, messages)
	cancel()
	for range messages { // Until the source has noticed that ctx has ended.
	}
	return nil
}

// stream writes messages until there are no more, the client is gone, or the provider
// shuts down. Otherwise shutdown would wait for every client that follows.
func (s logRoutes) stream(w http.ResponseWriter, first *logs.Message, messages <-chan logs.Message) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := http.NewResponseController(w)
	defer hurryAtShutdown(s.inFlight, out)()
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if first != nil && encoder.Encode(*first) != nil {
		return
	}
	for {
		// Messages that are there go out together. They, or the headers alone, are
		// flushed before stream waits.
		if len(messages) == 0 && out.Flush() != nil {
			return
		}
		select {
		case m, ok := <-messages:
			if !ok || encoder.Encode(m) != nil {
				return
			}
		case <-s.inFlight.Shut():
			return
		}
	}
}

// lastWrite is how long a slow client may take to read the rest when the provider shuts
// down.
const lastWrite = time.Second

// hurryAtShutdown sets a write deadline when the provider shuts down, so a client that
// does not read cannot hold up shutdown. undo ends that.
func hurryAtShutdown(inFlight *web.Gate, out *http.ResponseController) (undo func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-inFlight.Shut():
			_ = out.SetWriteDeadline(time.Now().Add(lastWrite)) // It fails if the client is gone.
		case <-done:
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// query reads a query as faas-cli and go-sdk send it. since is a time, or a duration
// back from now. A tail of 0 or less has no effect; faas-cli sends such a tail by default.
func (s logRoutes) query(query url.Values) (logs.Request, error) {
	q := logs.Request{Instance: query.Get("instance")}
	if query.Get("name") == "" {
		return q, web.Refuse(http.StatusBadRequest, `name is not set: the query must name the function, for example "?name=resnet-50"`)
	}
	a, err := resolve(query.Get("name"), query.Get("namespace"))
	if err != nil {
		return q, err
	}
	if !annotation.IsName(a.name) || !annotation.IsName(a.namespace) {
		return q, absent(a)
	}
	q.Name, q.Namespace = a.name, a.namespace
	if text := query.Get("follow"); text != "" {
		if q.Follow, err = strconv.ParseBool(text); err != nil {
			return q, badField("follow", text, "true or false", "true")
		}
	}
	if text := query.Get("tail"); text != "" {
		if q.Tail, err = strconv.Atoi(text); err != nil {
			return q, badField("tail", text, "the number of lines, 0 for all", "100")
		}
	}
	if text := query.Get("since"); text != "" {
		if q.Since, err = s.since(text); err != nil {
			return q, err
		}
	}
	return q, nil
}

// since reads a time as RFC 3339 text, or as a duration back from now.
func (s logRoutes) since(text string) (*time.Time, error) {
	// A plus that was not escaped arrives as a space.
	if at, err := time.Parse(time.RFC3339, strings.Replace(text, " ", "+", 1)); err == nil {
		return &at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		at := s.now().Add(-ago)
		return &at, nil
	}
	return nil, badField("since", text, "a time in the form of RFC 3339 or a duration back from now", "10m")
}

func badField(name, value, allowed, example string) error {
	return web.Refuse(http.StatusBadRequest, "%s is %q: it must be %s, for example %q", name, web.Clip(value), allowed, example)
}
