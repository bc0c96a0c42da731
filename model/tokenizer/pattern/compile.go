package pattern

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
)

// The bounds of a pattern. unbounded is the maximum of a repetition without one.
const (
	maxSource  = 1 << 16
	maxProgram = 1 << 16
	maxDepth   = 100
	maxRepeats = 1000
	unbounded  = -1
)

// compiler reads a pattern and writes its program.
type compiler struct {
	source  string
	at      int
	depth   int
	program []instruction
	// fold ignores the case of letters, and dot lets a dot match the end of a line, too.
	fold, dot bool
}

// failure leaves the compiler from any depth.
type failure struct{ error }

// Compile reads a pattern in Oniguruma's syntax. The error names the construct that it does not know.
func Compile(source string) (p *Pattern, err error) {
	c := &compiler{source: source}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			p, err = nil, fmt.Errorf("pattern %.200q, at byte %d: %w", source, c.at, r.error)
		default:
			panic(r)
		}
	}()
	if len(source) > maxSource || !utf8.ValidString(source) {
		c.fail("it is longer than %d bytes or not UTF-8", maxSource)
	}
	c.emit(instruction{operation: opJump, x: failing + 1})
	c.emit(instruction{operation: opClass, class: new(class)})
	c.alternatives()
	if c.at < len(source) {
		c.fail("unmatched )")
	}
	c.emit(instruction{operation: opMatch})
	return &Pattern{source, c.program}, nil
}

// Literal returns the pattern that matches a text itself.
func Literal(text string) (*Pattern, error) {
	var quoted strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf && strings.ContainsRune(`\.+*?()|[]{}^$#&-~`, r) {
			quoted.WriteByte('\\')
		}
		quoted.WriteRune(r)
	}
	return Compile(quoted.String())
}

func (c *compiler) fail(format string, arguments ...any) {
	panic(failure{fmt.Errorf(format, arguments...)})
}

func (c *compiler) emit(in instruction) int {
	if len(c.program) >= maxProgram {
		c.fail("it is too large")
	}
	c.program = append(c.program, in)
	return len(c.program) - 1
}

// peek returns the next character, -1 at the end.
func (c *compiler) peek() rune {
	if c.at >= len(c.source) {
		return -1
	}
	r, _ := utf8.DecodeRuneInString(c.source[c.at:])
	return r
}

func (c *compiler) next() rune {
	r := c.peek()
	if r < 0 {
		c.fail("it ends too early")
	}
	c.at += utf8.RuneLen(r)
	return r
}

// accept skips a text if it is next.
func (c *compiler) accept(text string) bool {
	ok := strings.HasPrefix(c.source[c.at:], text)
	if ok {
		c.at += len(text)
	}
	return ok
}

// alternatives compiles up to the end or a closing parenthesis.
func (c *compiler) alternatives() {
	if c.depth++; c.depth > maxDepth {
		c.fail("it is nested deeper than %d", maxDepth)
	}
	fold, dot := c.fold, c.dot
	var ends []int
	for {
		begin := len(c.program)
		for r := c.peek(); r >= 0 && r != '|' && r != ')'; r = c.peek() {
			c.quantified()
		}
		if c.peek() != '|' {
			break
		}
		c.at++
		c.insert(begin, instruction{operation: opSplit})
		ends = append(ends, c.emit(instruction{operation: opJump}))
		c.program[begin].x, c.program[begin].y = begin+1, len(c.program)
	}
	for _, end := range ends {
		c.program[end].x = len(c.program)
	}
	c.fold, c.dot = fold, dot
	c.depth--
}

// insert puts an instruction before others and moves their jumps.
func (c *compiler) insert(at int, in instruction) {
	c.emit(in)
	copy(c.program[at+1:], c.program[at:])
	c.program[at] = in
	for i := at + 1; i < len(c.program); i++ {
		if o := &c.program[i]; o.operation != opRepeat && o.operation != opClass {
			o.x, o.y = moved(o.x, at), moved(o.y, at)
		}
	}
}

func moved(target, at int) int {
	if target > at || target == at && at > 0 {
		return target + 1
	}
	return target
}

// quantified compiles one part with the quantifiers behind it.
func (c *compiler) quantified() {
	begin := len(c.program)
	c.atom()
	for {
		low, high, ok := c.quantifier()
		if !ok {
			return
		}
		if len(c.program) == begin {
			c.fail("nothing to repeat")
		}
		lazy := c.accept("?")
		possessive := !lazy && c.accept("+")
		c.repeat(begin, low, high, lazy, possessive)
	}
}

// quantifier reads one; braces that are none are characters.
func (c *compiler) quantifier() (low, high int, ok bool) {
	switch {
	case c.accept("*"):
		return 0, unbounded, true
	case c.accept("+"):
		return 1, unbounded, true
	case c.accept("?"):
		return 0, 1, true
	case c.peek() != '{':
		return 0, 0, false
	}
	inside, _, closed := strings.Cut(c.source[c.at+1:], "}")
	from, to, ranged := strings.Cut(inside, ",")
	low, errLow := strconv.Atoi(from)
	high, errHigh := strconv.Atoi(to)
	switch {
	case !closed:
		return 0, 0, false
	case !ranged:
		high, errHigh = low, errLow
	case to == "" && from != "":
		high, errHigh = unbounded, nil
	case from == "" && to != "":
		low, errLow = 0, nil
	}
	if errLow != nil || errHigh != nil {
		return 0, 0, false
	}
	if low > maxRepeats || high > maxRepeats || low < 0 || high >= 0 && high < low {
		c.fail("the repetition {%s} is not in order or above %d", inside, maxRepeats)
	}
	c.at += len(inside) + 2
	if next := c.peek(); next == '+' || next == '?' && !ranged {
		c.fail("%q behind {%s} is not supported", next, inside)
	}
	return low, high, true
}

// repeat repeats the program from begin on.
func (c *compiler) repeat(begin, low, high int, lazy, possessive bool) {
	body := append([]instruction(nil), c.program[begin:]...)
	if len(body) == 1 && body[0].operation == opClass {
		c.program[begin] = instruction{operation: opRepeat, class: body[0].class, min: low, max: high,
			lazy: lazy, possessive: possessive}
		return
	}
	c.program = c.program[:begin]
	if possessive {
		c.emit(instruction{operation: opAtomic})
	}
	for range low {
		c.paste(body, begin)
	}
	split := func() int { return c.emit(instruction{operation: opSplit}) }
	aim := func(at, on, out int) {
		if lazy {
			on, out = out, on
		}
		c.program[at].x, c.program[at].y = on, out
	}
	if high == unbounded {
		if emptiable(body, 0, begin, map[int]bool{}) {
			c.fail("a repetition of what may match nothing is not supported")
		}
		at := split()
		c.paste(body, begin)
		c.emit(instruction{operation: opJump, x: at})
		aim(at, at+1, len(c.program))
	} else {
		var splits []int
		for range high - low {
			splits = append(splits, split())
			c.paste(body, begin)
		}
		for _, at := range splits {
			aim(at, at+1, len(c.program))
		}
	}
	if possessive {
		c.emit(instruction{operation: opMatch})
		c.program[begin].y = len(c.program)
	}
}

// emptiable reports whether instructions, which were at from, may end without a character.
func emptiable(body []instruction, at, from int, seen map[int]bool) bool {
	for at < len(body) && !seen[at] {
		seen[at] = true
		switch in := body[at]; in.operation {
		case opClass:
			return false
		case opRepeat:
			if in.min > 0 {
				return false
			}
			at++
		case opSplit:
			if emptiable(body, in.x-from, from, seen) {
				return true
			}
			at = in.y - from
		case opJump:
			at = in.x - from
		case opLook, opAtomic:
			at = in.y - from
		default:
			at++
		}
	}
	return at >= len(body)
}

// paste appends instructions that were at from, with their jumps moved.
func (c *compiler) paste(body []instruction, from int) {
	by := len(c.program) - from
	for _, in := range body {
		if in.operation != opRepeat && in.operation != opClass {
			in.x += by
			in.y += by
		}
		c.emit(in)
	}
}

// atom compiles one character, class, group or anchor.
func (c *compiler) atom() {
	switch r := c.next(); r {
	case '(':
		c.group()
	case '[':
		c.one(c.set())
	case '.':
		newline := &class{negate: true}
		if !c.dot {
			newline.ranges = []rune{'\n', '\n'}
		}
		c.one(newline)
	case '^':
		c.emit(instruction{operation: opLineBegin})
	case '$':
		c.emit(instruction{operation: opLineEnd})
	case '*', '+', '?':
		c.fail("nothing to repeat")
	case '\\':
		if !c.anchor() {
			c.one(c.escape())
		}
	default:
		c.one(&class{ranges: []rune{r, r}})
	}
}

// one emits the match of one character.
func (c *compiler) one(set *class) {
	set.fold = c.fold
	c.emit(instruction{operation: opClass, class: set.prepare()})
}

// anchor compiles an escape that matches between characters; false if the next one does not.
func (c *compiler) anchor() bool {
	operations := map[rune]operation{'b': opBoundary, 'B': opNoBoundary, 'A': opTextBegin, 'z': opTextEnd,
		'Z': opTextEndNewline}
	op, ok := operations[c.peek()]
	if ok {
		c.at++
		c.emit(instruction{operation: op})
	}
	return ok
}

// group compiles what begins with a parenthesis.
func (c *compiler) group() {
	fold, dot := c.fold, c.dot
	begin := len(c.program)
	switch {
	case c.accept("?:"), !strings.HasPrefix(c.source[c.at:], "?"):
		c.alternatives()
	case c.accept("?="):
		c.inside(instruction{operation: opLook})
	case c.accept("?!"):
		c.inside(instruction{operation: opLook, negative: true})
	case c.accept("?<="):
		c.inside(instruction{operation: opLook, behind: true})
	case c.accept("?<!"):
		c.inside(instruction{operation: opLook, behind: true, negative: true})
	case c.accept("?>"):
		c.inside(instruction{operation: opAtomic})
	default:
		c.at++
		c.options()
		if c.accept(":") {
			c.alternatives()
		} else {
			// The options hold to the end of the group around this one.
			if c.peek() != ')' {
				c.fail("the group (?%c is not supported", c.peek())
			}
			c.at++
			fold, dot = c.fold, c.dot
			c.alternatives()
			c.fold, c.dot = fold, dot
			return
		}
	}
	if !c.accept(")") {
		c.fail("a parenthesis is not closed")
	}
	c.fold, c.dot = fold, dot
	if len(c.program) == begin { // An empty group matches nothing, and may be repeated.
		c.emit(instruction{operation: opJump, x: begin + 1})
	}
}

// options reads the letters of a group such as (?i-m:.
func (c *compiler) options() {
	on := true
	for {
		switch {
		case c.accept("-"):
			on = false
		case c.accept("i"):
			c.fold = on
		case c.accept("m"):
			c.dot = on
		default:
			return
		}
	}
}

// inside compiles the rest of a group as a program of its own.
func (c *compiler) inside(in instruction) {
	at := c.emit(in)
	c.alternatives()
	c.emit(instruction{operation: opMatch})
	if in.behind {
		c.program[at].min = c.fixedLength(at + 1)
	}
	c.program[at].y = len(c.program)
}

// fixedLength returns how many characters a look-behind matches. Only a row of characters is supported.
func (c *compiler) fixedLength(from int) int {
	n := 0
	for _, in := range c.program[from:] {
		switch {
		case in.operation == opClass:
			n++
		case in.operation == opRepeat && in.min == in.max:
			n += in.min
		case in.operation != opMatch:
			c.fail("a look-behind of more than a row of characters is not supported")
		}
	}
	return n
}

// set reads a class in brackets.
func (c *compiler) set() *class {
	if c.depth++; c.depth > maxDepth {
		c.fail("it is nested deeper than %d", maxDepth)
	}
	set := &class{negate: c.accept("^")}
	for first := true; first || c.peek() != ']'; first = false {
		switch {
		case strings.HasPrefix(c.source[c.at:], "[:"):
			c.fail("a POSIX class is not supported")
		case c.accept("["):
			set.parts = append(set.parts, c.set())
		case c.accept("&&"):
			c.intersect(set)
			c.depth--
			return set
		default:
			c.member(set)
		}
	}
	c.at++
	c.depth--
	return set
}

// intersect reads what follows && in a class, up to its end.
func (c *compiler) intersect(set *class) {
	left := &class{ranges: set.ranges, categories: set.categories, flags: set.flags, parts: set.parts}
	right := c.set()
	*set = class{negate: set.negate, parts: []*class{left}}
	inner := &class{parts: []*class{left}, and: []*class{right}}
	set.parts = []*class{inner}
}

// member reads one character, range or escape of a class.
func (c *compiler) member(set *class) {
	low, part := c.single()
	if part != nil {
		set.parts = append(set.parts, part)
		return
	}
	rest := c.source[c.at:]
	if !strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "-]") || strings.HasPrefix(rest, "-[") {
		set.ranges = append(set.ranges, low, low)
		return
	}
	c.at++
	high, part := c.single()
	if part != nil || high < low {
		c.fail("a range in a class is not in order")
	}
	set.ranges = append(set.ranges, low, high)
}

// single reads one character of a class, or an escape that stands for a class.
func (c *compiler) single() (rune, *class) {
	if r := c.next(); r != '\\' {
		return r, nil
	}
	if c.accept("b") {
		return '\b', nil
	}
	part := c.escape()
	if len(part.ranges) == 2 && part.ranges[0] == part.ranges[1] && !part.negate {
		return part.ranges[0], nil
	}
	return 0, part
}

// escape reads what follows a backslash.
func (c *compiler) escape() *class {
	r := c.next()
	char := func(r rune) *class { return &class{ranges: []rune{r, r}} }
	if i := strings.IndexRune("ntrfvae", r); i >= 0 {
		return char(rune("\n\t\r\f\v\a\x1b"[i]))
	}
	switch r {
	case 's', 'S':
		return &class{flags: characters.Space, negate: r == 'S'}
	case 'd', 'D':
		return &class{categories: characters.Categories("Nd"), negate: r == 'D'}
	case 'w', 'W':
		return &class{flags: characters.PatternWord, negate: r == 'W'}
	case 'h', 'H':
		return &class{ranges: []rune{'0', '9', 'a', 'f', 'A', 'F'}, negate: r == 'H'}
	case 'p', 'P':
		return c.property(r == 'P')
	case 'x', 'u':
		return char(c.hexadecimal(r))
	case '0':
		if next := c.peek(); next < '0' || next > '7' {
			return char(0)
		}
	}
	if r < utf8.RuneSelf && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
		c.fail(`the escape \%c is not supported`, r)
	}
	return char(r)
}

// property reads the name of \p{Lu}.
func (c *compiler) property(negate bool) *class {
	name, _, closed := strings.Cut(c.source[c.at:], "}")
	if !closed || !strings.HasPrefix(name, "{") {
		c.fail(`\p without a name in braces is not supported`)
	}
	c.at += len(name) + 1
	name = name[1:]
	if strings.HasPrefix(name, "^") {
		name, negate = name[1:], !negate
	}
	set := &class{negate: negate, categories: characters.Categories(name)}
	if name == "Han" {
		set.flags = characters.Han
	}
	if set.categories == 0 && set.flags == 0 {
		c.fail(`the property \p{%.40s} is not supported`, name)
	}
	return set
}

// hexadecimal reads the digits of \xHH, \x{H...} or \uHHHH.
func (c *compiler) hexadecimal(kind rune) rune {
	digits, braces := "", kind == 'x' && c.accept("{")
	limit := map[bool]int{true: 8, false: map[rune]int{'x': 2, 'u': 4}[kind]}[braces]
	for len(digits) < limit && strings.ContainsRune("0123456789abcdefABCDEF", max(c.peek(), ' ')) {
		digits += string(c.next())
	}
	value, err := strconv.ParseUint(digits, 16, 32)
	wrong := err != nil || !utf8.ValidRune(rune(value)) || braces && !c.accept("}") ||
		!braces && (len(digits) < limit || kind == 'x' && value >= utf8.RuneSelf)
	if wrong {
		c.fail(`the escape \%c does not name a character`, kind)
	}
	return rune(value)
}
