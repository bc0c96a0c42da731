// Package pattern matches the regular expressions of tokenizer.json. Python's tokenizers runs them with
// Oniguruma; these have look-ahead, which Go's package regexp lacks, and see characters as package characters
// says. A pattern with a construct that the package does not know is refused. The package does not split or
// replace text.
//
// Matching backtracks with a stack of its own and a bound on its steps, so that neither a long text nor a bad
// pattern ends the process.
//
// Begin reading at Compile, then at Matcher.step.
package pattern

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
)

// Pattern is a compiled regular expression. It is safe for concurrent use.
type Pattern struct {
	source  string
	program []instruction
}

// operation is what an instruction does.
type operation uint8

const (
	// opClass matches one character of a class, opRepeat as many as there are from min to max.
	opClass operation = iota
	opRepeat
	// opSplit tries x, later y; opJump goes to x.
	opSplit
	opJump
	// opLook runs the program up to its opMatch without moving, opAtomic without a way back; both go on at y.
	opLook
	opAtomic
	// opLineBegin and the next ones match between characters.
	opLineBegin
	opLineEnd
	opTextBegin
	opTextEnd
	opTextEndNewline
	opBoundary
	opNoBoundary
	opMatch
)

type instruction struct {
	operation operation
	class     *class
	x, y      int
	// min and max bound opRepeat; possessive and lazy say how it gives back.
	min, max         int
	possessive, lazy bool
	// negative inverts opLook, and behind makes it look back by min characters.
	negative, behind bool
}

// class is a set of characters: single ones and ranges, categories, flags, and other sets.
type class struct {
	ascii      [2]uint64
	ranges     []rune // pairs
	categories uint32
	flags      characters.Properties
	parts      []*class
	// and has sets that must hold the character, too.
	and    []*class
	negate bool
	fold   bool
}

func (c *class) has(r rune) bool {
	if r < utf8.RuneSelf {
		return c.ascii[r>>6]&(1<<(r&63)) != 0
	}
	return c.compute(r)
}

// compute is has without the table of ASCII.
func (c *class) compute(r rune) bool {
	in := c.holds(r)
	if !in && c.fold {
		for f := unicode.SimpleFold(r); f != r && !in; f = unicode.SimpleFold(f) {
			in = c.holds(f)
		}
	}
	for _, other := range c.and {
		in = in && other.compute(r)
	}
	return in != c.negate
}

func (c *class) holds(r rune) bool {
	for i := 0; i < len(c.ranges); i += 2 {
		if c.ranges[i] <= r && r <= c.ranges[i+1] {
			return true
		}
	}
	if c.categories != 0 || c.flags != 0 {
		p := characters.Of(r)
		if c.categories&(1<<p.Category()) != 0 || p.Is(c.flags) {
			return true
		}
	}
	return slices.ContainsFunc(c.parts, func(part *class) bool { return part.compute(r) })
}

// prepare fills the table of ASCII.
func (c *class) prepare() *class {
	c.ascii = [2]uint64{}
	for r := range rune(utf8.RuneSelf) {
		if c.compute(r) {
			c.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	return c
}

// point is where matching goes on if it fails elsewhere: the instruction, the place, and for opRepeat the
// place that it must not give back.
type point struct {
	pc, at, least int
}

// Matcher matches one text. It is not safe for concurrent use.
type Matcher struct {
	pattern *Pattern
	text    string
	points  []point
	steps   int
	// last is where the last match ended, -1 before the first one.
	next, last int
}

// Match returns a matcher of a text.
func (p *Pattern) Match(text string) *Matcher {
	return &Matcher{pattern: p, text: text, steps: 1<<20 + 256*len(text), last: -1}
}

// Next returns the next match, which begins behind the last one; false if there is none. An empty match is
// one, unless it is where the last match ended. The error says that the pattern takes too many steps.
func (m *Matcher) Next() (begin, end int, ok bool, err error) {
	for at := m.next; at <= len(m.text); at += m.width(at) {
		end, ok := m.run(0, at)
		if m.steps < 0 {
			return 0, 0, false, fmt.Errorf("the pattern %q takes too many steps on a text of %d bytes",
				m.pattern.source, len(m.text))
		}
		if ok && (end > at || at != m.last) {
			m.next, m.last = end, end
			return at, end, true, nil
		}
	}
	m.next = len(m.text) + 1
	return 0, 0, false, nil
}

// width returns the length of the character at a place, 1 at the end.
func (m *Matcher) width(at int) int {
	_, n := m.rune(at)
	return max(n, 1)
}

func (m *Matcher) rune(at int) (rune, int) {
	if at >= len(m.text) {
		return -1, 0
	}
	if b := m.text[at]; b < utf8.RuneSelf {
		return rune(b), 1
	}
	return utf8.DecodeRuneInString(m.text[at:])
}

// run runs the program from an instruction at a place until opMatch. It returns where that is.
func (m *Matcher) run(pc, at int) (end int, ok bool) {
	bottom := len(m.points)
	end, ok = m.step(pc, at, bottom)
	m.points = m.points[:bottom]
	return end, ok
}

// step is run, which leaves its points behind.
func (m *Matcher) step(pc, at, bottom int) (end int, ok bool) {
	for {
		if m.steps--; m.steps < 0 {
			return 0, false
		}
		in, held := &m.pattern.program[pc], true
		switch in.operation {
		case opMatch:
			return at, true
		case opClass:
			r, n := m.rune(at)
			if held = n > 0 && in.class.has(r); held {
				at += n
				pc++
			}
		case opRepeat:
			if at, held = m.repeat(in, pc, at); held {
				pc++
			}
		case opSplit:
			m.points = append(m.points, point{in.y, at, -1})
			pc = in.x
		case opJump:
			pc = in.x
		case opLook:
			if held = m.look(in, pc, at) != in.negative; held {
				pc = in.y
			}
		case opAtomic:
			var to int
			if to, held = m.run(pc+1, at); held {
				at, pc = to, in.y
			}
		default:
			if held = m.between(in.operation, at); held {
				pc++
			}
		}
		if held {
			continue
		}
		if len(m.points) == bottom {
			return 0, false
		}
		pc, at = m.resume()
	}
}

// look runs what a look-ahead or a look-behind holds.
func (m *Matcher) look(in *instruction, pc, at int) bool {
	if in.behind {
		for range in.min {
			_, n := utf8.DecodeLastRuneInString(m.text[:at])
			if n == 0 {
				return false
			}
			at -= n
		}
	}
	_, ok := m.run(pc+1, at)
	return ok
}

// repeat matches as many characters as it can, or as few as it must, and leaves a point to try others.
func (m *Matcher) repeat(in *instruction, pc, at int) (int, bool) {
	least, n := at, 0
	for ; n != in.max && (!in.lazy || n < in.min); n++ {
		r, width := m.rune(at)
		if width == 0 || !in.class.has(r) {
			break
		}
		if at += width; n < in.min {
			least = at
		}
	}
	m.steps -= n
	if n < in.min {
		return at, false
	}
	switch {
	case in.lazy:
		m.points = append(m.points, point{pc, at, n})
	case at > least && !in.possessive:
		m.points = append(m.points, point{pc, at, least})
	}
	return at, true
}

// resume takes the latest point. A greedy repetition gives back one character, a lazy one takes one more.
func (m *Matcher) resume() (pc, at int) {
	top := &m.points[len(m.points)-1]
	in := &m.pattern.program[top.pc]
	if in.operation != opRepeat || top.least < 0 {
		p := *top
		m.points = m.points[:len(m.points)-1]
		return p.pc, p.at
	}
	if !in.lazy {
		_, n := utf8.DecodeLastRuneInString(m.text[:top.at])
		top.at -= n
		p := *top
		if p.at <= p.least {
			m.points = m.points[:len(m.points)-1]
		}
		return p.pc + 1, p.at
	}
	p := *top
	r, n := m.rune(p.at)
	if p.least == in.max || n == 0 || !in.class.has(r) {
		m.points = m.points[:len(m.points)-1]
		return failing, p.at
	}
	top.at, top.least = p.at+n, p.least+1
	return p.pc + 1, top.at
}

// failing is the place of an instruction that never holds; each program begins with a jump over it.
const failing = 1

// between matches the place between two characters.
func (m *Matcher) between(op operation, at int) bool {
	switch op {
	case opLineBegin:
		return at == 0 || m.text[at-1] == '\n' && at < len(m.text)
	case opLineEnd:
		return at == len(m.text) || m.text[at] == '\n'
	case opTextBegin:
		return at == 0
	case opTextEnd:
		return at == len(m.text)
	case opTextEndNewline:
		return at == len(m.text) || m.text[at:] == "\n"
	}
	before, n := utf8.DecodeLastRuneInString(m.text[:at])
	after, width := m.rune(at)
	word := n > 0 && characters.Of(before).Is(characters.PatternWord)
	boundary := word != (width > 0 && characters.Of(after).Is(characters.PatternWord))
	return boundary == (op == opBoundary)
}
