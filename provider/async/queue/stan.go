package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/stan.go/pb"
	"github.com/rs/zerolog"
)

// The stock gateway's default names.
const (
	DefaultCluster = "faas-cluster"
	DefaultChannel = "faas-request"
)

// protocol is the version of NATS Streaming in which clients send the connection's id.
const protocol = 1

// pendingBytes is the most bytes of messages that may wait for Take. Further messages are
// dropped, and their publishers time out.
const pendingBytes = 256 << 20

// group is the queue group of all replicas that share a NATS server: each message goes to
// one of them.
const group = "faas-infer"

// StanOptions configures a StanService.
type StanOptions struct {
	// Cluster and Channel are the gateway's faas_nats_cluster_name and
	// faas_nats_channel, the defaults above if empty.
	Cluster, Channel string
	// Take stores a message and calls done once, with nil when it is stored. It must
	// not block for long. It owns data.
	Take   func(data []byte, done func(error))
	Logger zerolog.Logger
}

// StanService answers publishing clients of NATS Streaming until Close.
type StanService struct {
	options       StanOptions
	conn          *nats.Conn
	subscriptions []*nats.Subscription
	log           zerolog.Logger
	once          sync.Once
}

// ServeStan begins to answer clients on a connection.
func ServeStan(conn *nats.Conn, o StanOptions) (*StanService, error) {
	if o.Cluster == "" {
		o.Cluster = DefaultCluster
	}
	if o.Channel == "" {
		o.Channel = DefaultChannel
	}
	if err := checkNames(o); err != nil {
		return nil, err
	}
	s := &StanService{options: o, conn: conn, log: o.Logger}
	for subject, answer := range map[string]nats.MsgHandler{
		"_STAN.discover." + o.Cluster: s.connect,
		s.subject("pub") + ".>":       s.publish,
		s.subject("ping"):             s.ping,
		s.subject("close"):            s.disconnect,
		s.subject("sub"):              s.subscribe,
		s.subject("unsub"):            s.subscribe,
		s.subject("subclose"):         s.subscribe,
	} {
		sub, err := conn.QueueSubscribe(subject, group, answer)
		if err == nil {
			s.subscriptions = append(s.subscriptions, sub)
			err = sub.SetPendingLimits(-1, pendingBytes)
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("answer NATS Streaming at %s: %w", subject, err)
		}
	}
	return s, nil
}

func checkNames(o StanOptions) error {
	for _, r := range o.Cluster {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r) {
			return fmt.Errorf("the NATS Streaming cluster %q must be letters, digits, hyphens and underscores", o.Cluster)
		}
	}
	if strings.ContainsAny(o.Channel, " \t\r\n*>") || strings.HasPrefix(o.Channel, ".") || strings.HasSuffix(o.Channel, ".") || strings.Contains(o.Channel, "..") {
		return fmt.Errorf("the NATS Streaming channel %q must be words separated by dots, without * and >", o.Channel)
	}
	return nil
}

func (s *StanService) subject(what string) string { return "_STAN." + what + "." + s.options.Cluster }

// Close stops answering.
func (s *StanService) Close() {
	s.once.Do(func() {
		for _, sub := range s.subscriptions {
			// It fails if the connection is closed, which has the same effect.
			_ = sub.Unsubscribe()
		}
	})
}

// Leave lets the other replicas of the group take all further messages. It returns when
// the messages that have come are handled, or when ctx ends. Call it before Close.
func (s *StanService) Leave(ctx context.Context) {
	for _, sub := range s.subscriptions {
		// It fails if the connection is closed, and then no message comes any more.
		_ = sub.Drain()
	}
	ticks := time.NewTicker(leavePause)
	defer ticks.Stop()
	for slices.ContainsFunc(s.subscriptions, (*nats.Subscription).IsValid) && s.conn.IsConnected() {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// leavePause is the time between two checks of Leave.
const leavePause = 10 * time.Millisecond

// connect answers a client that looks for the cluster.
func (s *StanService) connect(m *nats.Msg) {
	var r pb.ConnectRequest
	answer := &pb.ConnectResponse{
		PubPrefix: s.subject("pub"), SubRequests: s.subject("sub"), UnsubRequests: s.subject("unsub"),
		SubCloseRequests: s.subject("subclose"), CloseRequests: s.subject("close"), PingRequests: s.subject("ping"),
		Protocol: protocol,
	}
	switch err := stanUnmarshal(&r, m.Data); {
	case err != nil:
		answer = &pb.ConnectResponse{Error: fmt.Sprintf("stan: malformed connect request: %v", err)}
	case r.ClientID == "":
		answer = &pb.ConnectResponse{Error: "stan: the connect request must give a client id"}
	default:
		s.log.Info().Str("client", clip(r.ClientID)).Msg("a gateway has connected to the queue")
	}
	s.reply(m, answer)
}

// ping answers a client that asks whether it is still connected.
func (s *StanService) ping(m *nats.Msg) {
	var r pb.Ping
	if err := stanUnmarshal(&r, m.Data); err != nil || len(r.ConnID) == 0 {
		s.reply(m, &pb.PingResponse{Error: "stan: a ping must carry its connection's id; connect again"})
		return
	}
	// An empty answer means that all is well.
	s.reply(m, &pb.PingResponse{})
}

// disconnect answers a client that leaves.
func (s *StanService) disconnect(m *nats.Msg) {
	var r pb.CloseRequest
	answer := &pb.CloseResponse{}
	if err := stanUnmarshal(&r, m.Data); err != nil || r.ClientID == "" {
		answer.Error = "stan: a close request must name its client"
	}
	s.reply(m, answer)
}

// subscribe refuses a subscription, or the end of one.
func (s *StanService) subscribe(m *nats.Msg) {
	s.reply(m, &pb.SubscriptionResponse{Error: "stan: faas-infer takes the messages itself, there are no subscriptions; do not run a queue-worker beside it"})
}

// publish takes a message.
func (s *StanService) publish(m *nats.Msg) {
	p := &pb.PubMsg{}
	if err := stanUnmarshal(p, m.Data); err != nil || p.Guid == "" {
		// The client cannot match an answer without the message's id, so it gets none
		// and times out.
		s.log.Warn().Err(err).Msg("a malformed NATS Streaming message was dropped")
		return
	}
	if p.Subject != s.options.Channel || m.Subject != s.subject("pub")+"."+p.Subject {
		s.acknowledge(m, p.Guid, fmt.Errorf("stan: faas-infer takes messages on channel %q only, this one is for %q", s.options.Channel, clip(p.Subject)))
		return
	}
	reply, guid := m.Reply, p.Guid
	s.options.Take(p.Data, func(err error) { s.acknowledge(&nats.Msg{Reply: reply}, guid, err) })
}

func (s *StanService) acknowledge(m *nats.Msg, guid string, err error) {
	answer := &pb.PubAck{Guid: guid}
	if err != nil {
		answer.Error = err.Error()
	}
	s.reply(m, answer)
}

// reply answers a message. The connection buffers writes in short succession, so many
// acknowledgements go out together.
func (s *StanService) reply(m *nats.Msg, answer interface{ Marshal() ([]byte, error) }) {
	if m.Reply == "" {
		return
	}
	data, err := answer.Marshal()
	if err == nil {
		err = s.conn.Publish(m.Reply, data)
	}
	// While the connection is away there is no way to answer; the client times out.
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrReconnectBufExceeded) {
		s.log.Warn().Err(err).Msg("a NATS Streaming client was not answered")
	}
}

// stanUnmarshal reads a client's message. The parser may panic on malformed ones.
func stanUnmarshal(into interface{ Unmarshal([]byte) error }, data []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed: %v", r)
		}
	}()
	return into.Unmarshal(data)
}
