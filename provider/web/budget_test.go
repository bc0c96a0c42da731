package web

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
)

var errFull, errClient, errFunction = errors.New("full"), errors.New("client"), errors.New("function")

func newBudget(limit int64) *Budget {
	return NewBudget(BudgetOptions{Limit: limit, Full: errFull, ClientShare: errClient, FunctionShare: errFunction})
}

// charge is a request of an address, with a hop in X-Forwarded-For where it is given.
func (b *Budget) charge(address, hop, name string) *Charge {
	r := httptest.NewRequest("POST", "/", nil)
	r.RemoteAddr = address
	if hop != "" {
		r.Header.Set("X-Forwarded-For", hop)
	}
	c := b.Charge(r, name)
	return &c
}

// fill takes bytes one by one, in turn for each request, until one is refused.
func fill(charges []*Charge) (n int64, refused error) {
	for i := 0; refused == nil; i++ {
		if refused = charges[i%len(charges)].Take(1); refused == nil {
			n++
		}
	}
	return n, refused
}

// A holder leaves as much free as it has, whatever addresses or hops it uses.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name  string
		many  func(i int) (address, hop, name string)
		want  error
		takes int64
	}{
		{"one client", func(i int) (string, string, string) { return fmt.Sprintf("1.2.3.4:%d", i), "", fmt.Sprint(i) }, errClient, 500},
		{"one client of IPv6", func(i int) (string, string, string) { return fmt.Sprintf("[2001:db8::%x]:9", i), "", fmt.Sprint(i) }, errClient, 500},
		{"one function", func(i int) (string, string, string) { return fmt.Sprintf("1.2.%d.4:5", i), "", "f" }, errFunction, 500},
		{"a client of the gateway", func(i int) (string, string, string) {
			return "127.0.0.1:5", fmt.Sprintf("1.2.3.4:%d, 5.6.7.%d", i, i), fmt.Sprint(i)
		}, errClient, 500},
		{"invented hops", func(i int) (string, string, string) { return "1.2.3.4:5", fmt.Sprint(i), fmt.Sprint(i) }, errClient, 800},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBudget(1000)
			n, why := fill(b.charges(c.many))
			if why != c.want || n < c.takes-5 || n > c.takes+10 {
				t.Errorf("%d taken, then %v; want %d and %v", n, why, c.takes, c.want)
			}
			// Others go on: one gets half of what is left, and the next half of that.
			for _, other := range []string{"9.9.9.9:9", "8.8.8.8:8"} {
				free := 1000 - b.Held()
				n, why := fill(b.charges(func(i int) (string, string, string) { return other, "", fmt.Sprint(other, i) }))
				if n < free/2-5 || n > free/2+10 || why == errFull {
					t.Errorf("%s gets %d of %d, then %v", other, n, free, why)
				}
			}
		})
	}
}

// charges are 100 requests.
func (b *Budget) charges(many func(i int) (address, hop, name string)) (all []*Charge) {
	for i := range 100 {
		all = append(all, b.charge(many(i)))
	}
	return all
}

// A holder's only request is never refused because of a share, only for want of room.
func TestOnlyRequest(t *testing.T) {
	b := newBudget(100)
	if n, why := fill([]*Charge{b.charge("1.2.3.4:5", "", "f")}); n != 100 || why != errFull {
		t.Errorf("%d of 100 can be had, then %v", n, why)
	}
	c := newBudget(100).charge("1.2.3.4:5", "", "f")
	if err := errors.Join(c.Take(60), c.TakeAnswer(90)); err != nil {
		t.Errorf("its answer is refused: %v", err)
	}
}

// An answer that exists may be larger than what is left, but only one.
func TestAnswers(t *testing.T) {
	b := newBudget(100)
	one, two := b.charge("1.2.3.4:5", "", "f"), b.charge("2.2.3.4:5", "", "g")
	if err := errors.Join(one.Take(10), one.TakeAnswer(500)); err != nil {
		t.Error(err)
	}
	if err := two.TakeAnswer(1); err != errFull {
		t.Errorf("error %v", err)
	}
	if err := two.Take(1); err != errFull {
		t.Errorf("error %v", err)
	}
	one.Release()
	if err := two.TakeAnswer(1); err != nil || b.Held() != 1 {
		t.Errorf("error %v, %d held", err, b.Held())
	}
}

// Nothing is left after requests that have ended, refused or not.
func TestNothingIsLeft(t *testing.T) {
	b := newBudget(1000)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				c := b.charge(fmt.Sprintf("1.2.3.%d:4", i), fmt.Sprint(j%3), fmt.Sprint(j%5))
				_ = c.Take(int64(j % 300))
				_ = c.TakeAnswer(int64(j % 700))
				c.Give(min(c.held, 3))
				c.Release()
			}
		})
	}
	all.Wait()
	if b.Held() != 0 {
		t.Errorf("%d held", b.Held())
	}
	for kind := range b.shares {
		for row := range b.shares[kind] {
			for i := range b.shares[kind][row] {
				if n := b.shares[kind][row][i].Load(); n != 0 {
					t.Errorf("kind %d, row %d, counter %d: %d", kind, row, i, n)
				}
			}
		}
	}
}
