// Package stan answers the publishing clients of NATS Streaming, such as the stock
// OpenFaaS gateway: at a listener of its own ([Listen]), or on a connection to a NATS
// server ([Serve]). It stores nothing; it hands each message to Options.Take. Begin
// reading at [service.answer], then [Door].
//
// NATS Streaming's server is no longer maintained. Only its publishing side is answered:
// connect, ping, close, publish. Subscriptions are refused. The package keeps no state
// about clients and gives all of them the same subjects, so a gateway does not notice that
// a provider was killed and started again.
//
// # Guests
//
// A client that connects over the network has no password, so it may be any program of the
// machine. It must not reach the NATS server that holds the queue: whoever subscribes to
// _INBOX.> there receives every queued request, headers included. A NATS server cannot
// admit such a client safely. The client chooses the subjects of its answers itself, so no
// list of permissions can tell one client's subjects from another's. And a server has one
// limit of pending bytes for all clients: the provider needs hundreds of MiB, a client a
// few kB.
//
// So the [Door] is not a NATS server. It understands the few words of NATS' protocol that
// a gateway's library sends. There is nothing behind it to subscribe to. A guest may
// publish the messages above, and an answer goes to the connection that asked and to no
// other.
package stan

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/stan.go/pb"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Off is the address of a Door that does not exist.
const Off = "off"

// The stock gateway's default names.
const (
	DefaultCluster = "faas-cluster"
	DefaultChannel = "faas-request"
)

// protocol is the version of NATS Streaming in which clients send the connection's id.
const protocol = 1

// Options says how clients are answered.
type Options struct {
	// Cluster and Channel are the gateway's faas_nats_cluster_name and
	// faas_nats_channel, the defaults above if empty.
	Cluster, Channel string
	// Take stores a message and calls done once, with nil when it is stored. It must
	// not block for long. It owns data.
	Take   func(data []byte, done func(error))
	Logger zerolog.Logger
}

// service answers clients, whatever connection they come on.
type service struct {
	options Options
	// log writes at most 5 lines a second, because any client can cause them.
	log zerolog.Logger
}

func newService(o Options) (*service, error) {
	if o.Cluster == "" {
		o.Cluster = DefaultCluster
	}
	if o.Channel == "" {
		o.Channel = DefaultChannel
	}
	for _, r := range o.Cluster {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r) {
			return nil, fmt.Errorf("the NATS Streaming cluster %q must be letters, digits, hyphens and underscores", o.Cluster)
		}
	}
	if strings.ContainsAny(o.Channel, " \t\r\n*>") || strings.HasPrefix(o.Channel, ".") || strings.HasSuffix(o.Channel, ".") || strings.Contains(o.Channel, "..") {
		return nil, fmt.Errorf("the NATS Streaming channel %q must be words separated by dots, without * and >", o.Channel)
	}
	return &service{options: o, log: o.Logger.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Second})}, nil
}

// subject returns the subject of one kind of message.
func (s *service) subject(kind string) string { return "_STAN." + kind + "." + s.options.Cluster }

// refused are the kinds of messages that ask for a subscription, or for the end of one.
var refused = []string{"sub", "unsub", "subclose"}

// kind returns the kind of the messages on a subject, "" if clients send none there.
func (s *service) kind(subject string) string {
	rest, _ := strings.CutPrefix(subject, "_STAN.")
	kind, rest, _ := strings.Cut(rest, ".")
	switch kind {
	case "discover", "ping", "close", "sub", "unsub", "subclose":
		if rest != s.options.Cluster {
			return ""
		}
	case "pub":
		if !strings.HasPrefix(rest, s.options.Cluster+".") {
			return ""
		}
	default:
		return ""
	}
	return kind
}

// answer answers a client's message. It calls done once, perhaps later, with the answer,
// or with nil if there is none. It copies what it keeps of data.
func (s *service) answer(subject string, data []byte, done func(answer []byte)) {
	var answer message
	switch s.kind(subject) {
	case "discover":
		answer = s.connect(data)
	case "ping":
		answer = ping(data)
	case "close":
		answer = disconnect(data)
	case "pub":
		s.publish(subject, data, done)
		return
	case "":
		done(nil)
		return
	default:
		answer = &pb.SubscriptionResponse{Error: "stan: faas-infer takes the messages itself, there are no subscriptions; do not run a queue-worker beside it"}
	}
	done(marshal(answer))
}

// message is a message of NATS Streaming's protocol.
type message interface{ Marshal() ([]byte, error) }

func marshal(m message) []byte {
	data, err := m.Marshal()
	if err != nil { // The messages of this package can be written.
		return nil
	}
	return data
}

// connect answers a client that looks for the cluster.
func (s *service) connect(data []byte) message {
	var r pb.ConnectRequest
	if err := unmarshal(&r, data); err != nil {
		return &pb.ConnectResponse{Error: fmt.Sprintf("stan: malformed connect request: %v", err)}
	}
	if r.ClientID == "" {
		return &pb.ConnectResponse{Error: "stan: the connect request must give a client id"}
	}
	s.log.Info().Str("client", web.Clip(r.ClientID)).Msg("a gateway has connected to the queue")
	return &pb.ConnectResponse{
		PubPrefix: s.subject("pub"), SubRequests: s.subject("sub"), UnsubRequests: s.subject("unsub"),
		SubCloseRequests: s.subject("subclose"), CloseRequests: s.subject("close"), PingRequests: s.subject("ping"),
		Protocol: protocol,
	}
}

// ping answers a client that asks whether it is still connected.
func ping(data []byte) message {
	var r pb.Ping
	if err := unmarshal(&r, data); err != nil || len(r.ConnID) == 0 {
		return &pb.PingResponse{Error: "stan: a ping must carry its connection's id; connect again"}
	}
	// An empty answer means that all is well.
	return &pb.PingResponse{}
}

// disconnect answers a client that leaves.
func disconnect(data []byte) message {
	var r pb.CloseRequest
	answer := &pb.CloseResponse{}
	if err := unmarshal(&r, data); err != nil || r.ClientID == "" {
		answer.Error = "stan: a close request must name its client"
	}
	return answer
}

// publish takes a message.
func (s *service) publish(subject string, data []byte, done func(answer []byte)) {
	p := &pb.PubMsg{}
	if err := unmarshal(p, data); err != nil || p.Guid == "" {
		// The client cannot match an answer without the message's id, so it gets none
		// and times out.
		s.log.Warn().Err(err).Msg("a malformed NATS Streaming message was dropped")
		done(nil)
		return
	}
	guid := p.Guid
	acknowledge := func(err error) {
		answer := &pb.PubAck{Guid: guid}
		if err != nil {
			answer.Error = err.Error()
		}
		done(marshal(answer))
	}
	if p.Subject != s.options.Channel || subject != s.subject("pub")+"."+p.Subject {
		acknowledge(fmt.Errorf("stan: faas-infer takes messages on channel %q only, this one is for %q", s.options.Channel, web.Clip(p.Subject)))
		return
	}
	s.options.Take(p.Data, acknowledge)
}

// unmarshal reads a client's message. The parser may panic on malformed ones.
func unmarshal(into interface{ Unmarshal([]byte) error }, data []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed: %v", r)
		}
	}()
	return into.Unmarshal(data)
}
