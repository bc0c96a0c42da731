package async

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The headers of a dead letter.
const (
	functionHeader = "Faas-Function"
	reasonHeader   = "Faas-Reason"
	detailHeader   = "Faas-Detail"
	attemptsHeader = "Faas-Attempts"
	statusHeader   = "Faas-Status"
	queuedHeader   = "Faas-Queued"
	callHeader     = "Faas-Call-Id"
	callbackHeader = "Faas-Callback"
)

// DeadLetter describes an invocation that was given up.
type DeadLetter struct {
	// Sequence is the letter's number in the stream.
	Sequence uint64 `json:"sequence"`
	// Function is the function's full name, "" if the message names none.
	Function string `json:"function,omitempty"`
	// Reason is one of the reasons of package retry, Detail a sentence.
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	// Attempts is the number of tries, Status the answer of the last one, 0 if there
	// was none.
	Attempts int `json:"attempts"`
	Status   int `json:"status,omitempty"`
	// Queued is the time when the request was accepted, Time when it was given up.
	Queued time.Time `json:"queued"`
	Time   time.Time `json:"time"`
	CallID string    `json:"callId,omitempty"`
	// Callback is the callback URL without a password, "" if there is none.
	Callback string `json:"callback,omitempty"`
	// Size is the size of the message in bytes.
	Size int `json:"size"`
	// ID is the ID by which clients may ask for the request, "" if nobody may.
	ID string `json:"id,omitempty"`
}

// ErrNoDeadLetter is returned for a letter that does not exist.
var ErrNoDeadLetter = errors.New("there is no such dead letter")

// DeadLetters is the stream of dead letters.
type DeadLetters struct {
	js      jetstream.JetStream
	stream  string
	subject string
}

// NewDeadLetters returns the dead letters in a stream whose subjects begin with subject.
func NewDeadLetters(js jetstream.JetStream, stream, subject string) *DeadLetters {
	return &DeadLetters{js: js, stream: stream, subject: subject}
}

// Put stores a message as a letter and returns when it is stored. A second message with
// the same id is not stored, for as long as the stream remembers ids. suffix is the end
// of the subject, for example NAMESPACE.NAME.
func (b *DeadLetters) Put(ctx context.Context, id, suffix string, l DeadLetter, data []byte) error {
	m := &nats.Msg{Subject: b.subject + suffix, Data: data, Header: nats.Header{}}
	for name, value := range map[string]string{
		functionHeader: l.Function, reasonHeader: l.Reason, detailHeader: oneLine(l.Detail), attemptsHeader: strconv.Itoa(l.Attempts),
		statusHeader: strconv.Itoa(l.Status), queuedHeader: l.Queued.UTC().Format(time.RFC3339Nano),
		callHeader: oneLine(l.CallID), callbackHeader: oneLine(l.Callback), idHeader: l.ID,
	} {
		if value != "" {
			m.Header.Set(name, value)
		}
	}
	_, err := b.js.PublishMsg(ctx, m, jetstream.WithMsgID(id))
	return err
}

// oneLine makes any text a valid header value of at most 1000 bytes.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 1000 {
		s = strings.ToValidUTF8(s[:1000], "") + "…"
	}
	return s
}

// letter reads a letter's headers.
func letter(seq uint64, at time.Time, h nats.Header, size int) DeadLetter {
	l := DeadLetter{Sequence: seq, Time: at, Function: h.Get(functionHeader), Reason: h.Get(reasonHeader), Detail: h.Get(detailHeader),
		CallID: h.Get(callHeader), Callback: h.Get(callbackHeader), Size: size, ID: h.Get(idHeader)}
	// Messages that another program has put into the stream lack these headers.
	l.Attempts, _ = strconv.Atoi(h.Get(attemptsHeader))
	l.Status, _ = strconv.Atoi(h.Get(statusHeader))
	l.Queued, _ = time.Parse(time.RFC3339Nano, h.Get(queuedHeader))
	return l
}

// Count returns the number of letters.
func (b *DeadLetters) Count(ctx context.Context) (uint64, error) {
	return messages(ctx, b.js, b.stream)
}

// List returns up to limit letters whose sequence is at least from, the oldest first.
func (b *DeadLetters) List(ctx context.Context, from uint64, limit int) ([]DeadLetter, error) {
	count, err := b.Count(ctx)
	if err != nil || count == 0 || limit < 1 {
		return []DeadLetter{}, err
	}
	config := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, InactiveThreshold: time.Minute, MemoryStorage: true}
	if from > 1 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	c, err := b.js.CreateConsumer(ctx, b.stream, config)
	if err != nil {
		return nil, err
	}
	// The server would delete the consumer after a minute by itself.
	defer func() { _ = b.js.DeleteConsumer(context.WithoutCancel(ctx), b.stream, c.CachedInfo().Name) }()
	batch, err := c.FetchNoWait(limit)
	if err != nil {
		return nil, err
	}
	out := []DeadLetter{}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(m.Headers().Get("Nats-Msg-Size"))
		out = append(out, letter(meta.Sequence.Stream, meta.Timestamp, m.Headers(), size))
	}
	return out, batch.Error()
}

// Get returns a letter and its message.
func (b *DeadLetters) Get(ctx context.Context, seq uint64) (DeadLetter, []byte, error) {
	s, err := b.js.Stream(ctx, b.stream)
	if err != nil {
		return DeadLetter{}, nil, err
	}
	return get(ctx, s, seq)
}

func get(ctx context.Context, s jetstream.Stream, seq uint64) (DeadLetter, []byte, error) {
	if seq == 0 {
		return DeadLetter{}, nil, ErrNoDeadLetter
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return DeadLetter{}, nil, ErrNoDeadLetter
	}
	if err != nil {
		return DeadLetter{}, nil, err
	}
	return letter(m.Sequence, m.Time, m.Header, len(m.Data)), m.Data, nil
}

// Purge removes all letters and returns how many there were.
func (b *DeadLetters) Purge(ctx context.Context) (uint64, error) {
	s, err := b.js.Stream(ctx, b.stream)
	if err != nil {
		return 0, err
	}
	n := s.CachedInfo().State.Msgs
	return n, s.Purge(ctx)
}

// Remove removes one letter.
func (b *DeadLetters) Remove(ctx context.Context, seq uint64) error {
	s, err := b.js.Stream(ctx, b.stream)
	if err != nil {
		return err
	}
	return remove(ctx, s, seq)
}

func remove(ctx context.Context, s jetstream.Stream, seq uint64) error {
	err := s.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return ErrNoDeadLetter
	}
	return err
}

// Sender stores a letter's message in the queue again and returns when it is stored. It
// does not store a second message with the same id.
type Sender func(ctx context.Context, id string, l DeadLetter, data []byte) error

// Replayed is the outcome of a replay.
type Replayed struct {
	// Replayed is the number of letters that are in the queue again.
	Replayed int `json:"replayed"`
	// Failed are the letters that stayed dead letters.
	Failed []ReplayFailure `json:"failed,omitempty"`
}

// ReplayFailure is a letter that was not replayed, with the reason.
type ReplayFailure struct {
	Sequence uint64 `json:"sequence"`
	Error    string `json:"error"`
}

// Replay sends letters to the queue again: those named, or all present ones if sequences
// is nil. It removes each letter after it is stored in the queue. If the provider is
// killed in between, the next replay sends the letter with the same id, and it is not
// stored twice.
func (b *DeadLetters) Replay(ctx context.Context, sequences []uint64, send Sender) (Replayed, error) {
	s, err := b.js.Stream(ctx, b.stream)
	if err != nil {
		return Replayed{}, err
	}
	var out Replayed
	created := s.CachedInfo().Created.UnixNano()
	one := func(seq uint64) error {
		l, data, err := get(ctx, s, seq)
		if err == nil {
			// A stream that is created again counts from 1, so the id has its creation time.
			err = send(ctx, fmt.Sprintf("replay-%d-%d", created, seq), l, data)
		}
		if err == nil {
			err = remove(ctx, s, seq)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			out.Failed = append(out.Failed, ReplayFailure{seq, err.Error()})
			return nil
		}
		out.Replayed++
		return nil
	}
	if sequences != nil {
		for _, seq := range sequences {
			if err := one(seq); err != nil {
				return out, err
			}
		}
		return out, nil
	}
	return out, b.each(ctx, s.CachedInfo().State, one)
}

// each calls do with the sequence of every letter that the stream had in state.
func (b *DeadLetters) each(ctx context.Context, state jetstream.StreamState, do func(uint64) error) error {
	for from := state.FirstSeq; from <= state.LastSeq; {
		letters, err := b.List(ctx, from, 256)
		if err != nil || len(letters) == 0 {
			return err
		}
		for _, l := range letters {
			if l.Sequence > state.LastSeq {
				return nil
			}
			if err := do(l.Sequence); err != nil {
				return err
			}
		}
		from = letters[len(letters)-1].Sequence + 1
	}
	return nil
}
