package async

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/stan.go/pb"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Programs of the machine that connect where the gateway does see nothing of the requests
// that pass, and are told that they may not.
func TestGuestsSeeNothing(t *testing.T) {
	var executed, seen, violations atomic.Int64
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("the function gets %v", r.Header)
		}
		executed.Add(1)
		return respond(200, ""), nil
	}, nil)
	spy := func(subject string, want bool) *nats.Conn {
		t.Helper()
		c, err := nats.Connect("nats://"+r.Address(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Error(err)
			}
			violations.Add(1)
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		before := violations.Load()
		if _, err := c.Subscribe(subject, func(m *nats.Msg) { seen.Add(1) }); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if want {
			until(t, "subscribing to "+subject+" is a violation", func() bool { return violations.Load() > before })
		}
		return c
	}
	for _, subject := range []string{"_INBOX.>", ">", "$JS.API.>", "$SYS.>", "_STAN.>", "faas-infer.async.>", "*.*"} {
		spy(subject, true)
	}
	// The inbox of another guest is only a name: nothing arrives there but the answers to
	// the guest's own messages.
	spy("_INBOX.victim", false)
	victim, answered := spy("_INBOX.unused", false), make(chan struct{}, 1)
	if _, err := victim.Subscribe("_INBOX.victim", func(*nats.Msg) { answered <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	hello, err := (&pb.ConnectRequest{ClientID: "victim", HeartbeatInbox: "_INBOX.victim"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.PublishRequest("_STAN.discover.faas-cluster", "_INBOX.victim", hello); err != nil {
		t.Fatal(err)
	}
	<-answered
	g := gateway(t, "nats://"+r.Address(), time.Minute)
	const n = 50
	for i := range n {
		data, err := json.Marshal(types.QueueRequest{Function: "echo", Body: fmt.Append(nil, i), Header: http.Header{"Authorization": {"Bearer secret"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Publish("faas-request", data); err != nil {
			t.Fatal(err)
		}
		if w := r.do("POST", "/async-function/echo", "x", "Authorization", "Bearer secret"); w.Code != 202 {
			t.Fatal(w.Code, w.Body)
		}
	}
	until(t, "all are executed", func() bool { return executed.Load() == 2*n })
	if seen.Load() > 0 {
		t.Errorf("guests have seen %d messages", seen.Load())
	}
}

// A gateway's message counts as little as another request without a key, and the queue gets no key.
func TestGuestsNeedKeys(t *testing.T) {
	var got atomic.Pointer[frame.Request]
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		got.Store(r)
		return respond(200, ""), nil
	}, func(o *Options) {
		o.Admit = func(_ context.Context, name string, header http.Header) error {
			if name != "echo.openfaas-fn" || header.Get("X-API-Key") != "right" {
				return web.Refuse(http.StatusUnauthorized, "the key is wrong")
			}
			header.Del("X-API-Key")
			return nil
		}
	})
	g := gateway(t, "nats://"+r.Address(), time.Minute)
	for _, key := range []string{"wrong", "right"} {
		data, err := json.Marshal(types.QueueRequest{Function: "echo", Path: "/p", Body: []byte(key), Header: http.Header{"x-api-key": {key}, "Topic": {"x"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Publish("faas-request", data); (err == nil) != (key == "right") {
			t.Errorf("%s: %v", key, err)
		}
	}
	until(t, "the request is executed", func() bool { return got.Load() != nil })
	if r := got.Load(); string(r.Body) != "right" || r.Path != "/p" || r.Header.Get("X-API-Key") != "" || r.Header.Get("Topic") != "x" {
		t.Errorf("the function gets %+v", r)
	}
}

// On an external server, a client that may subscribe to all usual inboxes, as a gateway
// may, sees no request.
func TestInboxesOfAnExternalServer(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoAuthUser: "gateway",
		Users: []*server.User{{Username: "provider", Password: "p"}, {Username: "gateway", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"_STAN.>"}}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "_STAN.acks.>"}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	until(t, "NATS listens", func() bool { return s.Addr() != nil })
	done := make(chan struct{})
	start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		done <- struct{}{}
		return respond(200, ""), nil
	}, func(o *Options) { o.URL = "nats://provider:p@" + s.Addr().String() })
	spy, err := nats.Connect("nats://" + s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer spy.Close()
	var seen atomic.Int64
	if _, err := spy.Subscribe("_INBOX.>", func(m *nats.Msg) {
		if seen.Add(1); bytes.Contains(m.Data, []byte("call-x")) {
			t.Error("a client sees a request")
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := spy.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := gateway(t, "nats://"+s.Addr().String(), time.Minute).Publish("faas-request", request("echo", "x")); err != nil {
		t.Fatal(err)
	}
	<-done
	until(t, "the client sees other gateways' answers", func() bool { return seen.Load() > 0 })
}
