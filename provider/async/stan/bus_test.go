package stan

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/stan.go/pb"
	"github.com/rs/zerolog"
)

// serve starts a NATS server and a service on it; it returns the server's URL.
func serve(t testing.TB, take func(data []byte, done func(error))) (url string, conn *nats.Conn) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("no server")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if conn, err = nats.Connect(s.ClientURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	service, err := Serve(conn, Options{Take: take, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL(), conn
}

// Clients that send pings get answers.
func TestPing(t *testing.T) {
	_, conn := serve(t, nil)
	ask := func(p *pb.Ping) string {
		data, _ := p.Marshal()
		m, err := conn.Request("_STAN.ping."+DefaultCluster, data, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var r pb.PingResponse
		if err := r.Unmarshal(m.Data); err != nil {
			t.Fatal(err)
		}
		return r.Error
	}
	if text := ask(&pb.Ping{ConnID: []byte("any")}); text != "" {
		t.Errorf("a ping is answered %q", text)
	}
	if text := ask(&pb.Ping{}); text == "" {
		t.Error("a ping without an id is answered well")
	}
}

func TestNames(t *testing.T) {
	for _, o := range []Options{{Cluster: "a.b"}, {Cluster: "a>"}, {Channel: "a b"}, {Channel: ".a"}, {Channel: "a.*"}, {Channel: "a..b"}} {
		if _, err := Serve(nil, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// FuzzMessages: no message of a client makes the service panic, and each message that is
// taken is acknowledged with its own id.
func FuzzMessages(f *testing.F) {
	good, _ := (&pb.PubMsg{ClientID: "c", Guid: "g", Subject: DefaultChannel, Data: []byte("x")}).Marshal()
	f.Add(good)
	f.Add([]byte{0xff, 0x01})
	f.Add([]byte{})
	url, _ := serve(f, func(_ []byte, done func(error)) { done(nil) })
	conn, err := nats.Connect(url)
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Close()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, subject := range []string{"_STAN.discover.", "_STAN.ping.", "_STAN.close.", "_STAN.sub."} {
			if _, err := conn.Request(subject+DefaultCluster, data, time.Minute); err != nil {
				t.Fatalf("%s: %v", subject, err)
			}
		}
		var p pb.PubMsg
		if unmarshal(&p, data) != nil || p.Guid == "" {
			if err := conn.Publish("_STAN.pub."+DefaultCluster+"."+DefaultChannel, data); err != nil {
				t.Fatal(err)
			}
			return
		}
		m, err := conn.Request("_STAN.pub."+DefaultCluster+"."+DefaultChannel, data, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var a pb.PubAck
		if err := a.Unmarshal(m.Data); err != nil || a.Guid != p.Guid {
			t.Fatalf("acknowledged %+v %v", a, err)
		}
	})
}
