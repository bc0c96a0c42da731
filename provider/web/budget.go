package web

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
)

// Budget bounds what all requests together hold of something, such as memory. It also
// bounds what one holder, a client or a function, holds: a request may hold more only if
// the holder's other requests hold no more than is free without it. A holder alone thus
// gets half and one request more, two get a third each, and something is always free for
// the next one (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998). A
// holder's only request is never refused because of a share.
//
// A client is a remote address. An address may speak for others, as a gateway does: then
// the first hop in X-Forwarded-For is the client, and all clients of that address together
// may hold four times what is left free. Anybody can write that header, and the stock
// gateway passes it on. So it only divides the share of the address that sends it: whoever
// invents hops gets at most four fifths, and can take nothing from clients of other addresses.
//
// A budget has no lock and no list of holders. Two hashes per holder choose the counters
// that it shares with few others by chance (a count-min sketch). The hashes' seed is
// random, so nobody can aim at another's counters. A holder has the amount of its
// lower counter. Both would have to be another holder's, too, for a mistake.
type Budget struct {
	options BudgetOptions
	held    atomic.Int64
	seed    maphash.Seed
	shares  [holderKinds]sketch
}

// BudgetOptions configures a [Budget].
type BudgetOptions struct {
	// Limit is the most that all requests may hold together.
	Limit int64
	// Full refuses a request because of Limit, ClientShare and FunctionShare because of
	// the share of its client or of its function.
	Full, ClientShare, FunctionShare error
}

// The kinds of holders. Every address counts as a proxy, which may speak for others.
const (
	client = iota
	proxy
	function
	holderKinds
)

// factors say how many times what is free a holder of each kind may hold.
var factors = [holderKinds]int64{client: 1, proxy: 4, function: 1}

// width is the number of counters in a row of a sketch.
const width = 1 << 10

// sketch counts what holders of one kind hold.
type sketch [2][width]atomic.Int64

// add adds n to what a holder holds, and returns the sum.
func (s *sketch) add(holder uint64, n int64) int64 {
	return min(s[0][holder%width].Add(n), s[1][holder/width%width].Add(n))
}

// NewBudget returns a budget of which nothing is held.
func NewBudget(o BudgetOptions) *Budget { return &Budget{options: o, seed: maphash.MakeSeed()} }

// Held returns how much is held now.
func (b *Budget) Held() int64 { return b.held.Load() }

// Charge is what one request holds of a budget. Release ends it.
type Charge struct {
	budget *Budget
	// holders are hashes by kind, 0 for none.
	holders [holderKinds]uint64
	held    int64
}

// Charge returns the charge of a request for a function, "" for none. It holds nothing yet.
func (b *Budget) Charge(r *http.Request, name string) Charge {
	c := Charge{budget: b}
	if name != "" {
		c.holders[function] = maphash.String(b.seed, name)
	}
	remote := b.address(r.RemoteAddr)
	c.holders[proxy], c.holders[client] = remote, remote
	if through := r.Header["X-Forwarded-For"]; len(through) > 0 && through[0] != "" {
		first, _, _ := strings.Cut(through[0], ",")
		c.holders[client] = 31*remote + b.address(strings.TrimSpace(first))
	}
	return c
}

// ChargeAddress returns the charge of an address, with or without port, before it has sent a
// whole request. It holds nothing yet.
func (b *Budget) ChargeAddress(address string) Charge {
	c := Charge{budget: b}
	c.holders[client] = b.address(address)
	return c
}

// ChargeFunction returns the charge of something of a function that no client holds. It holds
// nothing yet.
func (b *Budget) ChargeFunction(name string) Charge {
	c := Charge{budget: b}
	c.holders[function] = maphash.String(b.seed, name)
	return c
}

// address hashes an address with or without port. A host owns a whole /64 of IPv6.
func (b *Budget) address(text string) uint64 {
	var ip netip.Addr
	if both, err := netip.ParseAddrPort(text); err == nil {
		ip = both.Addr()
	} else if ip, err = netip.ParseAddr(text); err != nil {
		return maphash.String(b.seed, text)
	}
	bytes := ip.As16()
	if ip.Is6() && !ip.Is4In6() {
		return maphash.Bytes(b.seed, bytes[:8])
	}
	return maphash.Bytes(b.seed, bytes[:])
}

// Take adds n to what a request holds, or returns why it may not hold more.
func (c *Charge) Take(n int64) error { return c.take(n, n) }

// TakeAnswer is Take for something that exists already, such as a function's answer. It may
// be larger than what is free: only what other requests hold decides.
func (c *Charge) TakeAnswer(n int64) error { return c.take(n, 1-c.held) }

// take adds n if there is room for room.
func (c *Charge) take(n, room int64) error {
	b, own := c.budget, c.held
	free := b.options.Limit - (b.held.Add(n) - n)
	var err error
	if room > free {
		err = b.options.Full
	}
	for kind, holder := range c.holders {
		if holder == 0 {
			continue
		}
		others := b.shares[kind].add(holder, n) - n - own
		if err != nil || others <= factors[kind]*(free+own) {
			continue
		}
		if err = b.options.ClientShare; kind == function {
			err = b.options.FunctionShare
		}
	}
	c.held += n
	if err != nil {
		c.Give(n)
	}
	return err
}

// Give gives back n of what a request holds.
func (c *Charge) Give(n int64) {
	if n == 0 {
		return
	}
	c.held -= n
	for kind, holder := range c.holders {
		if holder != 0 {
			c.budget.shares[kind].add(holder, -n)
		}
	}
	c.budget.held.Add(-n)
}

// Held returns what the request holds.
func (c *Charge) Held() int64 { return c.held }

// Release gives back all that a request holds.
func (c *Charge) Release() { c.Give(c.held) }
