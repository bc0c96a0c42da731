package queue

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// ask sends a pull for the messages that are there now: at most places messages and grant
// bytes, which the caller has taken from the budget.
func (w *worker) ask(places int, grant int64) error {
	subject := fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", w.pool.options.Stream, w.name)
	request := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"no_wait":true}`, places, grant)
	w.woken = false
	w.pull = pull{open: true, left: places, grant: grant, until: time.Now().Add(pullPatience)}
	if err := w.pool.options.Connection.PublishRequest(subject, w.reply, request); err != nil {
		w.endPull()
		return err
	}
	return nil
}

// endPull ends the pull and gives back the rest of its bytes.
func (w *worker) endPull() {
	if w.pull.open {
		w.pool.budget.give(w.pull.grant)
		w.pull = pull{}
	}
}

// status returns the status code of the server's answer to a pull, "" for a message.
func status(m *nats.Msg) string {
	if len(m.Data) > 0 || len(m.Header) == 0 {
		return ""
	}
	return m.Header.Get("Status")
}

// receive handles a message or a status from the server. It sets w.at to the time of the
// next pull.
func (w *worker) receive(m *nats.Msg) error {
	code := status(m)
	if code == "" {
		return w.take(m)
	}
	any := w.pull.any
	description := strings.ToLower(m.Header.Get("Description"))
	if code == "100" || strings.Contains(description, "batch completed") && !any {
		// A sign of life, or the end of the pull before. The worker has ended that one
		// already, by the number of its messages.
		return nil
	}
	w.endPull()
	switch {
	case strings.Contains(description, "batch completed"):
		w.at = time.Time{}
	case code == "404", code == "408":
		if w.pause = min(4*max(w.pause, firstPause/4), w.pool.options.Poll); w.woken {
			w.pause = 0
		}
		w.at = time.Now().Add(w.pause)
	case code == "409" && strings.Contains(description, "maxbytes"):
		// The next message is larger than the rest of the grant.
		w.at = time.Time{}
		if !any {
			// The server does not say how large it is. Asking for much more than it
			// takes could have it wait while other functions hold the rest.
			w.need = min(2*w.need, w.pool.options.MaxMessage)
		}
	case code == "409" && strings.Contains(description, "maxwaiting"):
		w.at = time.Now().Add(w.pool.options.Poll)
	default:
		return fmt.Errorf("%w: %s %s", errReopen, code, description)
	}
	return nil
}

// take counts a message and starts a goroutine that handles it.
func (w *worker) take(m *nats.Msg) error {
	sequence, deliveries, stored, err := parse(m)
	if err != nil {
		return err
	}
	length := int64(len(m.Data)) + overhead
	size := length + int64(len(m.Data))/4*3
	if w.pull.open {
		w.pull.left--
		w.pull.any = true
	}
	// A message that comes after the end of its pull has no grant.
	fromGrant := min(size, w.pull.grant)
	w.pull.grant -= fromGrant
	if fromGrant < size {
		w.pool.budget.give(fromGrant - size)
	}
	if w.pull.open && w.pull.left == 0 {
		w.endPull()
		w.at = time.Time{}
	}
	w.average = (7*w.average + length) / 8
	w.need = minGrant
	w.quiet = time.Now()
	one := &Message{Key: w.key, Data: m.Data, Header: m.Header, Sequence: sequence, Deliveries: deliveries, Stored: stored,
		worker: w, reply: m.Reply, size: size, data: size}
	w.mu.Lock()
	w.inUse.Running++
	w.inUse.Held++
	w.bytes += size
	w.working[one] = struct{}{}
	w.mu.Unlock()
	w.pool.busy.Go(func() { w.work(one) })
	return nil
}

// slack is how much later than its delay a message may come back.
const slack = 10 * time.Millisecond

// work handles one message and acknowledges it as the verdict says.
func (w *worker) work(m *Message) {
	verdict := w.handle(m)
	m.Executed()
	w.mu.Lock()
	w.inUse.Held--
	size := m.size
	w.bytes -= size
	delete(w.working, m)
	if verdict.Keep {
		w.back.add(time.Now().Add(verdict.Delay + slack))
	}
	w.mu.Unlock()
	if verdict.Keep {
		w.settle(m.reply, ackLater(verdict.Delay))
	} else {
		w.settle(m.reply, ackDone)
	}
	w.pool.budget.give(size)
	wakeUp(w.freed)
}

// handle calls the handler. If the handler panics, it logs that, and the message is tried
// again after a minute.
func (w *worker) handle(m *Message) (v Verdict) {
	defer func() {
		if r := recover(); r != nil {
			w.pool.log.Error().Interface("panic", r).Bytes("stack", debug.Stack()).Str("function", w.key).Uint64("sequence", m.Sequence).Msg("the handler of a queued request panicked; the request is tried again in a minute")
			v = Verdict{Keep: true, Delay: time.Minute}
		}
	}()
	return w.pool.options.Handle(w.pool.work, m)
}

// executed frees a message's place of execution.
func (w *worker) executed() {
	w.mu.Lock()
	w.inUse.Running--
	w.mu.Unlock()
	wakeUp(w.freed)
}

// hold takes n more bytes of the budget for a message, if the function may hold them.
func (w *worker) hold(m *Message, n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.pool.budget.extend(w.bytes, n) {
		return false
	}
	m.size += n
	w.bytes += n
	return true
}

// release is the reverse of hold but for the budget.
func (w *worker) release(m *Message, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.size -= n
	w.bytes -= n
}

// settle sends an acknowledgement to the server.
func (w *worker) settle(reply string, what []byte) {
	if err := w.pool.options.Connection.Publish(reply, what); err != nil {
		w.pool.log.Debug().Err(err).Str("function", w.key).Msg("a message could not be acknowledged and will be delivered again")
	}
}

// progress sends the server a sign of life for each message in hand.
func (w *worker) progress() {
	w.mu.Lock()
	replies := make([]string, 0, len(w.working))
	for m := range w.working {
		replies = append(replies, m.reply)
	}
	w.mu.Unlock()
	for _, reply := range replies {
		w.settle(reply, ackProgress)
	}
}

func (w *worker) stats() PoolStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inUse
}
