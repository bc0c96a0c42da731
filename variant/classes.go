package variant

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

const (
	// MaxClasses is the number of classes that a function's requests may have.
	MaxClasses = 15
	// MaxOffers is the number of variants that a function may have.
	MaxOffers = 64
)

// Requirement is what a request asks of the variant that answers it.
type Requirement struct {
	Query
	// Cost is the highest price of a request, in the unit of [Variant.PerRequest]; 0 for any.
	Cost float64
}

// Met reports whether a variant meets the requirement. A model's name is that of the
// variant, too.
func (r *Requirement) Met(v *Variant) bool {
	q := r.Query
	if q.Model == v.Name {
		q.Model = v.Model
	}
	return q.Met(v) && (r.Cost == 0 || v.PerRequest() <= r.Cost)
}

// shortfall is [Query.Shortfall] with the cost.
func (r *Requirement) shortfall(v *Variant) float64 {
	short := r.Shortfall(v)
	if each := v.PerRequest(); r.Cost > 0 && each > r.Cost {
		short += (each - r.Cost) / r.Cost
	}
	return short
}

// class is a set of requirements that the same variants meet, with latencies of one step.
type class struct {
	// asks is the strictest of its requirements: no variant that meets it is too bad for any.
	asks Requirement
	// step is the step of its latency; see [Classes.step]. admits has the variants that may
	// answer, bit i for offer i.
	step   int
	admits uint64
}

// Classes sorts the requests of a function into classes, by the variants that may answer and
// by how soon. Class 0 has those that ask nothing. It does not change, so many may read it
// at once; [Classes.With] and [Classes.Offering] return another.
type Classes struct {
	offers []Variant
	// own is what the function's deployment asks for requests that state nothing: the latency
	// is its objective.
	own     Query
	classes []class
}

// NewClasses returns the classes of a function that offers no variant yet. own has the
// function's objective and the accuracy for requests that state none.
func NewClasses(own Query) *Classes {
	c := &Classes{own: own, classes: make([]class, 1, MaxClasses)}
	c.classes[0].asks.Accuracy = own.Accuracy
	return c
}

// Offering returns the classes of a function that offers other variants, at most
// [MaxOffers]. A variant's Latency is the shortest objective that it can be planned for. The
// classes keep their numbers, and what they ask. If no variant is fast or cheap enough for a
// class any more, the fastest of those that are accurate enough answers.
func (c *Classes) Offering(own Query, offers []Variant) *Classes {
	next := &Classes{own: own, offers: slices.Clone(offers[:min(len(offers), MaxOffers)]), classes: slices.Clone(c.classes)}
	next.classes[0].asks.Accuracy = own.Accuracy
	for i := range next.classes {
		next.classes[i].admits = next.admitted(&next.classes[i].asks)
	}
	return next
}

// admitted returns the offers for a class.
func (c *Classes) admitted(r *Requirement) uint64 {
	if set := c.meeting(r); set != 0 {
		return set
	}
	bare := Requirement{Query: Query{Model: r.Model, Accuracy: r.Accuracy}}
	set := c.meeting(&bare)
	fastest := -1
	for rest := set; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); fastest < 0 || c.offers[i].Latency < c.offers[fastest].Latency {
			fastest = i
		}
	}
	if fastest < 0 {
		return 0
	}
	return 1 << fastest
}

// meeting returns the offers that meet a requirement.
func (c *Classes) meeting(r *Requirement) (set uint64) {
	for i := range c.offers {
		if r.Met(&c.offers[i]) {
			set |= 1 << i
		}
	}
	return set
}

// step is the number of the latency's step, at least 0: the objective divided by 2^(1/2) as
// often as it takes to get below the latency. Of an objective of 200 ms, 150 ms is in step 1,
// which ends at 141 ms, and 50 ms in step 4. A latency above the objective is in step 0.
func (c *Classes) step(latency time.Duration) int {
	if latency <= 0 || c.own.Latency <= 0 || latency >= c.own.Latency {
		return 0
	}
	return int(math.Ceil(2*math.Log2(float64(c.own.Latency)/float64(latency)) - 1e-9))
}

// normal returns a requirement as the class asks it: a request that states no accuracy asks for
// the function's, unless it names a model that has no variant like that. A latency is that
// of its step's end, unless no variant is that fast.
func (c *Classes) normal(r Requirement) (_ Requirement, step int, set uint64) {
	if r.Accuracy == 0 && c.own.Accuracy > 0 {
		r.Accuracy = c.own.Accuracy
		if asks, step, set := c.normal(r); r.Model == "" || set != 0 {
			return asks, step, set
		}
		r.Accuracy = 0
	}
	if step = c.step(r.Latency); step == 0 {
		r.Latency = 0
		return r, 0, c.meeting(&r)
	}
	end := r
	end.Latency = max(1, time.Duration(float64(c.own.Latency)*math.Exp2(-float64(step)/2)))
	if set = c.meeting(&end); set != 0 {
		return end, step, set
	}
	return r, step, c.meeting(&r)
}

// Binding returns what the answer to a request must meet, whatever was planned: its model, and its
// accuracy or the function's. Latency and cost are predictions, so it leaves them out.
func (c *Classes) Binding(r Requirement) Requirement {
	r.Latency, r.Cost = 0, 0
	if r.Accuracy > 0 || c.own.Accuracy == 0 {
		return r
	}
	strict := r
	strict.Accuracy = c.own.Accuracy
	if r.Model != "" && c.meeting(&strict) == 0 {
		return r // It names a model that has no variant like that.
	}
	return strict
}

// Find returns the class of a request. If it is not known, known is false; [Classes.With]
// then adds it. If no variant meets the requirement, ok is false; [Classes.Unmet] then says
// why. Find allocates nothing.
func (c *Classes) Find(r Requirement) (number int, known, ok bool) {
	_, step, set := c.normal(r)
	if set == 0 {
		return 0, false, false
	}
	for i := range c.classes {
		if x := &c.classes[i]; x.step == step && x.admits == set {
			return i, true, true
		}
	}
	return 0, false, true
}

// With returns classes with that of a request, and its number. There is always room for a class
// of each variant alone. If there is no room for more, a request joins the class with the most
// variants of those that are as strict, even if its latency is of another step; otherwise it
// gets a class of its cheapest variant alone. ok is false if not even that has room, which
// takes [MaxClasses] variants or more.
func (c *Classes) With(r Requirement) (next *Classes, number int, ok bool) {
	if number, known, ok := c.Find(r); known || !ok {
		return c, number, ok
	}
	asks, step, set := c.normal(r)
	if c.room(set) {
		return c.plus(asks, step, set)
	}
	if number = c.stricter(step, set); number >= 0 {
		return c, number, true
	}
	cheapest := -1
	for rest := set; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); cheapest < 0 || c.offers[i].PerRequest() < c.offers[cheapest].PerRequest() {
			cheapest = i
		}
	}
	if set = 1 << cheapest; !c.room(set) {
		return c, 0, false
	}
	asks.Model = c.offers[cheapest].Name
	return c.plus(asks, step, set)
}

// room reports whether a class may be added for a set: it takes a free place, and then one
// must be left for each variant that has no class alone yet. A variant's first such class
// needs only its own place.
func (c *Classes) room(set uint64) bool {
	free, alone := MaxClasses-len(c.classes), uint64(0)
	for i, x := range c.classes {
		if i > 0 && x.admits == 0 {
			free++
		}
		if x.admits&(x.admits-1) == 0 {
			alone |= x.admits
		}
	}
	if set&(set-1) == 0 && alone&set == 0 {
		return free > 0
	}
	return free > len(c.offers)-bits.OnesCount64(alone)
}

// plus adds a class, in the place of one that no variant can answer any more if there is one.
// It asks for the accuracy of its worst variant: requests of its variants ask for no more, and
// a variant that is offered later and is worse cannot join it.
func (c *Classes) plus(asks Requirement, step int, set uint64) (*Classes, int, bool) {
	worst := 100.0
	for rest := set; rest != 0; rest &= rest - 1 {
		worst = min(worst, c.offers[bits.TrailingZeros64(rest)].Accuracy)
	}
	asks.Accuracy = max(asks.Accuracy, worst)
	next := &Classes{offers: c.offers, own: c.own, classes: slices.Clone(c.classes)}
	for i := range next.classes {
		if i > 0 && next.classes[i].admits == 0 {
			next.classes[i] = class{asks, step, set}
			return next, i, true
		}
	}
	next.classes = append(next.classes, class{asks, step, set})
	return next, len(c.classes), true
}

// stricter returns the class that admits the most variants of a set and no others: if there
// is one with a latency as short, of those, and then the one with the longest latency. It
// returns -1 if there is none.
func (c *Classes) stricter(step int, set uint64) int {
	best := -1
	better := func(x, than *class) bool {
		if soon, was := x.step >= step, than.step >= step; soon != was {
			return soon
		}
		if n, was := bits.OnesCount64(x.admits), bits.OnesCount64(than.admits); n != was {
			return n > was
		}
		return x.step < than.step
	}
	for i := range c.classes {
		x := &c.classes[i]
		if x.admits != 0 && x.admits&^set == 0 && (best < 0 || better(x, &c.classes[best])) {
			best = i
		}
	}
	return best
}

// Len is the number of classes.
func (c *Classes) Len() int { return len(c.classes) }

// Offers returns the variants. The caller must not change them.
func (c *Classes) Offers() []Variant { return c.offers }

// Offer finds a variant by its name, nil if there is none.
func (c *Classes) Offer(name string) *Variant {
	for i := range c.offers {
		if c.offers[i].Name == name {
			return &c.offers[i]
		}
	}
	return nil
}

// Serving returns the classes that a variant may answer, bit i for class i, none for an unknown
// one.
func (c *Classes) Serving(name string) (set uint16) {
	i := slices.IndexFunc(c.offers, func(v Variant) bool { return v.Name == name })
	for k := range c.classes {
		if i >= 0 && c.classes[k].admits>>i&1 != 0 {
			set |= 1 << k
		}
	}
	return set
}

// Admitted lists the names of the variants that may answer a class.
func (c *Classes) Admitted(number int) (names []string) {
	for rest := c.classes[number].admits; rest != 0; rest &= rest - 1 {
		names = append(names, c.offers[bits.TrailingZeros64(rest)].Name)
	}
	return names
}

// Objective is the latency that a class's requests are planned for: the function's in step 0.
func (c *Classes) Objective(number int) time.Duration {
	x := &c.classes[number]
	if x.asks.Latency == 0 {
		return c.own.Latency
	}
	fastest := time.Duration(math.MaxInt64)
	for rest := x.admits; rest != 0; rest &= rest - 1 {
		fastest = min(fastest, c.offers[bits.TrailingZeros64(rest)].Latency)
	}
	if x.admits == 0 {
		return c.own.Latency
	}
	return min(c.own.Latency, max(x.asks.Latency, fastest))
}

// Has reports whether a variant or a model has that name.
func (c *Classes) Has(model string) bool {
	return slices.ContainsFunc(c.offers, func(v Variant) bool { return v.Name == model || v.Model == model })
}

// Unmet says why no variant meets a requirement, and which is the nearest: the one with the
// least sum of what it lacks, as parts of what the request asks (suggestVariant of
// Algorithm 1).
func (c *Classes) Unmet(r Requirement) string {
	near := -1
	if r.Accuracy == 0 && !c.Has(r.Model) {
		r.Accuracy = c.own.Accuracy
	}
	for i := range c.offers {
		v := &c.offers[i]
		if r.Model != "" && r.Model != v.Model && r.Model != v.Name {
			continue
		}
		if near < 0 || r.shortfall(v) < r.shortfall(&c.offers[near]) {
			near = i
		}
	}
	if near < 0 {
		var names []string
		for i := range c.offers {
			names = append(names, cmp.Or(c.offers[i].Name, c.offers[i].Model))
		}
		return fmt.Sprintf("there is no model %q, only %s", r.Model, strings.Join(names, ", "))
	}
	v := &c.offers[near]
	var lacks []string
	if v.Accuracy == 0 && r.Accuracy > 0 {
		lacks = append(lacks, fmt.Sprintf("has no known accuracy, and %.4g %% is asked", r.Accuracy))
	} else if v.Accuracy < r.Accuracy {
		lacks = append(lacks, fmt.Sprintf("has an accuracy of %.4g of the %.4g %% asked", v.Accuracy, r.Accuracy))
	}
	if v.Latency == math.MaxInt64 {
		lacks = append(lacks, "has no known times yet")
	} else if r.Latency > 0 && v.Latency > r.Latency {
		lacks = append(lacks, fmt.Sprintf("answers within %v at best, %v is asked", v.Latency.Round(10*time.Microsecond), r.Latency))
	}
	if each := v.PerRequest(); r.Cost > 0 && each > r.Cost && !math.IsInf(each, 1) {
		lacks = append(lacks, fmt.Sprintf("costs %.4g per request of the %.4g asked", each, r.Cost))
	}
	name := "the model"
	if v.Name != "" {
		name = "the nearest, " + v.Name + ","
	}
	return name + " " + strings.Join(lacks, " and ")
}
