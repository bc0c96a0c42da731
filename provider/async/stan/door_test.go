package stan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	client "github.com/nats-io/stan.go"
	"github.com/nats-io/stan.go/pb"
	"github.com/rs/zerolog"
)

// publication is a message of a gateway as it goes over the wire.
func publication(guid, data, reply string) []byte {
	m, err := (&pb.PubMsg{ClientID: "c", Guid: guid, Subject: DefaultChannel, Data: []byte(data)}).Marshal()
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, "PUB _STAN.pub.%s.%s %s %d\r\n%s\r\n", DefaultCluster, DefaultChannel, reply, len(m), m)
}

// raw is a guest that is written by hand.
type raw struct {
	net.Conn
	in *bufio.Reader
}

// enter lets a guest into a Door that does not listen.
func enter(d *Door) *raw {
	here, there := net.Pipe()
	d.admit(there)
	return &raw{here, bufio.NewReader(here)}
}

// say writes, line reads a line.
func (r *raw) say(text string) { fmt.Fprint(r, text) }

func (r *raw) line() string {
	text, err := r.in.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "MSG ") { // A message, of a binary form, follows.
		var n int
		fmt.Sscan(text[strings.LastIndexByte(text, ' '):], &n)
		_, _ = r.in.Discard(n + len("\r\n"))
	}
	return text
}

// inside runs a test with a Door on a virtual clock.
func inside(t *testing.T, take func(data []byte, done func(error)), test func(t *testing.T, d *Door)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(Options{Take: take, Logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		d := newDoor(s)
		defer d.Close()
		test(t, d)
	})
}

func stored(_ []byte, done func(error)) { done(nil) }

// A guest may subscribe to the subjects that the gateway's library makes for itself.
func TestOwn(t *testing.T) {
	for subject, want := range map[string]bool{
		"_INBOX.abc": true, "_INBOX.abc.*": true, "_INBOX.abc.def": true, "_STAN.acks.abc": true,
		">": false, "*": false, "*.*": false, "_INBOX": false, "_INBOX.": false, "_INBOX.>": false, "_INBOX.*": false, "_INBOX.*.*": false,
		"_INBOX.*.>": false, "_INBOX.abc.>": false, "_INBOX.abc.*.*": false, "_INBOX.abc.def.ghi": false, "_INBOX.a*": false,
		"_STAN.>": false, "_STAN.acks.*": false, "_STAN.acks.>": false, "_STAN.acks.": false, "_STAN.acks.a.b": false, "_STAN.pub.>": false,
		"_STAN.pub.faas-cluster.faas-request": false, "$JS.API.>": false, "$SYS.>": false, "faas-infer.async.run.>": false, "": false,
	} {
		if own(subject) != want {
			t.Errorf("%q: %v", subject, !want)
		}
	}
}

// What a guest may not read or publish is refused with NATS' own error, and the guest's
// connection goes on.
func TestForbidden(t *testing.T) {
	url, _ := open(t, stored)
	violations := make(chan error, 100)
	c, err := nats.Connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refuses := func(what string) {
		t.Helper()
		if err := c.Flush(); err != nil {
			t.Fatal(what, err)
		}
		select {
		case err := <-violations:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s is allowed", what)
		}
	}
	for _, subject := range []string{">", "_INBOX.>", "_INBOX.*", "$JS.API.>", "$SYS.>", "_STAN.>", "faas-infer.async.>"} {
		if _, err := c.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		refuses("subscribing to " + subject)
	}
	for _, subject := range []string{"$JS.API.STREAM.PURGE.FAAS_INFER_ASYNC", "$JS.API.INFO", "$JS.ACK.x", "faas-infer.async.run.openfaas-fn.echo", "_INBOX.abc", "_STAN.acks.abc", "_STAN.pub.other.faas-request", "$SYS.REQ.SERVER.PING"} {
		if err := c.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		refuses("publishing to " + subject)
	}
}

// Guests beyond the limit are refused, and there is room again when one leaves.
func TestTooManyGuests(t *testing.T) {
	url, d := open(t, stored)
	var guests []*nats.Conn
	for i := range maxGuests {
		c, err := nats.Connect(url)
		if err != nil {
			t.Fatal(i, err)
		}
		defer c.Close()
		guests = append(guests, c)
	}
	if c, err := nats.Connect(url); err == nil {
		c.Close()
		t.Error("there is one more guest than the limit")
	}
	conn, err := net.Dial("tcp", d.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if text, err := io.ReadAll(conn); err != nil || !strings.Contains(string(text), "-ERR 'maximum connections exceeded'") {
		t.Errorf("one too many is told %q, %v", text, err)
	}
	if err := guests[0].Flush(); err != nil {
		t.Errorf("a guest within the limit notices: %v", err)
	}
	guests[0].Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := client.Connect(DefaultCluster, "gateway", client.NatsURL(url))
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody gets in after a guest has left: %v", err)
		}
	}
}

// A guest that does not read is cut off: by the time that a write takes, or by the bytes
// that wait. Other guests do not notice.
func TestSlowGuest(t *testing.T) {
	inside(t, stored, func(t *testing.T, d *Door) {
		slow, other := enter(d), enter(d)
		talk(t, other)
		began := time.Now()
		if n, err := slow.Write([]byte("CONNECT {}\r\n")); err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(writePatience - time.Millisecond)
		synctest.Wait()
		if _, err := slow.Write([]byte("PING\r\n")); err != nil {
			t.Errorf("it is cut off after %v: %v", time.Since(began), err)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if _, err := slow.Write([]byte("PING\r\n")); err == nil {
			t.Errorf("a guest that does not read for %v is not cut off", time.Since(began))
		}
		talk(t, other)

		many := enter(d)
		began = time.Now()
		many.say("CONNECT {}\r\nSUB _STAN.acks.a 1\r\n")
		one, sent := publication("g", "x", "_STAN.acks.a"), 0
		for ; sent < 100*maxPending; sent++ {
			if _, err := many.Write(one); err != nil {
				break
			}
		}
		if answers := sent * len("MSG _STAN.acks.a 1 3\r\n___\r\n"); answers > 2*maxPending || time.Since(began) > 0 {
			t.Errorf("%d bytes of answers wait after %v", answers, time.Since(began))
		}
		talk(t, other)
		synctest.Wait()
		if len(d.guests) != 1 {
			t.Errorf("%d guests are left", len(d.guests))
		}
	})
}

// talk publishes one message and reads its answer.
func talk(t *testing.T, r *raw) {
	t.Helper()
	began := time.Now()
	if _, err := r.Write([]byte("CONNECT {}\r\n")); err != nil {
		t.Fatal(err)
	}
	go r.say("SUB _STAN.acks.a 7\r\n" + string(publication("g", "x", "_STAN.acks.a")))
	for {
		text := r.line()
		if strings.HasPrefix(text, "INFO ") {
			continue
		}
		if !strings.HasPrefix(text, "MSG _STAN.acks.a 7 ") || time.Since(began) > 0 {
			t.Errorf("answered %q after %v", text, time.Since(began))
		}
		return
	}
}

// A Door that closes writes the answers that have been given, unless a guest does not read.
func TestCloseWritesAnswers(t *testing.T) {
	inside(t, stored, func(t *testing.T, d *Door) {
		reads, silent := enter(d), enter(d)
		for _, g := range []*raw{reads, silent} {
			g.line()
			g.say("CONNECT {}\r\nSUB _STAN.acks.a 7\r\n" + string(publication("g", "x", "_STAN.acks.a")))
		}
		synctest.Wait()
		began, closed := time.Now(), make(chan struct{})
		go func() {
			d.Close()
			close(closed)
		}()
		synctest.Wait()
		if text := reads.line(); !strings.HasPrefix(text, "MSG _STAN.acks.a 7 ") {
			t.Errorf("the answer is %q", text)
		}
		<-closed
		if took := time.Since(began); took != closePatience {
			t.Errorf("a guest that does not read holds the Door open for %v", took)
		}
	})
}

// A guest that says nothing, or that is gone without a word, is cut off.
func TestSilentGuest(t *testing.T) {
	inside(t, stored, func(t *testing.T, d *Door) {
		silent := enter(d)
		began := time.Now()
		silent.line()
		if text := silent.line(); text != "-ERR 'Authentication Timeout'" || time.Since(began) != greetPatience {
			t.Errorf("one that says nothing is told %q after %v", text, time.Since(began))
		}
		gone, alive := enter(d), enter(d)
		gone.say("CONNECT {}\r\n")
		alive.say("CONNECT {}\r\n")
		began = time.Now()
		go func() {
			for alive.line() != io.EOF.Error() {
				alive.say("PONG\r\n")
			}
		}()
		for _, want := range []string{"INFO", "PING", "PING", "-ERR 'Stale Connection'"} {
			if text := gone.line(); !strings.HasPrefix(text, want) {
				t.Errorf("one that does not answer is told %q, want %q", text, want)
			}
		}
		if took := time.Since(began); took > (maxPings+1)*pingInterval {
			t.Errorf("it is cut off after %v", took)
		}
		time.Sleep(10 * pingInterval)
		synctest.Wait()
		if len(d.guests) != 1 {
			t.Errorf("%d guests are left", len(d.guests))
		}
	})
}

// If messages are not stored, a guest sends no more than the limit. Others can still send.
func TestBackPressure(t *testing.T) {
	for _, size := range []int{1, maxPayload / 2} {
		var mu sync.Mutex
		var waiting []func(error)
		inside(t, func(data []byte, done func(error)) {
			if string(data) == "x" {
				done(nil)
				return
			}
			mu.Lock()
			waiting = append(waiting, done)
			mu.Unlock()
		}, func(t *testing.T, d *Door) {
			busy, other := enter(d), enter(d)
			go io.Copy(io.Discard, busy)
			busy.say("CONNECT {}\r\n")
			go func() {
				one := publication("g", strings.Repeat("y", size), "_STAN.acks.a")
				for {
					if _, err := busy.Write(one); err != nil {
						return
					}
				}
			}()
			synctest.Wait()
			want := min(maxFlying, maxFlyingBytes/size)
			mu.Lock()
			if n := len(waiting); n > want || n < want-1 {
				t.Errorf("%d messages of %d bytes are in the air", n, size)
			}
			released := waiting
			waiting = nil
			mu.Unlock()
			talk(t, other)
			for _, done := range released {
				done(nil)
			}
			synctest.Wait()
			mu.Lock()
			if len(waiting) < len(released)-1 {
				t.Errorf("%d more come when %d are stored", len(waiting), len(released))
			}
			mu.Unlock()
		})
	}
}

// What NATS' protocol forbids ends a connection with NATS' own error.
func TestProtocol(t *testing.T) {
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\n":         "-ERR 'Unknown Protocol Operation'",
		"SUB _INBOX.a 1\r\n":         "-ERR 'Unknown Protocol Operation'", // Before CONNECT.
		"CONNECT {\r\n":              "-ERR 'Parser Error'",
		"CONNECT {}\r\nPUB\r\n":      "-ERR 'Parser Error'",
		"CONNECT {}\r\nPUB a -1\r\n": "-ERR 'Parser Error'",
		"CONNECT {}\r\nPUB _STAN.ping.faas-cluster 1\r\nabcd":   "-ERR 'Parser Error'",
		"CONNECT {}\r\nPUB _STAN.ping.faas-cluster 1048577\r\n": "-ERR 'Maximum Payload Violation'",
		"CONNECT {}\r\nHPUB a 1 1\r\n":                          "-ERR 'Unknown Protocol Operation'",
		"CONNECT {}\r\nSUB " + strings.Repeat("a", maxLine):     "-ERR 'maximum control line exceeded'",
		"CONNECT {\"verbose\":true}\r\nPING\r\n":                "+OK",
		"CONNECT {}\r\nPING\r\n":                                "PONG",
	} {
		inside(t, stored, func(t *testing.T, d *Door) {
			r := enter(d)
			go r.say(text)
			r.line()
			if got := r.line(); got != want {
				t.Errorf("%q is answered %q, want %q", text[:min(len(text), 60)], got, want)
			}
		})
	}
	inside(t, stored, func(t *testing.T, d *Door) {
		r := enter(d)
		go func() {
			r.say("CONNECT {}\r\n")
			for i := range maxSubscriptions + 1 {
				r.say(fmt.Sprintf("SUB _INBOX.a%d %d\r\n", i, i))
			}
			r.say("UNSUB 0\r\nSUB _INBOX.b 99\r\nPING\r\n")
		}()
		r.line()
		for _, want := range []string{"-ERR 'maximum subscriptions exceeded'", "PONG"} {
			if got := r.line(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

// An answer goes to the subscriptions of the guest that asked, as often as they say.
func TestAnswers(t *testing.T) {
	inside(t, stored, func(t *testing.T, d *Door) {
		other, r := enter(d), enter(d)
		other.say("CONNECT {}\r\nSUB _INBOX.r.* 1\r\nSUB _STAN.acks.r 2\r\n")
		other.line()
		go func() {
			r.say("CONNECT {}\r\nSUB _INBOX.r.* 1\r\nUNSUB 1 2\r\n")
			for _, reply := range []string{"_INBOX.r.1", "_INBOX.r.2", "_INBOX.r.3", "_INBOX.other", ""} {
				r.Write(publication("g", "x", reply))
			}
			r.say("PING\r\n")
		}()
		r.line()
		for _, want := range []string{"MSG _INBOX.r.1 1 3", "MSG _INBOX.r.2 1 3", "PONG"} {
			if got := r.line(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		other.say("PING\r\n")
		if got := other.line(); got != "PONG" {
			t.Errorf("another guest receives %q", got)
		}
	})
}

func TestAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{
		"nonsense": "HOST:PORT", "127.0.0.1:x": "port", "127.0.0.1:65536": "port", "127.0.0.1:0": "",
		l.Addr().String(): "set --nats-listen to another address or off",
	} {
		if err := CheckAddress(address); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := Listen(l.Addr().String(), Options{}); err == nil || !strings.Contains(err.Error(), "set --nats-listen") {
		t.Errorf("a port that is taken: %v", err)
	}
}

// FuzzGuest: whatever a guest sends, its connection ends after it, and the Door serves the
// next one.
func FuzzGuest(f *testing.F) {
	f.Add([]byte("CONNECT {}\r\nSUB _INBOX.a.* 1\r\nPING\r\nUNSUB 1 2\r\n"))
	f.Add(append([]byte("CONNECT {}\r\nSUB _STAN.acks.a q 1\r\n"), publication("g", "x", "_STAN.acks.a")...))
	f.Add([]byte("CONNECT {}\r\nPUB _STAN.pub.faas-cluster.faas-request 99999999999\r\n"))
	_, d := open(f, stored)
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("tcp", d.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		go func() {
			_, _ = conn.Write(data)
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		// A guest that sends on after it was cut off gets no orderly end.
		_, err = io.Copy(io.Discard, conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("a guest that has sent everything is not cut off")
		}
	})
}
