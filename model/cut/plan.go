package cut

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Plan says how a model is cut over members: the instances that answer its requests
// together. Member 0 is the master (Gillis §III-B).
type Plan struct {
	// Model is the content hash of the model that is cut.
	Model string `json:"model"`
	// Members is the number of members, the master included.
	Members int     `json:"members"`
	Rounds  []Round `json:"rounds"`
}

// Round is one group of a plan.
type Round struct {
	// First and End are the group's layers, from First up to, but without, End.
	First int `json:"first"`
	End   int `json:"end"`
	// Cut is the name of a cut: "whole", "2x1", "channels 4" or "rows 2".
	Cut string `json:"cut"`
	// On are the members that compute the parts, by part. No member computes two.
	On []int `json:"on"`
}

const (
	// maxMembers bounds the members of a plan, maxPlan a plan's text in bytes.
	maxMembers = 256
	maxPlan    = 1 << 20
)

// ReadPlan reads a plan's JSON. It refuses rounds that overlap or leave gaps; only
// [Plan.Parts] knows whether the plan is of a certain model.
func ReadPlan(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPlan+1))
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if len(text) > maxPlan {
		return nil, fmt.Errorf("plan: it is larger than %d bytes", maxPlan)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	p := new(Plan)
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return p, nil
}

// validate checks what can be checked without the model.
func (p *Plan) validate() error {
	switch {
	case p.Model == "":
		return errors.New("model is not set: it is the content hash of the model")
	case p.Members < 1 || p.Members > maxMembers:
		return fmt.Errorf("members is %d: it must be from 1 to %d", p.Members, maxMembers)
	case len(p.Rounds) == 0:
		return errors.New("rounds is empty")
	}
	end := 0
	for i, r := range p.Rounds {
		switch {
		case r.First > end:
			return fmt.Errorf("round %d begins at layer %d: layers %d to %d are in no round", i+1, r.First, end, r.First-1)
		case r.First < end:
			return fmt.Errorf("round %d begins at layer %d, which an earlier round computes", i+1, r.First)
		case r.End <= r.First:
			return fmt.Errorf("round %d is of layers %d to %d, which are none", i+1, r.First, r.End-1)
		case len(r.On) == 0:
			return fmt.Errorf("round %d has no parts", i+1)
		}
		for k, member := range r.On {
			if member < 0 || member >= p.Members {
				return fmt.Errorf("part %d of round %d is on member %d: there are members 0 to %d", k+1, i+1, member, p.Members-1)
			}
			if slices.Contains(r.On[:k], member) {
				return fmt.Errorf("member %d computes two parts of round %d", member, i+1)
			}
		}
		end = r.End
	}
	return nil
}

// Active is the largest number of members that compute parts of one round, and so at the same time
// for one batch.
func (p *Plan) Active() int {
	most := 0
	for _, r := range p.Rounds {
		most = max(most, len(r.On))
	}
	return most
}

// String is the plan's JSON on one line.
func (p *Plan) String() string {
	text, err := json.Marshal(p)
	if err != nil { // It has only numbers and texts.
		return err.Error()
	}
	return string(text)
}

// Hash identifies the plan, and so the model, in hex.
func (p *Plan) Hash() string {
	sum := sha256.Sum256([]byte(p.String()))
	return hex.EncodeToString(sum[:])
}

// Parts makes the parts of all rounds. The error says why the plan is not one of this model:
// content is the model's hash.
func (p *Plan) Parts(m *Model, content string) ([][]*Part, error) {
	if p.Model != content {
		return nil, fmt.Errorf("the plan is of the model %.12s, and this one is %.12s", p.Model, content)
	}
	if end := p.Rounds[len(p.Rounds)-1].End; end != len(m.layers) {
		return nil, fmt.Errorf("the plan's rounds end before layer %d, and the model has %d layers", end, len(m.layers))
	}
	rounds := make([][]*Part, len(p.Rounds))
	for i, r := range p.Rounds {
		g, err := m.Group(r.First, r.End)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		c, err := g.Named(r.Cut)
		if err != nil {
			return nil, fmt.Errorf("round %d: cut %q: %w", i+1, r.Cut, err)
		}
		if rounds[i], err = g.Cut(c); err != nil {
			return nil, fmt.Errorf("round %d: cut %q: %w", i+1, r.Cut, err)
		}
		if len(rounds[i]) != len(r.On) {
			return nil, fmt.Errorf("round %d: cut %q makes %d parts, and the plan has members for %d", i+1, r.Cut, len(rounds[i]), len(r.On))
		}
	}
	return rounds, nil
}

// Named is the cut with a name that Whole, Grid, Channels or Rows gives.
func (g *Group) Named(name string) (Cut, error) {
	number := func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxMembers || strconv.Itoa(n) != text {
			return 0, fmt.Errorf("%q is not a number of parts from 1 to %d", text, maxMembers)
		}
		return n, nil
	}
	if name == g.Whole().Name {
		return g.Whole(), nil
	}
	for word, divide := range map[string]func(int) (Cut, error){"channels ": g.Channels, "rows ": g.Rows} {
		if text, ok := strings.CutPrefix(name, word); ok {
			n, err := number(text)
			if err != nil {
				return Cut{}, err
			}
			return divide(n)
		}
	}
	if high, wide, ok := strings.Cut(name, "x"); ok {
		h, err := number(high)
		w, wrong := number(wide)
		if err := errors.Join(err, wrong); err != nil {
			return Cut{}, err
		}
		return g.Grid(h, w)
	}
	return Cut{}, errors.New(`it must be "whole", "HxW", "channels N" or "rows N"`)
}
