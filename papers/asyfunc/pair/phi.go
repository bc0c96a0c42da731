// Package pair runs a batch on a body and its shadows (AsyFunc, SoCC 2023, §2.3 and §5.2). A body
// is an instance with the whole model; a shadow holds the segments of Φ, which are runs of blocks.
// The body splits a batch's rows within Φ, joins what comes back and computes the other blocks for
// all rows. What a shadow does not deliver in time the body computes itself. The package does not
// choose Φ nor who is paired: package shadow and the provider do.
//
// Begin with [OpenBody] and [Body.Run]; [OpenShadow] is the other side, and package relay what
// lies between them.
package pair

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
)

// Tensors is the maximum number of tensors between two blocks, as package shadow/graph counts
// blocks.
const Tensors = 8

// Run is consecutive blocks: First and all up to, but without, End.
type Run struct{ First, End int }

// Phi is the set of blocks that shadows hold (the paper's Φ): ascending runs with a block between
// each two.
type Phi []Run

// ParsePhi reads "0:18,20:22": the blocks 0 to 17, 20 and 21.
func ParsePhi(text string) (Phi, error) {
	var p Phi
	end := -1
	for run := range strings.SplitSeq(text, ",") {
		first, last, ok := strings.Cut(run, ":")
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if !ok || errA != nil || errB != nil || a <= end || a >= b {
			return nil, fmt.Errorf("phi is %.100q: give ascending runs of blocks with a block between each two, such as 0:18,20:22", text)
		}
		p, end = append(p, Run{a, b}), b
	}
	return p, nil
}

// String is what [ParsePhi] reads.
func (p Phi) String() string {
	texts := make([]string, len(p))
	for i, r := range p {
		texts[i] = fmt.Sprintf("%d:%d", r.First, r.End)
	}
	return strings.Join(texts, ",")
}

// check refuses runs that the model does not have.
func (p Phi) check(blocks int) error {
	switch {
	case len(p) == 0:
		return fmt.Errorf("phi is empty: a shadow holds at least one block")
	case p[len(p)-1].End > blocks:
		return fmt.Errorf("phi is %s: the model has the blocks 0 to %d", p, blocks-1)
	}
	return nil
}

// identity is what a body and its shadow must have in common. The part is the hash of Φ's graph,
// with the places of its weights.
func identity(p onnxruntime.Prepared, phi Phi, segments []*onnxruntime.Segment) relay.Identity {
	hash := sha256.New()
	for _, s := range segments {
		hash.Write(s.Graph())
	}
	return relay.Identity{
		Model: p.Content, Engine: p.Engine, CPU: p.CPU, Part: phi.String() + " " + hex.EncodeToString(hash.Sum(nil))[:16],
	}
}
