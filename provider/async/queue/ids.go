package queue

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The streams of what is known of requests that clients can ask for, and of kept results. A
// subject ends in the request's ID.
const (
	StateStream    = "FAAS_INFER_ASYNC_STATES"
	StateSubjects  = "faas-infer.async.state."
	ResultStream   = "FAAS_INFER_ASYNC_RESULTS"
	ResultSubjects = "faas-infer.async.result."
)

// keyName is the name of the IDs' key in the metadata of StateStream. All replicas of the provider
// use the same key.
const keyName = "faas-infer-ids"

// idText writes an ID's seal: 26 characters for 128 bits.
var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ID returns the ID under which clients may ask for a queued message, by its number in the
// stream. Nobody can guess it without the key. It is "" if the server has no room for states.
func (b *Broker) ID(sequence uint64) string {
	key := b.ids.Load()
	if key == nil {
		return ""
	}
	return strconv.FormatUint(sequence, 36) + "-" + idText.EncodeToString(seal(*key, sequence))
}

// Sequence returns the number of the message with an ID, and false if this queue has not made
// the ID.
func (b *Broker) Sequence(id string) (uint64, bool) {
	text, _, _ := strings.Cut(id, "-")
	sequence, err := strconv.ParseUint(text, 36, 64)
	made := b.ID(sequence)
	return sequence, err == nil && made != "" && hmac.Equal([]byte(made), []byte(id))
}

func seal(key []byte, sequence uint64) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, sequence)) // It returns no error.
	return h.Sum(nil)[:16]
}

// following returns the configurations of the streams of states and results. They hold what
// may be lost, so they begin small, and old states make room for new ones.
func following(o BrokerOptions) ([]jetstream.StreamConfig, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("key of the IDs: %w", err)
	}
	states := jetstream.StreamConfig{
		Name: StateStream, Description: "faas-infer: what became of asynchronous invocations",
		Subjects: []string{StateSubjects + ">"},
		Discard:  jetstream.DiscardOld, MaxBytes: maxStates, MaxAge: StateAge, MaxMsgsPerSubject: 1, AllowDirect: true,
		Storage: jetstream.FileStorage, Replicas: o.Replicas, Metadata: map[string]string{keyName: hex.EncodeToString(key)},
	}
	all := []jetstream.StreamConfig{states}
	if o.MaxResults > 0 {
		results := states
		results.Name, results.Description = ResultStream, "faas-infer: results that clients asked to keep"
		results.Subjects = []string{ResultSubjects + ">"}
		// A full stream refuses new results: those that it has were promised.
		results.Discard, results.MaxBytes, results.MaxMsgs = jetstream.DiscardNew, o.MaxResults, o.MaxResultCount
		// An older server keeps each result for MaxKeep.
		results.MaxAge, results.AllowMsgTTL, results.Metadata = MaxKeep, true, nil
		all = append(all, results)
	}
	return all, nil
}

// followPatience is how long the server may take for the streams of states and results in one try.
const followPatience = 5 * time.Second

// follow creates the streams of states and results, or changes them. They hold what may be lost: without
// them the queue works, and clients cannot ask for requests. maintain tries again after an error.
func follow(ctx context.Context, b *Broker) {
	trying, cancel := context.WithTimeout(ctx, followPatience)
	defer cancel()
	begun := time.Now()
	err := makeFollowing(trying, b)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // The broker closes.
	}
	switch before := b.lacking; {
	case err != nil && (before == nil || before.Error() != err.Error()):
		b.log.Warn().Err(err).
			Msg("clients cannot ask for asynchronous requests or their results for now; the requests are executed")
	case err == nil && before != nil:
		b.log.Info().Msg("clients can ask for asynchronous requests and their results again")
	}
	// A server that does not answer takes up a tenth of the time at most.
	b.lacking, b.followAt = err, time.Now().Add(max(lookInterval, 10*time.Since(begun)))
	if b.followedSince.IsZero() {
		b.followedSince = begun
	}
	if b.ids.Load() != nil || hopeless(err, time.Since(b.followedSince)) {
		b.settled.Store(true)
	}
}

// keyPatience is how long requests that clients may ask for wait for the key of the IDs after the provider has
// started. A replica without the key would execute them, but could not store what became of them.
const keyPatience = time.Minute

// hopeless reports whether there will be no key soon: after an error for so long, or one of the server's
// that stays, or without an error, because an administrator has removed the key.
func hopeless(err error, since time.Duration) bool {
	var refused *jetstream.APIError
	return err == nil || since > keyPatience || tooLarge(err) ||
		errors.As(err, &refused) && refused.Code == http.StatusBadRequest
}

// Settled reports whether it is known if requests have IDs. Otherwise [Broker.ID] is "" and may have another
// value soon.
func (b *Broker) Settled() bool { return b.settled.Load() }

// makeFollowing creates the streams of states and results, or changes them, and loads the key of the IDs.
func makeFollowing(ctx context.Context, b *Broker) error {
	all, err := following(b.options)
	for _, s := range all {
		made := makeOne(ctx, b.js, s)
		if made != nil {
			made = explain(b.options, s.Name, made)
		}
		if s.Name == StateStream {
			if key := loadKey(ctx, b); made == nil {
				made = key
			}
		}
		err = errors.Join(err, made)
	}
	return err
}

// makeOne creates a stream, as far as half its size, a quarter and so on where there is less room, or
// changes one that exists. Without room for more, that keeps its size.
func makeOne(ctx context.Context, js jetstream.JetStream, s jetstream.StreamConfig) error {
	found, err := js.Stream(ctx, s.Name)
	if err == nil {
		is := found.CachedInfo().Config
		for _, size := range []int64{s.MaxBytes, is.MaxBytes} {
			s.MaxBytes = size
			to, differs := adapted(is, s)
			if !differs {
				return nil
			}
			if _, err = js.UpdateStream(ctx, to); !tooLarge(err) {
				break
			}
		}
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	for range smallest {
		// Unlike an update, it changes no stream, and no key, that another replica has just made.
		if _, err = js.CreateStream(ctx, s); !tooLarge(err) {
			break
		}
		s.MaxBytes /= 2
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil
	}
	return err
}

// adapted returns the configuration of a stream of states or results that exists, changed to what is wanted
// now, and whether that differs. Replicas change only to a number that is given.
func adapted(is, want jetstream.StreamConfig) (to jetstream.StreamConfig, differs bool) {
	to = is
	to.MaxBytes, to.MaxMsgs = want.MaxBytes, want.MaxMsgs
	// NATS before 2.11 has ignored it.
	to.AllowMsgTTL = is.AllowMsgTTL || want.AllowMsgTTL
	if want.Replicas > 0 {
		to.Replicas = want.Replicas
	}
	return to, to.MaxBytes != is.MaxBytes || max(to.MaxMsgs, 0) != max(is.MaxMsgs, 0) ||
		to.AllowMsgTTL != is.AllowMsgTTL || to.Replicas != is.Replicas
}

// loadKey reads the key of the IDs. The work stream's time of creation is part of it, because another
// stream would count its messages from 1 again.
func loadKey(ctx context.Context, b *Broker) error {
	states, err := b.js.Stream(ctx, StateStream)
	if err != nil {
		return explain(b.options, StateStream, err)
	}
	work, err := b.js.Stream(ctx, WorkStream)
	if err != nil {
		return explain(b.options, WorkStream, err)
	}
	secret := states.CachedInfo().Config.Metadata[keyName]
	if secret == "" {
		return nil // An administrator has removed it: there are no IDs.
	}
	key := fmt.Appendf(nil, "%s %d", secret, work.CachedInfo().Created.UnixNano())
	b.ids.Store(&key)
	return nil
}
