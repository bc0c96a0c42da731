package partition

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// Line is a time in ms, linear in a size: A·x + B, never below 0.
type Line struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// At returns the time for size x in ms.
func (l Line) At(x float64) float64 { return max(0, l.A*x+l.B) }

// Codec is the time to make bytes of tensors or tensors of bytes. Master and workers both
// need it. It keeps the master busy: sends go one after another, and so do answers.
type Codec struct {
	// UnitBytes is the size of a unit of the lines.
	UnitBytes float64 `json:"unit_bytes"`
	Encode    Line    `json:"encode"`
	Decode    Line    `json:"decode"`
}

// Billing says what functions cost.
type Billing struct {
	// Granularity D is what a function's time is rounded up to, in ms: 1 or 100 (§IV-C).
	// With 0 every function pays exactly the time that it is busy, as on a cluster.
	Granularity float64 `json:"granularity_ms"`
	// Price is the cost of a billed millisecond; 0 means 1, and costs are milliseconds.
	Price float64 `json:"price"`
}

// tick is the tolerance in ms of comparisons of times, which are sums with rounding errors.
const tick = 1e-6

// billed returns the billed time of a function that runs for t ms.
func (b *Billing) billed(t float64) float64 {
	if b.Granularity == 0 {
		return t
	}
	return math.Ceil((t-tick)/b.Granularity) * b.Granularity
}

// Platform is a performance model (§IV-A): what functions hold, cost, and take to compute
// and to exchange tensors. Its file form is a JSON object with the fields' names below.
// The built-in platforms in partition/platforms are such files.
type Platform struct {
	// Name names the platform. Source says where its numbers are from.
	Name   string `json:"name"`
	Source string `json:"source"`
	// MemoryMiB is M, what a function can hold of weights and activations (§V-A).
	MemoryMiB float64 `json:"memory_mib"`
	// MaxParts is the maximum number of parts of a group; 0 means no limit.
	MaxParts int     `json:"max_parts"`
	Billing  Billing `json:"billing"`
	// Compute has the time of operators by their kind; see [Platform.Compute]. A platform
	// whose operators are profiled leaves it out.
	Compute map[string]Line `json:"compute"`
	// Crowding is the factor by which functions that compute at the same time slow each other,
	// at least 1: instances on one machine share its memory and its clock. 0 means 1.
	Crowding float64        `json:"crowding,omitempty"`
	Codec    Codec          `json:"codec"`
	Transfer delay.Transfer `json:"transfer"`
}

// kinds lists the kinds of operators in Platform.Compute and the unit of their size.
var kinds = []string{
	"relu", "pool", "bn", "add", // 1024 elements of the input
	"conv", // 1024 multiply-adds
	"gemm", // 1024 weights
	"lstm", // layers of 2048 hidden units
}

// ComputeMs returns the time of one operator in ms, at least 0. The unit of x depends on
// kind: 1024 elements of the input for relu, pool, bn and add; 1024 multiply-adds for conv;
// 1024 weights for gemm; layers of 2048 hidden units for lstm. It fails if the platform has
// no such kind.
func (p *Platform) ComputeMs(kind string, x float64) (float64, error) {
	l, ok := p.Compute[kind]
	if !ok {
		return 0, fmt.Errorf("platform %s: compute has no %q: add it, or one of %s", p.Name, kind, strings.Join(kinds, ", "))
	}
	return l.At(x), nil
}

// Memory returns M in bytes.
func (p *Platform) Memory() int64 { return int64(p.MemoryMiB * (1 << 20)) }

// cost returns the price of a request that keeps the master busy for t ms and its workers
// for billed work ms.
func (p *Platform) cost(t, work float64) float64 {
	price := p.Billing.Price
	if price == 0 {
		price = 1
	}
	return price * (p.Billing.billed(t) + work)
}

func (p *Platform) encode(size int64) float64 {
	return p.Codec.Encode.At(float64(size) / p.Codec.UnitBytes)
}

func (p *Platform) decode(size int64) float64 {
	return p.Codec.Decode.At(float64(size) / p.Codec.UnitBytes)
}

// worker returns how long a worker runs for a part, in ms. The way there and back is not
// billed.
func (p *Platform) worker(part *Part, crowded float64) float64 {
	return p.decode(part.In) + crowded*part.Compute + p.encode(part.Out)
}

// crowded is the factor of the computation of one of so many parts at the same time.
func (p *Platform) crowded(parts int) float64 {
	if parts < 2 {
		return 1
	}
	return max(1, p.Crowding)
}

//go:embed platforms/*.json
var builtin embed.FS

// Builtin lists the built-in platforms, sorted: those of the paper with the coefficients of
// its release. "lambda" reads the slopes of the network as per element, which agrees with
// the paper's 300 Mbit/s. "lambda-release" reads them as the release does, per 1024
// elements: its network is nearly free.
func Builtin() []string {
	files, err := builtin.ReadDir("platforms")
	if err != nil {
		panic(err) // The files are part of the program.
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	slices.Sort(names)
	return names
}

// Named returns the built-in platform of that name, and false if there is none.
func Named(name string) (*Platform, bool) {
	if !slices.Contains(Builtin(), name) {
		return nil, false
	}
	text, err := builtin.ReadFile(path.Join("platforms", name+".json"))
	if err != nil {
		panic(err) // The files are part of the program.
	}
	p, err := ReadPlatform(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	return p, true
}

// ReadPlatform reads a platform's file form. It fails on an unknown field and on a value
// that is not allowed.
func ReadPlatform(r io.Reader) (*Platform, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	p := &Platform{}
	if err := d.Decode(p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, fmt.Errorf("platform: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("platform: there is more after the object: remove it")
	}
	return p, p.Validate()
}

// largest is above every value of a platform that makes sense.
const largest = 1e9

// Validate checks the platform's values. Errors name the field of the file form.
func (p *Platform) Validate() error {
	t := &p.Transfer
	for _, f := range []struct {
		field string
		value float64
		least float64
	}{
		{"memory_mib", p.MemoryMiB, tick},
		{"max_parts", float64(p.MaxParts), 0},
		{"crowding", p.Crowding, 0},
		{"billing.granularity_ms", p.Billing.Granularity, 0},
		{"billing.price", p.Billing.Price, 0},
		{"codec.unit_bytes", p.Codec.UnitBytes, tick},
		{"transfer.unit_bytes", t.UnitBytes, tick},
		{"transfer.send.k", t.Send.K, 0}, {"transfer.return.k", t.Return.K, 0},
		{"transfer.send.loc_ms", t.Send.Loc, 0}, {"transfer.return.loc_ms", t.Return.Loc, 0},
		{"transfer.send.scale_ms", t.Send.Scale, 0}, {"transfer.return.scale_ms", t.Return.Scale, 0},
	} {
		if !(f.value >= f.least && f.value < largest) {
			least := "0 or more"
			if f.least > 0 {
				least = "more than 0"
			}
			return fmt.Errorf("platform %s: %s: %g: must be %s, and below %g", p.Name, f.field, f.value, least, largest)
		}
	}
	for field, l := range map[string]Line{"codec.encode": p.Codec.Encode, "codec.decode": p.Codec.Decode} {
		if !(l.A >= 0 && l.A < largest && l.B >= 0 && l.B < largest) {
			return fmt.Errorf("platform %s: %s: %+v: a and b must be numbers from 0 to %g", p.Name, field, l, largest)
		}
	}
	for field, slope := range map[string]float64{
		"send.k_per_unit": t.Send.KPerUnit, "send.loc_ms_per_unit": t.Send.LocPerUnit, "send.scale_ms_per_unit": t.Send.ScalePerUnit,
		"return.k_per_unit": t.Return.KPerUnit, "return.loc_ms_per_unit": t.Return.LocPerUnit, "return.scale_ms_per_unit": t.Return.ScalePerUnit,
	} {
		if !(math.Abs(slope) < largest) {
			return fmt.Errorf("platform %s: transfer.%s: %g: must be below %g", p.Name, field, slope, largest)
		}
	}
	for kind, l := range p.Compute {
		if !(l.A >= 0 && l.A < largest && math.Abs(l.B) < largest) {
			return fmt.Errorf("platform %s: compute.%s: %+v: a must be from 0, and both below %g", p.Name, kind, l, largest)
		}
		if !slices.Contains(kinds, kind) {
			return fmt.Errorf("platform %s: compute: %q: must be one of %s", p.Name, kind, strings.Join(kinds, ", "))
		}
	}
	return nil
}
